"""Scorers that wrap another one: weighted loss, mixed credit, pass measure, description.

The loss of an agent case is one minus the weighted mean of its metrics. Each metric is first
averaged over the turns of the case. Metrics without a weight are measured but do not count. A
case that lacks some weighted metrics uses the others, so that all cases count alike
(docs/decisions/0028).

The measure `mixed` adds a share of `soft` credit to `hard`. The pass measure is 1 only for cases
that are solved as a whole. One scorer also records input, expected output and actual output for
reports of `kept eval`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.case import Case, Labels
from kept.core.llm import CASE, PASSED
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Score
from kept.core.text import shortened

LOSS = "loss"
"""Metric that a run minimizes."""


@dataclass(frozen=True, slots=True)
class WeightedLoss:
    """Implements `kept.core.ports.Scorer`."""

    inner: Scorer
    weights: Mapping[str, float]

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Score with the inner scorer and add the loss."""
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
        """Close the inner scorer."""
        await self.inner.close()


def weighted_loss(metrics: Mapping[str, float], weights: Mapping[str, float]) -> float | None:
    """Loss from 0, the best, to 1; None if no weighted metric was measured."""
    there = {name: weight for name, weight in weights.items() if name in metrics}
    whole = sum(there.values())
    if not whole:
        return None
    # a grader may say 1.2, and a perfect BLEU is 1.0000000000000004
    scores = {name: min(1.0, max(0.0, metrics[name])) for name in there}
    # rounding may push the sum slightly outside of 0 and 1
    return min(1.0, max(0.0, 1.0 - sum(scores[n] * w for n, w in there.items()) / whole))


MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Mixed:
    """Implements `kept.core.ports.Scorer`."""

    inner: Scorer
    weight: float
    """Weight of `soft`, from 0 to 1."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Score with the inner scorer and add the mix of `hard` and `soft`."""
        score = await self.inner.score(job, rollout, candidate, case, scope)
        if isinstance(score, Failure) or score.failure is not None:
            return score
        hard = score.metrics["hard"]
        soft = score.metrics.get("soft", hard)
        mixed = (1 - self.weight) * hard + self.weight * soft
        return score._replace(metrics={**score.metrics, MIXED: mixed})

    async def close(self) -> None:
        """Close the inner scorer."""
        await self.inner.close()


@dataclass(frozen=True, slots=True)
class Passing:
    """Implements `kept.core.ports.Scorer` on one whose measure says how much is solved."""

    inner: Scorer
    metric: str = "hard"

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Score with the inner scorer and add the pass measure; less than 1 does not pass."""
        score = await self.inner.score(job, rollout, candidate, case, scope)
        if isinstance(score, Failure) or score.failure is not None:
            return score
        passed = float(score.metrics[self.metric] >= 1)
        return score._replace(metrics={**score.metrics, PASSED: passed})

    async def close(self) -> None:
        """Close the inner scorer."""
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
