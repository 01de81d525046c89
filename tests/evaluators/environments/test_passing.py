"""What passes, and what an action is: read without a game."""

import asyncio
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.evaluators.environments.alfworld import Game, Players
from kept.evaluators.environments.chat_student import EnvScorer
from kept.evaluators.environments.ifeval import IfEval
from kept.evaluators.scorers.transforms import Passing
from kept.testing import MemoryJournal

DATA = Path(__file__).parent / "data" / "ifeval.jsonl"


def passed(output: str) -> Score | Failure:
    async def once() -> Score | Failure:
        case = next(iter(IfEval().read(DATA))).case
        job = Job("x", case.id, 0, "measure")
        scope = JournalScope(MemoryJournal(), job)
        scorer = Passing(EnvScorer(IfEval()))
        try:
            return await scorer.score(job, Rollout(output=output), Candidate({}), case, scope)
        finally:
            await scorer.close()

    return asyncio.run(once())


def test_a_case_that_is_solved_in_part_does_not_pass():
    """The original took a fraction for a success."""

    class Half(IfEval):
        def grade(self, case: Case, rollout: Rollout):
            from kept.evaluators.environments.base import Graded

            return Graded(0.5, 0.5, "half of it is missing")

    async def once() -> Score | Failure:
        job = Job("x", "c", 0, "measure")
        scope = JournalScope(MemoryJournal(), job)
        case = Case("c", {"prompt": "p", "instruction_id_list": [], "kwargs": []})
        return await Passing(EnvScorer(Half())).score(
            job, Rollout(output="x"), Candidate({}), case, scope
        )

    score = asyncio.run(once())
    assert isinstance(score, Score)
    assert (score.metrics["hard"], score.metrics["passed"]) == (0.5, 0)


def test_a_case_that_is_solved_passes():
    words = "rain " * 20
    score = passed(words)
    assert isinstance(score, Score)
    assert (score.metrics["hard"], score.metrics["passed"]) == (1, 1)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("I think so.\n<action>go to  sofa 1</action>", "go to sofa 1"),
        ("<action>look</action> no: <action>inventory</action>", "inventory"),
        ("<action>open drawer 1", "open drawer 1"),
        ("I will look.\nlook", "look"),
    ],
)
def test_an_action_is_what_the_student_says(said: str, action: str):
    assert _game()._action(said) == action


@pytest.mark.parametrize("said", ["I would look around.", "<action> </action>", "go to Mars"])
def test_what_is_no_action_is_never_one(said: str):
    """The original played `look` for it."""
    failure = _game()._action(said)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("parse", "candidate")


def _game() -> Game:
    game = Game(Path("none"), 5, Players(1, 1.0))
    game._possible = ["look", "inventory"]
    return game
