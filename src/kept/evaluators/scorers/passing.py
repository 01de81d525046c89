"""Whether a case passes, as a measure: only one that is solved as a whole does."""

from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.exchange import PASSED
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score


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
