"""All rollouts of one case in a run that has steps, the last first."""

from typing import Any

from kept.store.reader import Run
from kept.ui.report.step import StepRollout, rollout_json

TRACED = 3
"""Rollouts that are told from beginning to end where nobody asks for all of them."""

MOST = 5
"""Cases that are named where one is meant that there is not."""


def case_rollouts(run: Run, case: str, *, traces: bool = False) -> tuple[StepRollout, ...]:
    """Every rollout of a case, the last first; without `traces`, only the last few have theirs."""
    found = [(step, job, outcome) for step, job, outcome in run.rollouts() if job.case_id == case]
    made: dict[str | None, int] = {}
    for closed in run.state.closed:
        made.setdefault(closed.candidate, closed.step)
    rows: list[StepRollout] = []
    for n, (step, job, outcome) in enumerate(reversed(found)):
        trace = run.trace(outcome.trace) if outcome.trace and (traces or n < TRACED) else ()
        # whose it is, not who asked for it: a later step may look at what an earlier one made
        by = made.get(job.candidate_id, step)
        side = "seed" if job.candidate_id == run.state.seed else f"step {by}"
        rows.append(StepRollout(job, side, outcome, trace))
    return tuple(rows)


def cases_like(run: Run, name: str) -> list[str]:
    """The case of this name; else all whose names begin so."""
    jobs = (job.case_id for _, job, _ in run.rollouts())
    found = dict.fromkeys(case for case in jobs if case.startswith(name))
    return [name] if name in found else list(found)


def some_cases(run: Run, most: int = MOST) -> list[str]:
    """A few of the cases that were run."""
    found: dict[str, None] = {}
    for _, job, _ in run.rollouts():
        found[job.case_id] = None
        if len(found) == most:
            break
    return list(found)


def case_json(rollouts: tuple[StepRollout, ...]) -> list[dict[str, Any]]:
    """The same as a document."""
    return [rollout_json(rollout) for rollout in rollouts]
