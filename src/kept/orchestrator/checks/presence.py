"""Whether what a run owes is there at all: deliverable_presence, and deliverable.

The first goes by the paths that plan and task name, the second by the kinds of files that the task
asks for. No run is complete that leaves nothing.
"""

from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.naming import required_outputs, wanted_endings
from kept.orchestrator.checks.texts import flaw, suffix_of, told


def owed(submission: Submission) -> tuple[str, ...]:
    """The paths that a submission must have."""
    return required_outputs(submission.plan, submission.task, submission.inputs)


def deliverable_presence(submission: Submission) -> CheckResult:
    """Every file that was named is there and holds something; and there is at least one."""
    paths, files = owed(submission), submission.files
    missing = [
        flaw(path, "is empty" if path in files else "is not in the output folder", "missing")
        for path in paths
        if not files.get(path)
    ]
    if missing:
        words = "; ".join(map(told, missing))
        return Rejected(reason=f"deliverables are missing: {words}", findings=tuple(missing))
    if any(files.values()):
        return Passed()
    if not paths and wanted_endings(submission.task, submission.inputs):
        reason = (
            "the task asks for a file and the plan names none: list it in `required_outputs` of"
            " a subtask, and have a worker write it to the output folder"
        )
        return Rejected(reason=reason)
    reason = "there is no deliverable: have a worker write the result to the output folder"
    return Rejected(reason=reason)


def deliverable(submission: Submission) -> CheckResult:
    """A file of every kind that the task asks for, and something in it."""
    held = {suffix_of(path) for path, data in submission.files.items() if data}
    lacking = [
        ends
        for ends in wanted_endings(submission.task, submission.inputs)
        if not held.intersection(ends)
    ]
    if not lacking:
        return Passed()
    names = ", ".join(f"`{ends[0]}`" for ends in lacking)
    return Rejected(reason=f"the task asks for a file of this kind and there is none: {names}")
