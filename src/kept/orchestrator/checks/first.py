"""L0 as a check of a completion: its six looks at every deliverable that was declared."""

from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.l0 import Look, l0_flaws
from kept.orchestrator.checks.presence import owed
from kept.orchestrator.checks.texts import told


def l0(submission: Submission) -> CheckResult:
    """No deliverable is plainly unfinished; where none is declared, every file is one."""
    declared = [path for path in owed(submission) if path in submission.files]
    looks = [
        Look(
            path=path,
            data=submission.files[path],
            task=submission.task,
            before=submission.previous.get(path),
        )
        for path in declared or sorted(submission.files)
    ]
    found = tuple(l0_flaws(looks))
    if not found:
        return Passed()
    words = "; ".join(f"{one.rule}: {told(one)}" for one in found)
    return Rejected(reason=f"deliverables are not finished: {words}", findings=found)
