"""Writer of run folders in the source's layout, including metrics and events.

The folder is a view that can be rebuilt at any time. It adds data that the source omits: the
evaluation, the critique, the models and the limits. FINAL lies where the source writes it and where
its refinement expects it. Each refusal is written once.

In `metrics.jsonl` and `events.jsonl` only a refused completion is an event of a triggered gate,
because readers of either tool count those. Other refusals have another category.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kept.core.artifact import is_safe_path
from kept.core.text import encoded
from kept.orchestrator.loss import run_loss
from kept.orchestrator.record import (
    AgentRun,
    BudgetSnapshot,
    CheckOutcome,
    Critique,
    Delegation,
    Iteration,
    Limits,
    Models,
    Repair,
    Used,
)
from kept.orchestrator.run_folder.read import FINAL
from kept.store.candidate_files import link_in, write_whole

Row = dict[str, Any]


def stamp(t: float) -> str:
    """Return a time as text, as the source writes it."""
    return datetime.fromtimestamp(t, UTC).isoformat(timespec="milliseconds")


def budget_stands(stands: BudgetSnapshot, most: Limits) -> Row:
    """Return the state of a budget in the source's format, with the axes that it omits."""
    used, left = stands.used, round(100 * stands.remaining, 2)
    return {
        "loops": {"used": used.loops, "max": most.loops},
        "workers": {"spawned": used.workers, "max": most.workers},
        "tokens": {"consumed": used.tokens, "max": most.tokens},
        "tool_calls": {"used": used.tool_calls, "max": most.tool_calls},
        "wall_time": {"elapsed_s": used.wall_seconds, "max_s": most.wall_seconds},
        "depth": {"used": used.depth, "max": most.depth},
        "usd": {"spent": used.usd, "max": most.usd},
        "budget_remaining_pct": left,
        "phase": {"current": stands.phase, "phase_remaining_pct": left},
    }


def metrics_of(run: AgentRun) -> Iterator[Row]:
    """Yield the measurements, turn by turn."""
    for one in run.iterations:
        at = {"ts": stamp(run.started + one.ended), "iteration": one.number}
        if one.budget is not None:
            # limits at that time: they may have been raised since
            later = [more.before for more in run.raised if one.number <= more.after]
            stands = budget_stands(one.budget, later[0] if later else run.limits)
            yield {**at, "kind": "metric.budget", **stands}
        yield from ({**at, "kind": "metric.critique", **row} for row in _mean_critique(one))
        for check in one.checks:
            yield {
                **at,
                "kind": "metric.gate",
                "gate": check.check,
                "verdict": "passed" if check.passed else "rejected",
                "reason": check.reason[:500],
            }
    if run.evaluation is not None:
        # the evaluation belongs to the last turn whose completion reached that check
        turns = reversed(run.iterations)
        came = (one for one in turns if any(check.check == "eval" for check in one.checks))
        measured = next(came, None)
        yield {
            "ts": stamp(run.started + measured.ended if measured else run.ended or run.started),
            "kind": "metric.eval",
            "iteration": measured.number if measured else len(run.iterations),
            "worker_id": "",
            "score": run.evaluation.score,
            "action": run.evaluation.action,
            "metric_scores": dict(run.evaluation.per_metric),
        }


def _mean_critique(one: Iteration) -> Iterator[Row]:
    said = [d.critique for d in one.delegations if d.critique is not None]
    if not said:
        return
    defects = [defect for critique in said for defect in critique.defects]
    kinds = sorted({defect.category for defect in defects})
    yield {
        "score": sum(critique.score for critique in said) / len(said),
        "defect_count": len(defects),
        "pattern_count": sum(len(critique.reusable_patterns) for critique in said),
        "defects_by_category": {k: sum(d.category == k for d in defects) for k in kinds},
        "worker_count": len(said),
    }


