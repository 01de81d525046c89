"""The last check: weighted metrics of the whole, against thresholds. All parts are recorded.

The usual four are those of the source and go by what the run says of itself. A test of the user's
own goes by the deliverable, and is worth more than all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.record import Evaluated


class Metric(Protocol):
    """One thing that is measured, from 0 to 1."""

    @property
    def name(self) -> str:
        """Unique among the metrics of a run."""
        ...

    @property
    def weight(self) -> float:
        """What it counts beside the others."""
        ...

    @property
    def threshold(self) -> float | None:
        """What it must reach to be without a gap; None where less is no fault."""
        ...

    async def measure(self, submission: Submission, scope: Scope) -> float | Failure:
        """Measure it."""
        ...


@dataclass(frozen=True, slots=True)
class Assertion:
    """A metric that is a function of the submission."""

    name: str
    weight: float
    threshold: float | None
    of: Callable[[Submission], float]

    async def measure(self, submission: Submission, scope: Scope) -> float | Failure:
        """Look."""
        return self.of(submission)


@dataclass(frozen=True, slots=True)
class ByCommand:
    """A metric that is a command: 1 where it ends well, or the number that it prints last."""

    name: str
    command: tuple[str, ...]
    weight: float = 5.0
    threshold: float | None = 1.0
    seconds: float = 60.0

    async def measure(self, submission: Submission, scope: Scope) -> float | Failure:
        """Run it beside the deliverables."""
        ran = await submission.run(self.command, self.seconds, scope.branch(self.name))
        if isinstance(ran, Failure):
            return ran
        if ran.timed_out or ran.exit_code:
            return 0.0
        lines = ran.output.strip().splitlines()
        try:
            return min(1.0, max(0.0, float(lines[-1]))) if lines else 1.0
        except ValueError:
            return 1.0


def confidence_of(submission: Submission) -> float:
    """What the manager says, else the mean of what its workers say; 0 where nobody does."""
    if submission.confidence is not None:
        return submission.confidence
    said = [one.confidence for one in submission.delegations if one.confidence is not None]
    return sum(said) / len(said) if said else 0.0


def _has_result(submission: Submission) -> float:
    result = submission.final_result
    there = bool(result) or bool(submission.files)
    return float(there and not result.get("error") and confidence_of(submission) > 0.3)


def _not_empty(submission: Submission) -> float:
    return float(any(submission.files.values()))


def _efficiency(submission: Submission) -> float:
    return min(1.0, max(0.0, submission.budget.remaining))


USUAL: tuple[Metric, ...] = (
    Assertion("has_result", 2.0, 1.0, _has_result),
    Assertion("confidence", 1.5, 0.6, confidence_of),
    Assertion("not_empty", 1.0, 1.0, _not_empty),
    Assertion("efficiency", 0.5, None, _efficiency),
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Implements `kept.orchestrator.checks.base.Check`."""

    metrics: tuple[Metric, ...] = USUAL
    accept: float = 0.75
    """From here on a completion is one."""
    fail: float = 0.2
    """Below this, more of the same is hopeless."""
    name: str = "eval"

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        """Measure all, and weigh."""
        measured: dict[str, float] = {}
        for metric in self.metrics:
            value = await metric.measure(submission, scope)
            if isinstance(value, Failure):
                return value
            measured[metric.name] = value
        found = evaluated(self.metrics, measured, self.accept, self.fail)
        if found.action == "accept":
            return Passed(evaluation=found)
        gaps = {
            name: found.thresholds[name] - found.per_metric[name]
            for name in found.thresholds
            if found.per_metric[name] < found.thresholds[name]
        }
        words = ", ".join(f"{name} lacks {gap:.2f}" for name, gap in gaps.items())
        reason = f"the evaluation gives {found.score:.2f}, and {self.accept:g} is needed"
        reason += f": {words}" if words else ""
        return Rejected(reason=reason, evaluation=found, hopeless=found.action == "fail")


def evaluated(
    metrics: tuple[Metric, ...], measured: Mapping[str, float], accept: float, fail: float
) -> Evaluated:
    """The weighted mean of what each metric brings, with its parts."""
    total = sum(metric.weight for metric in metrics)
    score = sum(metric.weight * _worth(metric, measured[metric.name]) for metric in metrics)
    score = score / total if total else 0.0
    action = "accept" if score >= accept else "fail" if score < fail else "retry_with_repair"
    return Evaluated(
        score=round(score, 4),
        per_metric={name: round(value, 4) for name, value in measured.items()},
        thresholds={m.name: m.threshold for m in metrics if m.threshold is not None},
        action=action,
    )


def _worth(metric: Metric, value: float) -> float:
    """What a metric brings: what reaches its threshold counts in full."""
    if metric.threshold is None or not metric.threshold:
        return value
    return min(1.0, value / metric.threshold)
