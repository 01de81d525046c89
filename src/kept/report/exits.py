"""How a run that tunes an agent ended, and each of its phases, in the words of its source."""

from collections.abc import Sequence
from typing import Any, cast

from kept.core.coordinate import Phase, end_of, phase_of, trials_of
from kept.core.grow import Log
from kept.core.proposal import ClosedStep
from kept.store.reader import Run
from kept.store.tuning.trial import Trial, Trials
from kept.store.views import Records

_STOPS = {
    "minutes": "max_minutes",
    "usd": "max_usd",
    "rollouts": "max_rollouts",
    "iterations": "max_cycles",
    "interrupted": "interrupted",
    "error": "error",
    "failures": "failures",
    "nothing left to propose": "exhausted",
}


def exit_reason(run: Run) -> str:
    """`dry_cycle`, `max_cycles`, `max_minutes`, `max_usd`, `perfect`, `interrupted` or so."""
    stopped = run.state.stopped
    if stopped is None:
        return "running"
    if stopped.kind == "converged":
        return "perfect" if stopped.message.startswith("the loss is") else "dry_cycle"
    return _STOPS[stopped.kind]


def phase_exits(run: Run) -> dict[str, str]:
    """Why each phase ended, by its label; the last may have been cut short with the run."""
    rows = cast("list[dict[str, Any]]", run.fact("phases") or [])
    phases = {
        row["name"]: Phase(
            row["name"], row["proposer"], row["max_trials"], row["patience"], row["least"]
        )
        for row in rows
    }
    found: dict[str, str] = {}
    for label in _labels(run.state.closed):
        steps = trials_of(_until(run.state.closed, label), label)
        found[label] = end_of(phases[phase_of(label)], steps) or exit_reason(run)
    return found


def _labels(closed: Sequence[ClosedStep]) -> list[str]:
    labels = (step.turn.phase for step in closed)
    return list(dict.fromkeys(label for label in labels if "/" in label))


def _until(closed: Sequence[ClosedStep], label: str) -> Log[ClosedStep]:
    last = max(n for n, step in enumerate(closed) if step.turn.phase == label)
    return Log(closed[: last + 1])


def trials_in(run: Run) -> Trials:
    """The trials of a run, from its journal."""
    records, trials = Records(), Trials()
    for event in run.events:
        step = records.hear(event)
        if step is not None:
            trials.hear(step)
    return trials


def made_by(trials: Trials, candidate: str) -> Trial | None:
    """The accepted trial that made a candidate; None where none did."""
    return next((t for t in trials.rows if t.accepted and t.candidate == candidate), None)