def events_of(run: AgentRun) -> Iterator[Row]:
    """Yield the events of a run, in order."""
    about = {"run_id": run.run_id, "parent_run_id": run.parent_run_id}
    yield _event(run, 0.0, "run", "started", about)
    for one in run.iterations:
        turn = {"iteration": one.number}
        for garbage in one.garbage:
            words = f"no decision: {garbage}"
            yield _event(run, one.began, "manager", words, turn, "WARNING")
        if one.decision is not None:
            words = f"decision: {one.decision.kind}"
            yield _event(run, one.began, "manager", words, turn)
        for category, msg, fields, level in _turn(run, one):
            yield _event(run, one.ended, category, msg, {**turn, **fields}, level)
    if run.ended is not None:
        words = f"{run.status}: {run.reason}"
        yield _event(run, run.ended - run.started, "completion", words, {})


def _event(
    run: AgentRun, t: float, category: str, msg: str, fields: Row, level: str = "INFO"
) -> Row:
    ts = stamp(run.started + t)
    return {"ts": ts, "level": level, "category": category, "msg": msg, "fields": fields}


def _turn(run: AgentRun, one: Iteration) -> Iterator[tuple[str, str, Row, str]]:
    """Yield category, message, fields and level of the events of a turn."""
    for rejection in run.rejections:
        if rejection.iteration == one.number and not rejection.completion:
            category = "budget" if rejection.gate == "budget" else "delegation"
            words = f"refused ({rejection.gate}): {rejection.reason}"
            yield category, words, {"refused": rejection.gate}, "WARNING"
    for sent in one.delegations:
        yield from _worker(sent)
    for check in one.checks:
        words = "passed" if check.passed else f"refused: {check.reason}"
        level = "INFO" if check.passed else "WARNING"
        yield "gate", f"{check.check} {words}", _gate_row(check), level
    for repair in run.repairs:
        if repair.iteration == one.number:
            ended = "repair_fixpoint_detected" if repair.fixpoint else "repaired"
            yield "repair", f"{ended}: {repair.reason}", _repair(run, repair), "INFO"


def _worker(sent: Delegation) -> Iterator[tuple[str, str, Row, str]]:
    who: Row = {"worker": sent.worker_id}
    if sent.failure is not None:
        words = f"{sent.worker_id}: {sent.failure.message}"
        yield "worker", words, {**who, "failure": sent.failure.kind}, "WARNING"
    else:
        yield "worker", f"{sent.worker_id}: done", who, "INFO"
    if sent.critique is not None:
        score, defects = sent.critique.score, len(sent.critique.defects)
        fields = {**who, "score": score, "defect_count": defects}
        yield "critique", f"{sent.worker_id}: {score:g}", fields, "INFO"
    elif sent.critique_failure is not None:
        words = f"{sent.worker_id}: no critique: {sent.critique_failure.message}"
        yield "critique", words, who, "WARNING"


def _gate_row(check: CheckOutcome) -> Row:
    fields: Row = {"gate": check.check, "triggered": not check.passed, "reason": check.reason}
    if check.check == "l0" and check.findings:
        first = check.findings[0]
        fields |= {"l0_check": first.rule, "l0_reason": first.detail}
        fields["violating_path"] = first.file
    return fields


def _repair(run: AgentRun, repair: Repair) -> Row:
    """Return the fields of a repair, with the path of the result it was compared with (R35)."""
    before = [
        f"iterations/{one.iteration:03d}/delegations/{one.worker_id}/result.json"
        for one in run.repairs
        if one.subtask_id == repair.subtask_id and one.attempt < repair.attempt
    ]
    return {
        "attempt": repair.attempt,
        "sim": repair.similarity,
        "worker": repair.worker_id,
        "previous_output_path": before[-1] if before else None,
    }


_ODD = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Layout:
    """Path of a run's folder in its workspace; empty if it is the workspace itself."""

    run: str = ""

    def place(self, path: str) -> str:
        """Return a path of the run's folder, relative to the workspace."""
        return f"{self.run}/{path}" if self.run else path


def write_run(root: Path, run: AgentRun, files: Mapping[str, bytes], layout: Layout) -> None:
    """Write all files of a run below a folder; overwrites existing ones."""
    for path, data in run_files(run, files, layout).items():
        write_whole(root / path, data, root)


def sweep(root: Path, run_id: str, before: Sequence[Mapping[str, bytes]], layout: Layout) -> None:
    """Delete what a run had delivered before it continued; only files that it wrote itself."""
    for path in {path for files in before for path in files if is_safe_path(path)}:
        for folder in (f"output/{run_id}", layout.place(FINAL)):
            file = root / folder / path
            if link_in(file, root) is None:
                file.unlink(missing_ok=True)
    # shared with other runs of the workspace
    sweep_own(root / "output" / FINAL, before)


