"""The folder of a run as its source lays it out, made from our record of the run.

A view, which can be made again at any time. It says what the source forgets to: the evaluation, the
critique, the models and the limits. FINAL lies where the source writes it and where its refinement
looks for it. Each refusal stands there once.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
    Used,
)
from kept.orchestrator.run_folder.logs import budget_stands, events_of, metrics_of, stamp
from kept.orchestrator.run_folder.places import FINAL
from kept.store.files import link_in, write_whole

_ODD = re.compile(r"\W+")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the folder of a run lies in its workspace, by a path; empty for the workspace."""

    run: str = ""

    def place(self, path: str) -> str:
        """A path of the run's folder, below the workspace."""
        return f"{self.run}/{path}" if self.run else path


def write_run(root: Path, run: AgentRun, files: Mapping[str, bytes], layout: Layout) -> None:
    """Write all of it below a folder; what is there already is written over."""
    for path, data in run_files(run, files, layout).items():
        write_whole(root / path, data, root)


def sweep(root: Path, run_id: str, before: Sequence[Mapping[str, bytes]], layout: Layout) -> None:
    """Take away what a run had delivered before it went on; only files that it wrote itself."""
    for path in {path for files in before for path in files if is_safe_path(path)}:
        for folder in (f"output/{run_id}", layout.place(FINAL)):
            file = root / folder / path
            if link_in(file, root) is None:
                file.unlink(missing_ok=True)
    # other runs of a workspace write there too
    sweep_own(root / "output" / FINAL, before)


def sweep_own(place: Path, before: Iterable[Mapping[str, bytes]]) -> None:
    """Take away what was delivered to a place, as far as it is byte for byte what it was."""
    for files in before:
        for path, data in files.items():
            file = place / path
            if not is_safe_path(path) or file.resolve() != place.resolve() / path:
                continue  # a link leads elsewhere
            if file.is_file() and file.read_bytes() == data:
                file.unlink()


def run_files(run: AgentRun, files: Mapping[str, bytes], layout: Layout) -> dict[str, bytes]:
    """Everything by path below the workspace."""
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
                made[layout.place(f"{FINAL}/{path}")] = data
    return made


def completion_of(run: AgentRun) -> dict[str, Any]:
    """`run_completion.json`: what the source writes, then what it reads and does not write."""
    evaluation, critique = run.evaluation, run.critique
    return {
        "run_id": run.run_id,
        "status": run.status,
        "reason": run.reason,
        "total_iterations": len(run.iterations),
        "final_budget": _final_budget(run),
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


def _final_budget(run: AgentRun) -> dict[str, Any]:
    most = run.limits
    stands = run.budget or BudgetSnapshot(
        used=Used(), remaining=1.0, scarcest="loops", phase="ample"
    )
    return budget_stands(stands, most)


def _caps(limits: Limits) -> dict[str, Any]:
    return {
        "max_loops": limits.loops,
        "max_total_workers": limits.workers,
        "max_total_tokens": limits.tokens,
        "max_wall_time": limits.wall_seconds,
        "max_tool_calls": limits.tool_calls,
        "max_depth": limits.depth,
        # a manager below is one of the workers
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
    """Who thought; the source has no model of its own for critics."""
    told = {"manager": models.manager, "worker": models.worker}
    return {**told, "critic": models.critic} if models.critic else told


def _repairs(run: AgentRun, until: int) -> dict[str, Any]:
    """What was repaired so far, and what that took."""
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
        patterns = _patterns(said)
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
        base = f"delegations/{_name(d.worker_id)}"
        yield f"{base}/envelope.json", _envelope(d)
        yield f"{base}/result.json", _result(d)
        if d.critique is not None:
            yield f"{base}/critique.json", _critique(d.worker_id, d.critique)


def _patterns(said: Sequence[Delegation]) -> dict[str, list[str]]:
    """What critics would use again, by worker."""
    found = {d.worker_id: d.critique.reusable_patterns for d in said if d.critique is not None}
    return {worker: list(patterns) for worker, patterns in found.items() if patterns}


def _gate(run: AgentRun, at: Iteration, one: CheckOutcome) -> dict[str, Any]:
    return {
        "iteration": at.number,
        "gate": one.check,
        "passed": one.passed,
        "timestamp": stamp(run.started + at.ended),
        "reason": one.reason,
        "findings": [asdict(finding) for finding in one.findings],
    }


def _name(worker: str) -> str:
    """The name of a worker, which a model chose, as that of a folder."""
    return worker if is_safe_path(worker) and "/" not in worker else _ODD.sub("_", worker) or "_"


def _result(d: Delegation) -> dict[str, Any]:
    failed = d.failure and {"kind": d.failure.kind, "message": d.failure.message}
    result = None if d.result is None else dict(d.result)
    return {"result": result, "confidence": d.confidence, "failure": failed}


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
