"""The score of an agent run: what it measured itself, and what is wrong with it."""

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score, Severity
from kept.orchestrator.runner import FINDING

_SEVERITIES: dict[str, Severity] = {"critical": "high", "warning": "medium", "info": "low"}


class FoundScorer:
    """Implements `kept.core.ports.Scorer`."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Take the rollout's own measures, and the findings of its trace."""
        found = [
            Finding(item.text, _SEVERITIES.get(str(item.data.get("severity")), "medium"))
            for item in rollout.trace
            if item.role == FINDING
        ]
        return Score(rollout.metrics, tuple(found))

    async def close(self) -> None:
        """Nothing was opened."""