def sweep_own(place: Path, before: Iterable[Mapping[str, bytes]]) -> None:
    """Delete delivered files from a folder if their content is unchanged."""
    for files in before:
        for path, data in files.items():
            file = place / path
            if not is_safe_path(path) or file.resolve() != place.resolve() / path:
                continue  # a link that leads elsewhere
            if file.is_file() and file.read_bytes() == data:
                file.unlink()


def run_files(run: AgentRun, files: Mapping[str, bytes], layout: Layout) -> dict[str, bytes]:
    """Return the content of all files of a run, by path below the workspace."""
    metrics = b"".join(map(_line, metrics_of(run)))
    made = {
        layout.place("run_completion.json"): _json(completion_of(run)),
        layout.place("run_manifest.json"): _json(_manifest(run)),
        layout.place("metrics.jsonl"): metrics,
        f"logs/{run.run_id}/metrics.jsonl": metrics,
        f"logs/{run.run_id}/events.jsonl": b"".join(map(_line, events_of(run))),
    }
    if run.evaluation is not None:
        made[f"data/evaluation/{run.run_id}.json"] = _json(_evaluation_file(run))
    for iteration in run.iterations:
        base = layout.place(f"iterations/{iteration.number:03d}")
        made |= {f"{base}/{name}": _json(value) for name, value in _iteration(run, iteration)}
        for check in iteration.checks:
            place = layout.place(f"gates/{iteration.number:03d}/{check.check}.json")
            made[place] = _json(_gate(run, iteration, check))
    for path, data in files.items():
        if is_safe_path(path):
            made[f"output/{run.run_id}/{path}"] = data
            if run.status in ("complete", "partial"):
                made[f"output/{FINAL}/{path}"] = data
                # once more in the run's own folder, where refinement looks first
                made[layout.place(f"{FINAL}/{path}")] = data
    return made


def completion_of(run: AgentRun) -> dict[str, Any]:
    """Return `run_completion.json`: fields that the source writes, then fields it only reads."""
    evaluation, critique = run.evaluation, run.critique
    budget = run.budget or BudgetSnapshot(
        used=Used(), remaining=1.0, scarcest="loops", phase="ample"
    )
    return {
        "run_id": run.run_id,
        "status": run.status,
        "reason": run.reason,
        "total_iterations": len(run.iterations),
        "final_budget": budget_stands(budget, run.limits),
        "completed": run.status == "complete",
        "parent_run_id": run.parent_run_id,
        "tags": list(run.tags),
        "task": run.task,
        "induced_tools": [],
        "confidence": run.confidence,
        "eval": None if evaluation is None else {"score": evaluation.score},
        "evaluation": None
        if evaluation is None
        else {
            "score": evaluation.score,
            "total_score": evaluation.score,
            "per_metric": dict(evaluation.per_metric),
            "thresholds": dict(evaluation.thresholds),
            "action": evaluation.action,
        },
        "critique": None if critique is None else _critique("", critique),
        "models": _models(run.models),
        "config_used": _caps(run.limits),
        "loss_total": run_loss(run).parts()["total"],
        "loss_breakdown": run_loss(run).parts(),
        "final_result": dict(run.final_result),
        "deliverables": [asdict(one) for one in run.deliverables],
    }


def _caps(limits: Limits) -> dict[str, Any]:
    return {
        "max_loops": limits.loops,
        "max_total_workers": limits.workers,
        "max_total_tokens": limits.tokens,
        "max_wall_time": limits.wall_seconds,
        "max_tool_calls": limits.tool_calls,
        "max_depth": limits.depth,
        # a manager below counts as a worker, so these limits are the same
        "max_concurrent_submanagers": limits.parallel_workers,
        "max_total_submanagers_per_run": limits.workers,
        "max_parallel_workers": limits.parallel_workers,
        "max_workers_per_iteration": limits.workers_per_iteration,
        "max_rejected_completions": limits.rejected_completions,
        "min_loops_per_subtask": 1,
    }


