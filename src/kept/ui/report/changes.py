"""The texts behind a step: its candidate, what it was judged against, and what differs."""

from kept.core.artifact import Candidate
from kept.core.edit import diff, reapply
from kept.core.event import StepClosed
from kept.core.plan import REFINE
from kept.errors import JournalError
from kept.store.reader import Run


def step_diff(run: Run, closed: StepClosed) -> str:
    """The change a step proposed to its incumbent; empty when there was none."""
    if closed.candidate is None:
        return ""
    return diff(*sides_of(run, closed))


def sides_of(run: Run, closed: StepClosed) -> tuple[Candidate, Candidate]:
    """What a step was judged against, and its candidate, which it must have."""
    incumbent = run.candidate(closed.incumbent)
    return _shown(run, incumbent, _candidate(run, closed, incumbent))


def best_diff(run: Run) -> str:
    """The change from seed to best."""
    return diff(*_shown(run, run.seed, run.best))


def _shown(run: Run, old: Candidate, new: Candidate) -> tuple[Candidate, Candidate]:
    """Both sides; of a refinement the deliverables alone."""
    if run.glance.begun.recipe != REFINE:
        return old, new
    # at use: few runs refine
    from kept.orchestrator.refine.made import deliverable_of

    return deliverable_of(old), deliverable_of(new)


def _candidate(run: Run, closed: StepClosed, incumbent: Candidate) -> Candidate:
    assert closed.candidate is not None
    try:
        return run.candidate(closed.candidate)
    except JournalError:
        # one that a guard refused was never stored, but its edits say exactly what it was
        return reapply(incumbent, closed.reports)
