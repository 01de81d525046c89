"""The measure `mixed`: a share of `soft` credit in what is else `hard`."""

from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score

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
