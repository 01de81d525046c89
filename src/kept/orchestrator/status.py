"""How a run has ended: the status that belongs to each reason."""

from kept.orchestrator.budget import REASONS
from kept.orchestrator.record import Status

COMPLETED = "completed"
FAILED = "manager_failed"
"""The manager gave up."""
GARBAGE = "manager_garbage"
"""The manager wrote nothing that was a decision."""
STALLED = "stall_detected"
"""The manager planned and diagnosed, and sent nobody."""
REJECTED = "max_rejected_completions"
HOPELESS = "eval_fail"

PHASE_FAILED, PHASE_PARTIAL = "phase_failed", "phase_partial"
"""A phase without any model did not come to what it must (R33): nobody was asked."""

_FAILED = (FAILED, HOPELESS, PHASE_FAILED)


def status_of(reason: str, *, delivered: bool) -> Status:
    """Complete only where everything was checked and something is there."""
    if reason == COMPLETED:
        return "complete" if delivered else "partial"
    if reason in _FAILED or (reason == GARBAGE and not delivered):
        return "failed"
    return "partial"


def is_limit(reason: str) -> bool:
    """Whether the budget is what ended a run."""
    return reason in REASONS.values()
