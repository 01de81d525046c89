"""The lines of `metrics.jsonl` and `events.jsonl`, made from our record of a run.

Only the refusal of a completion is an event of a gate that triggered: readers of either tool count
those. What else was refused stands there by another category.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kept.orchestrator.record import (
    AgentRun,
    BudgetSnapshot,
    CheckOutcome,
    Delegation,
    Iteration,
    Limits,
    Repair,
)

Row = dict[str, Any]


def stamp(t: float) -> str:
    """A moment, as the source writes it."""
    return datetime.fromtimestamp(t, UTC).isoformat(timespec="milliseconds")


def budget_stands(stands: BudgetSnapshot, most: Limits) -> Row:
    """Where a budget stands, as the source writes it, with the axes that it leaves out."""
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
    """What was measured, turn by turn."""
    for one in run.iterations:
        at = {"ts": stamp(run.started + one.ended), "iteration": one.number}
        if one.budget is not None:
            stands = budget_stands(one.budget, _limits_at(run, one.number))
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
        measured = _evaluated_at(run)
        yield {
            "ts": stamp(run.started + measured.ended if measured else run.ended or run.started),
            "kind": "metric.eval",
            "iteration": measured.number if measured else len(run.iterations),
            "worker_id": "",
            "score": run.evaluation.score,
            "action": run.evaluation.action,
            "metric_scores": dict(run.evaluation.per_metric),
        }


def _limits_at(run: AgentRun, number: int) -> Limits:
    """What the run had in a turn: a limit that ended it may have been raised since."""
    later = (more.before for more in run.raised if number <= more.after)
    return next(later, run.limits)


def _evaluated_at(run: AgentRun) -> Iteration | None:
    """The last turn in which a completion came as far as its evaluation."""
    came = [one for one in run.iterations if any(check.check == "eval" for check in one.checks)]
    return came[-1] if came else None


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
    """What happened, in order."""
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
    """Category, words, fields and level of what a turn led to."""
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
        yield "gate", f"{check.check} {words}", _gate(check), level
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


def _gate(check: CheckOutcome) -> Row:
    fields: Row = {"gate": check.check, "triggered": not check.passed, "reason": check.reason}
    if check.check == "l0" and check.findings:
        first = check.findings[0]
        fields |= {"l0_check": first.rule, "l0_reason": first.detail}
        fields["violating_path"] = first.file
    return fields


def _repair(run: AgentRun, repair: Repair) -> Row:
    """With where the repair lies that this one was held against, for R35."""
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
