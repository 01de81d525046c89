import asyncio

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope, Scorer
from kept.core.rollout import FREE, Failure, Job, Rollout, Usage
from kept.core.score import Finding, Score
from kept.evaluators.runners.function import RecordedScorer
from kept.evaluators.scorers.composite import CompositeScorer, Part
from kept.testing import ScorerSuite
from tests.evaluators.scorers.scoring import score


class Says:
    """Always the same."""

    def __init__(self, said: Score | Failure) -> None:
        self.said = said
        self.closed = 0

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        return self.said

    async def close(self) -> None:
        self.closed += 1


class Asks:
    """Makes a call of its own, as a judge does."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        reply = await scope.call("what of it?", Reply, lambda: asyncio.sleep(0, Reply()))
        return reply if isinstance(reply, Failure) else Score({"score": 1.0})

    async def close(self) -> None:
        pass


class Reply:
    usage: Usage = FREE


def says(**metrics: float) -> Says:
    return Says(Score(metrics))


class TestCompositeScorer(ScorerSuite):
    def make_scorer(self) -> Scorer:
        parts = (Part("a", RecordedScorer(), 1.0, "x"), Part("b", says(score=0.5), 3.0))
        return CompositeScorer(parts)

    def rollouts(self) -> list[Rollout]:
        return [Rollout(metrics={"x": 1.0}), Rollout(metrics={"x": 0.0, "y": 2.0})]


def test_the_score_is_the_weighted_mean_and_measures_carry_the_names_of_their_parts():
    style = Says(Score({"score": 0.5, "words": 9}, (Finding("dull", "low", "words"),)))
    scorer = CompositeScorer((Part("style", style, 1.0), Part("facts", says(score=1.0), 3.0)))
    assert score(scorer, Rollout(metrics={"seconds": 2.0})) == Score(
        {
            "seconds": 2.0,
            "score": 0.875,
            "style.score": 0.5,
            "style.words": 9,
            "facts.score": 1.0,
        },
        (Finding("style: dull", "low", "style.words"),),
    )


@pytest.mark.parametrize(
    ("bounds", "raw", "counted"),
    [
        (None, 7.0, 7.0),
        ((0.0, 10.0), 7.0, 0.7),
        ((0.0, 10.0), 12.0, 1.0),
        ((100.0, 0.0), 25.0, 0.75),
        ((100.0, 0.0), 250.0, 0.0),
    ],
)
def test_a_measure_counts_as_it_is_or_between_bounds(
    bounds: tuple[float, float] | None, raw: float, counted: float
):
    said = score(CompositeScorer((Part("p", says(ms=raw), 2.0, "ms", bounds),)))
    assert said == Score({"p.ms": raw, "score": counted})


def test_what_a_part_only_passes_on_is_not_said_twice():
    scorer = CompositeScorer((Part("a", RecordedScorer(), 1.0, "x"),))
    assert score(scorer, Rollout(metrics={"x": 1.0})) == Score({"x": 1.0, "score": 1.0})


def test_a_part_that_fails_fails_the_whole_and_is_named():
    broken = Says(Failure("rate_limit", "infrastructure", "429", "later"))
    scorer = CompositeScorer((Part("ok", says(score=1.0)), Part("judge", broken)))
    assert score(scorer) == Failure("rate_limit", "infrastructure", "part `judge`: 429", "later")


def test_a_part_without_its_measure_is_a_broken_harness():
    failure = score(CompositeScorer((Part("p", says(other=1.0)),)))
    assert failure == Failure(
        "harness",
        "infrastructure",
        "part `p`: it did not emit `score` (it emitted `other`)",
    )


def test_parts_that_ask_the_same_thing_do_not_share_an_answer():
    scorer = CompositeScorer((Part("a", Asks()), Part("b", Asks())))
    assert score(scorer) == Score({"a.score": 1.0, "b.score": 1.0, "score": 1.0})


def test_closing_closes_every_part():
    parts = says(score=1), says(score=2)
    asyncio.run(CompositeScorer(tuple(Part(str(n), p) for n, p in enumerate(parts))).close())
    assert [part.closed for part in parts] == [1, 1]
