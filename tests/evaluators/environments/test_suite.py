"""The suite of environments is shown broken ones, and names what is wrong with each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import NO_FILES, Failure, Job, Rollout, TraceItem
from kept.evaluators.environments.base import (
    About,
    Environment,
    Episode,
    Graded,
    Item,
    OneReply,
    Posed,
    Turn,
)
from kept.evaluators.environments.jsonl import Jsonl
from kept.testing import EnvironmentSuite
from tests.evaluators.environments.test_jsonl import DATA
from tests.testing.test_suites import failing_tests

LONG = "the capital that was expected here, as everybody knows: "


@dataclass(frozen=True)
class Sound(Jsonl):
    question_field: str = "ask"
    answer_field: str = "gold"


class Twice(Sound):
    """Reads every case two times."""

    def read(self, path: Path) -> Iterable[Item]:
        return [*super().read(path), *super().read(path)]


_numbers = count()


class Restless(Sound):
    """Calls its cases by another name each time."""

    def read(self, path: Path) -> Iterable[Item]:
        return [
            one._replace(case=replace(one.case, id=f"{next(_numbers)}"))
            for one in super().read(path)
        ]


class Telling(Sound):
    """Says what is expected: in the prompt, and in what it finds."""

    def pose(self, case: Case) -> Posed:
        return Posed(f"{super().pose(case).prompt} {self.about(case).reference}")

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        graded = super().grade(case, rollout)
        if isinstance(graded, Failure) or graded.hard == 1:
            return graded
        return replace(graded, why=self.about(case).reference)

    def about(self, case: Case) -> About:
        told = super().about(case)
        return About(told.task, reference=LONG + told.reference)


class Generous(Sound):
    """Finds everything right, and more than right."""

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        return Graded(1.0, 2.0)


class Silent(Sound):
    """Has nothing to say: of a case, and why one fails."""

    def about(self, case: Case) -> About:
        return About("")

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        graded = super().grade(case, rollout)
        return graded if isinstance(graded, Failure) else replace(graded, why="")


class Odd(Sound):
    """Tells of a case in a way that nobody can show."""

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        class Strange(OneReply):
            async def answer(
                self, said: str, files: Mapping[str, bytes] = NO_FILES
            ) -> Turn | Failure:
                return Turn(item=TraceItem("dance", said), output=said)

        return Strange(self.pose(case))


BROKEN = [
    (Twice, "test_it_reads_the_same_cases_each_time"),
    (Restless, "test_it_reads_the_same_cases_each_time"),
    (Telling, "test_posing_gives_nothing_away"),
    (Telling, "test_a_case_that_is_not_solved_says_why"),
    (Generous, "test_a_case_that_is_not_solved_says_why"),
    (Generous, "test_a_solved_case_is_hard_one"),
    (Silent, "test_an_analyst_is_told_of_every_case"),
    (Silent, "test_a_case_that_is_not_solved_says_why"),
    (Odd, "test_the_trace_can_be_rendered"),
]


def suite_of(env: Environment) -> EnvironmentSuite:
    class Of(EnvironmentSuite):
        def make_env(self):
            return env

        def data(self):
            return DATA

        def solving(self, case: Case):
            return [f"<answer>{Sound().about(case).reference}</answer>"]

        def failing(self, case: Case):
            return ["<answer>Atlantis</answer>"]

    return Of()


def test_a_sound_environment_passes():
    assert failing_tests(suite_of(Sound())) == set()


@pytest.mark.parametrize(("made", "told"), BROKEN)
def test_a_broken_environment_is_caught(made: type[Sound], told: str):
    assert told in failing_tests(suite_of(made()))
