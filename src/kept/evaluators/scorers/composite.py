"""Several scorers as one: the weighted mean of what each says.

The measures of a part carry its name in front: `style.score`. Where a part fails, so does the
whole: a mean of what happens to work would move with what does not.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score


@dataclass(frozen=True, slots=True)
class Part:
    """One scorer of several."""

    name: str
    scorer: Scorer
    weight: float = 1.0
    metric: str = "score"
    """The one of its measures that counts."""
    bounds: tuple[float, float] | None = None
    """What of that measure counts as 0 and what as 1; the first may be the greater. Without it the
    measure counts as it is."""

    def value(self, metrics: Mapping[str, float]) -> float:
        """What the part brings to the mean."""
        raw = metrics[self.metric]
        if self.bounds is None:
            return raw
        zero, one = self.bounds
        return min(1.0, max(0.0, (raw - zero) / (one - zero)))


class CompositeScorer:
    """Asks all its parts."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        self._total = sum(part.weight for part in parts)

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Ask every part, side by side, each in a scope of its own."""
        asked = (
            part.scorer.score(job, rollout, candidate, case, scope.branch(part.name))
            for part in self._parts
        )
        said = await asyncio.gather(*asked)
        metrics = dict(rollout.metrics)
        findings: list[Finding] = []
        mean = 0.0
        for part, score in zip(self._parts, said, strict=True):
            failure = score if isinstance(score, Failure) else _fault(part, score)
            if failure is not None:
                return replace(failure, message=f"part `{part.name}`: {failure.message}")
            assert isinstance(score, Score)
            mean += part.weight * part.value(score.metrics) / self._total
            metrics |= _named(part, score.metrics, rollout.metrics)
            findings += (_finding(part, finding) for finding in score.findings)
        metrics["score"] = mean
        return Score(metrics, tuple(findings))

    async def close(self) -> None:
        """Have every part let go."""
        for part in self._parts:
            await part.scorer.close()


def _fault(part: Part, score: Score) -> Failure | None:
    if part.metric in score.metrics:
        return None
    emitted = ", ".join(f"`{name}`" for name in score.metrics) or "nothing"
    message = f"it did not emit `{part.metric}` (it emitted {emitted})"
    return Failure("harness", "infrastructure", message)


def _named(
    part: Part, metrics: Mapping[str, float], runners: Mapping[str, float]
) -> dict[str, float]:
    """The part's own measures; what it only passed on from the runner is there already."""
    own = {name: value for name, value in metrics.items() if runners.get(name) != value}
    return {f"{part.name}.{name}": value for name, value in own.items()}


def _finding(part: Part, finding: Finding) -> Finding:
    metric = None if finding.metric is None else f"{part.name}.{finding.metric}"
    return replace(finding, text=f"{part.name}: {finding.text}", metric=metric)
