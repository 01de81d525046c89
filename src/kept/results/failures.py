"""Failures inside rollouts, in groups, and what they mean for a resume."""

from dataclasses import dataclass

from kept.core.text import one_line
from kept.results.summary import Summary
from kept.store import codec
from kept.store.reader import Run

SHOWN_CASES = 5


@dataclass(slots=True)
class FailureGroup:
    """Failures with the same kind, blame and message."""

    kind: str
    blame: str
    message: str
    times: int
    cases: list[str]
    """The first few of them."""
    steps: list[int]


def failures(run: Run) -> list[FailureGroup]:
    """Group the failures of all rollouts, the most frequent first.

    Only lines that hold a failure are decoded: of a million rollouts few fail.
    """
    groups: dict[tuple[str, str, str], FailureGroup] = {}
    for row in run.all_lines(b'"failure":{'):
        if not isinstance(row, codec.RolloutLine) or row.failure is None:
            continue
        failure = row.failure
        key = (failure.kind, failure.blame, one_line(failure.message, 200))
        group = groups.setdefault(key, FailureGroup(*key, 0, [], []))
        group.times += 1
        if row.case not in group.cases and len(group.cases) < SHOWN_CASES:
            group.cases.append(row.case)
        if row.step not in group.steps:
            group.steps.append(row.step)
    return sorted(groups.values(), key=lambda group: -group.times)


def measure_is_broken(told: Summary, run: Run) -> bool:
    """True if a run ended because its seed could not be measured, and waiting will not help.

    The fix is a change of the task, which needs a new run.
    """
    if told.stopped is None or told.stopped.kind != "error" or told.seed_value is not None:
        return False
    found = failures(run)
    return any(g.kind in ("harness", "parse") or g.blame == "candidate" for g in found)


def may_pass(run: Run) -> bool:
    """True if a resume would retry some failures: those that the infrastructure caused."""
    return any(group.blame == "infrastructure" for group in failures(run))
