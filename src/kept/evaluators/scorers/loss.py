"""One loss for a case of an agent: one minus the weighted mean of its metrics.

Turns within a case come first: the scorer beneath gives each metric its mean over them. Metrics
without a weight are measured and count for nothing. A case that has not all weighted metrics is
measured by those it has, so that every case counts alike (docs/decisions/0028).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score

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