def _manifest(run: AgentRun) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "task": run.task,
        "started": stamp(run.started),
        "models": _models(run.models),
        "budget": _caps(run.limits),
    }


def _models(models: Models) -> dict[str, str]:
    """Return the models; the source has no separate model for critics."""
    told = {"manager": models.manager, "worker": models.worker}
    return {**told, "critic": models.critic} if models.critic else told


def _repairs(run: AgentRun, until: int) -> dict[str, Any]:
    """Return the repairs so far, and their tokens."""
    done = [one for one in run.repairs if one.iteration <= until]
    sent = [
        d for one in run.iterations for d in one.delegations if one.number <= until and d.repair_of
    ]
    tokens = sum(d.usage.tokens_in + d.usage.tokens_out for d in sent)
    return {"repair_history": [asdict(one) for one in done], "total_repair_tokens": tokens}


def _iteration(run: AgentRun, one: Iteration) -> Iterator[tuple[str, dict[str, Any]]]:
    if one.decision is not None:
        told = asdict(one.decision)
        yield (
            "manager_decision.json",
            {"iteration": one.number, "decision": told.pop("kind"), **told},
        )
    said = [d for d in one.delegations if d.critique is not None]
    if said:
        rows = [_critique(d.worker_id, d.critique) for d in said if d.critique is not None]
        # patterns that critics call reusable, by worker
        named = {d.worker_id: d.critique.reusable_patterns for d in said if d.critique is not None}
        patterns = {worker: list(found) for worker, found in named.items() if found}
        summary: dict[str, Any] = {"patterns": patterns, **_repairs(run, one.number)}
        yield "critique.json", {"critiques": rows, "summary": summary}
    if one.checks:
        yield (
            "validation.json",
            {"iteration": one.number, "checks": [asdict(c) for c in one.checks]},
        )
    if one.budget is not None:
        yield "budget_snapshot.json", asdict(one.budget)
    for d in one.delegations:
        # a model chose the worker's name, so make it safe as a folder name
        safe = is_safe_path(d.worker_id) and "/" not in d.worker_id
        base = f"delegations/{d.worker_id if safe else _ODD.sub('_', d.worker_id) or '_'}"
        yield f"{base}/envelope.json", _envelope(d)
        failed = d.failure and {"kind": d.failure.kind, "message": d.failure.message}
        result = None if d.result is None else dict(d.result)
        told = {"result": result, "confidence": d.confidence, "failure": failed}
        yield f"{base}/result.json", told
        if d.critique is not None:
            yield f"{base}/critique.json", _critique(d.worker_id, d.critique)


def _gate(run: AgentRun, at: Iteration, one: CheckOutcome) -> dict[str, Any]:
    return {
        "iteration": at.number,
        "gate": one.check,
        "passed": one.passed,
        "timestamp": stamp(run.started + at.ended),
        "reason": one.reason,
        "findings": [asdict(finding) for finding in one.findings],
    }


def _envelope(d: Delegation) -> dict[str, Any]:
    return {
        "worker_id": d.worker_id,
        "subtask_id": d.subtask_id,
        "instructions": d.instructions,
        "tools_allowed": list(d.tools_allowed),
        "output_contract": {
            "required_fields": list(d.required_fields),
            "description": d.output_description,
        },
        "temperature": d.temperature,
    }


def _critique(worker: str, one: Critique) -> dict[str, Any]:
    return {
        "worker_id": worker,
        "score": one.score,
        "defects": [asdict(defect) for defect in one.defects],
        "prescriptions": list(one.prescriptions),
        "reusable_patterns": list(one.reusable_patterns),
        "effort_estimate": one.effort,
        "summary": one.summary,
        "critical_count": sum(defect.severity == "critical" for defect in one.defects),
        "warning_count": sum(defect.severity == "warning" for defect in one.defects),
    }


def _evaluation_file(run: AgentRun) -> dict[str, Any]:
    told = run.evaluation
    assert told is not None, "there is a file only where there is an evaluation"
    return {
        "run_id": run.run_id,
        "final_score": told.score,
        "final_action": told.action,
        "thresholds": dict(told.thresholds),
        "per_metric": dict(told.per_metric),
    }


def _json(value: object) -> bytes:
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return encoded(text) + b"\n"


def _line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=True, default=str).encode() + b"\n"
