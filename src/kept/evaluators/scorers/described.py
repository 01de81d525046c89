"""A scorer that also records input, expected output and got output, for reports of `kept eval`."""

from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.exchange import CASE
from kept.core.labels import Labels
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Score
from kept.core.words import shortened

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
        described = (describe(self.labels, case, rollout),)
        if isinstance(score, Failure):
            return Score({}, details=described, failure=score)
        return score._replace(details=(*score.details, *described))

    async def close(self) -> None:
        """Close the inner scorer."""
        await self.inner.close()


def describe(labels: Labels, case: Case, rollout: Rollout) -> TraceItem:
    """Trace item with the input of a case, what was got, and what was expected."""
    data: dict[str, object] = {"got": shortened(_output(rollout), MAX_CHARS)}
    if expected := labels.expected_of(case):
        data["expected"] = shortened(expected, MAX_CHARS)
    return TraceItem(CASE, shortened(labels.input_of(case), MAX_CHARS), data)


def _output(rollout: Rollout) -> str:
    """The printed output, or the only file that was written."""
    if rollout.output.strip() or len(rollout.files) != 1:
        return rollout.output.strip()
    (content,) = rollout.files.values()
    return content.decode("utf-8", "replace").strip()
