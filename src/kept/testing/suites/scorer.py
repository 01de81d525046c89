"""What every scorer must do, whatever it measures."""

import asyncio
import math
from collections.abc import Sequence

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.scope import JournalScope
from kept.testing.journal import MemoryJournal


class ScorerSuite:
    """Subclass it, make a scorer, and give rollouts that it can measure."""

    def make_scorer(self) -> Scorer:
        """A scorer to test."""
        raise NotImplementedError

    def rollouts(self) -> Sequence[Rollout]:
        """What it is to measure."""
        raise NotImplementedError

    def strange_rollouts(self) -> Sequence[Rollout]:
        """What nobody expected; to be measured or refused, but never with an exception."""
        return (Rollout(), Rollout(output="\x00{[\ufffd"), Rollout(files={"out.json": b"\xff"}))

    def candidate(self) -> Candidate:
        """What was executed."""
        return Candidate({"text": "a text\n"})

    def case(self) -> Case:
        """What it was executed on."""
        return Case("case", {"question": "1 + 1", "answer": "2"})

    def test_a_rollout_is_scored(self) -> None:
        """By at least one measure, and measures are numbers."""
        for rollout in self.rollouts():
            score = self._score_afresh(rollout)
            assert isinstance(score, Score), f"not a score: {score}"
            assert score.metrics, "a score has a measure"
            assert all(math.isfinite(value) for value in score.metrics.values()), score

    def test_the_same_rollout_gets_the_same_score(self) -> None:
        """From the same scorer, and from a fresh one."""
        used = self.make_scorer()
        for rollout in (*self.rollouts(), *self.strange_rollouts()):
            first = self._score(used, rollout)
            assert self._score(used, rollout) == first, "asked again, it says something else"
            assert self._score_afresh(rollout) == first, "a fresh one differs"
        asyncio.run(used.close())

    def test_the_unexpected_is_a_score_or_a_failure(self) -> None:
        """Never an exception, and a failure says what happened."""
        for rollout in self.strange_rollouts():
            score = self._score_afresh(rollout)
            assert isinstance(score, Score | Failure), f"neither score nor failure: {score}"
            assert isinstance(score, Score) or score.message, "a failure says what happened"

    def test_the_rollout_stays_as_it_is(self) -> None:
        """Others read it too."""
        for rollout in self.rollouts():
            metrics, files = dict(rollout.metrics), dict(rollout.files)
            self._score_afresh(rollout)
            assert (dict(rollout.metrics), dict(rollout.files)) == (metrics, files)

    def test_closing_twice_is_closing_once(self) -> None:
        """And closing one that was never used is no error either."""
        scorer = self.make_scorer()
        asyncio.run(scorer.close())
        asyncio.run(scorer.close())

    def _score_afresh(self, rollout: Rollout) -> Score | Failure:
        scorer = self.make_scorer()
        try:
            return self._score(scorer, rollout)
        finally:
            asyncio.run(scorer.close())

    def _score(self, scorer: Scorer, rollout: Rollout) -> Score | Failure:
        candidate, case = self.candidate(), self.case()
        job = Job(candidate.id, case.id, 0, "decide")
        scope = JournalScope(MemoryJournal(), job)
        return asyncio.run(scorer.score(job, rollout, candidate, case, scope))
