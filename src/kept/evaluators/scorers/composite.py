"""Composite scorer (weighted mean of several), and small score transforms.

Measures of a part have its name as prefix: `style.score`. If a part fails, so does the whole: a
mean over the working parts would not be comparable.

The loss of an agent case is one minus the weighted mean of its metrics. Each metric is first
averaged over the turns of the case. Metrics without a weight are measured but do not count. A
case that lacks some weighted metrics uses the others, so that all cases count alike
(docs/decisions/0028).

The measure `mixed` adds a share of `soft` credit to `hard`. The pass measure is 1 only for cases
that are solved as a whole. One scorer takes over what a runner measured; another also records
input, expected output and actual output for reports of `kept eval`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept.core.artifact import Candidate
from kept.core.case import Case, Labels
from kept.core.llm import CASE, PASSED
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Finding, Score
from kept.core.text import shortened


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
            if isinstance(score, Failure):
                return replace(score, message=f"part `{part.name}`: {score.message}")
            if part.metric not in score.metrics:
                emitted = ", ".join(f"`{name}`" for name in score.metrics) or "nothing"
                message = f"it did not emit `{part.metric}` (it emitted {emitted})"
                return Failure("harness", "infrastructure", f"part `{part.name}`: {message}")
            mean += part.weight * part.value(score.metrics) / self._total
            # a measure that the part only passed on from the runner is there already
            metrics |= {
                f"{part.name}.{name}": value
                for name, value in score.metrics.items()
                if rollout.metrics.get(name) != value
            }
            for finding in score.findings:
                metric = None if finding.metric is None else f"{part.name}.{finding.metric}"
                text = f"{part.name}: {finding.text}"
                findings.append(replace(finding, text=text, metric=metric))
        metrics["score"] = mean
        return Score(metrics, tuple(findings))

    async def close(self) -> None:
        """Have every part let go."""
        for part in self._parts:
            await part.scorer.close()


LOSS = "loss"
"""The measure that a run brings down."""


@dataclass(frozen=True, slots=True)
class WeightedLoss:
    """Implements `kept.core.ports.Scorer`."""

    inner: Scorer
    weights: Mapping[str, float]

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """What the metrics say, and the loss that they come to."""
        score = await self.inner.score(job, rollout, candidate, case, scope)
        if isinstance(score, Failure) or score.failure is not None:
            return score
        loss = weighted_loss(score.metrics, self.weights)
        if loss is None:
            names = ", ".join(f"`{name}`" for name in self.weights)
            message = f"case `{case.id}` is measured by none of {names}"
            return Failure("harness", "infrastructure", message, scoring=True)
        return score._replace(metrics={**score.metrics, LOSS: loss})

    async def close(self) -> None:
        """Let go of what the metrics have open."""
        await self.inner.close()


def weighted_loss(metrics: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """From 0, the best, to 1; None where no weighted metric was measured."""
    there = {name: weight for name, weight in weights.items() if name in metrics}
    whole = sum(there.values())
    if not whole:
        return None
    # a grader may say 1.2, and a perfect BLEU is 1.0000000000000004
    scores = {name: min(1.0, max(0.0, metrics[name])) for name in there}
    # a sum of products of thirds may pass 1 by a hair
    return min(1.0, max(0.0, 1.0 - sum(scores[n] * w for n, w in there.items()) / whole))


MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Mixed:
    """Implements `kept.core.ports.Scorer`."""

    inner: Scorer
    weight: float
    """Of `soft`, from 0 to 1."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """What the environment says, and both measures in one."""
        score = await self.inner.score(job, rollout, candidate, case, scope)
        if isinstance(score, Failure) or score.failure is not None:
            return score
        hard = score.metrics["hard"]
        soft = score.metrics.get("soft", hard)
        mixed = (1 - self.weight) * hard + self.weight * soft
        return score._replace(metrics={**score.metrics, MIXED: mixed})

    async def close(self) -> None:
        """Let go of what the environment's scorer has open."""
        await self.inner.close()


@dataclass(frozen=True, slots=True)
class Passing:
    """Implements `kept.core.ports.Scorer` on one whose measure says how much is solved."""

    inner: Scorer
    metric: str = "hard"

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """What the inner one says, and whether that passes; a part of 1 does not."""
        score = await self.inner.score(job, rollout, candidate, case, scope)
        if isinstance(score, Failure) or score.failure is not None:
            return score
        passed = float(score.metrics[self.metric] >= 1)
        return score._replace(metrics={**score.metrics, PASSED: passed})

    async def close(self) -> None:
        """Let go of what the inner one has open."""
        await self.inner.close()


MAX_CHARS = 10_000
"""Characters of each text that are recorded."""


@dataclass(frozen=True, slots=True)
class DescribedScorer:
    """Wraps a scorer; implements `kept.core.ports.Scorer`."""

    inner: Scorer
    labels: Labels

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Score with the inner scorer, and add the case to the details."""
        score = await self.inner.score(job, rollout, candidate, case, scope)
        # the printed output, or the only file that was written
        output = rollout.output
        if not output.strip() and len(rollout.files) == 1:
            (content,) = rollout.files.values()
            output = content.decode("utf-8", "replace")
        data: dict[str, object] = {"got": shortened(output.strip(), MAX_CHARS)}
        if expected := self.labels.expected_of(case):
            data["expected"] = shortened(expected, MAX_CHARS)
        asked = shortened(self.labels.input_of(case), MAX_CHARS)
        described = (TraceItem(CASE, asked, data),)
        if isinstance(score, Failure):
            return Score({}, details=described, failure=score)
        return score._replace(details=(*score.details, *described))

    async def close(self) -> None:
        """Close the inner scorer."""
        await self.inner.close()
