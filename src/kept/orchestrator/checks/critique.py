"""Whether critics think well enough of what was made last.

No number of rejections and no file switches this off, and no critique is ever made up: where one is
missing, nobody can tell.
"""

from kept.core.rollout import Failure
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.texts import flaw
from kept.orchestrator.record import Critique, Defect

LEAST = 0.6
"""Mean score of the last iteration's critiques, below which nothing is complete."""

MOST = 5
"""Defects that a manager is told of."""

_RANK = {"critical": 0, "warning": 1, "info": 2}


def critique(submission: Submission) -> CheckResult | Failure:
    """The mean score is high enough, and nothing stands that no critic has seen."""
    for delegation in submission.delegations:
        if delegation.critique is None and delegation.critique_failure is not None:
            return delegation.critique_failure
    unseen = [
        f"{one.worker_id} ({one.subtask_id or 'no subtask'}) failed"
        for one in submission.delegations
        if one.critique is None and one.failure is not None
    ]
    if unseen:
        words = "and no critic has seen that part: have it done again"
        return Rejected(reason=f"{', '.join(unseen)}, {words}")
    said = submission.critiques
    if not said:
        return Passed()
    mean = sum(one.score for _, one in said) / len(said)
    if mean >= LEAST:
        return Passed()
    found = [
        flaw(f"{worker}: {defect.location}", defect.description, defect.severity)
        for worker, one in said
        for defect in _worst_first(one)
    ]
    words = "; ".join(f"{one.file}: {one.detail}" for one in found[:MOST])
    reason = f"critics give {mean:.2f}, and {LEAST:g} is needed" + (f": {words}" if words else "")
    return Rejected(reason=reason, findings=tuple(found))


def _worst_first(one: Critique) -> list[Defect]:
    return sorted(one.defects, key=lambda defect: _RANK[defect.severity])
