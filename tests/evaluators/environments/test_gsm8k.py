from decimal import Decimal
from pathlib import Path

import pytest

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.base import Graded
from kept.evaluators.environments.qa import Gsm8k, number_in
from kept.testing import EnvironmentSuite
from tests.evaluators.environments.shared import shared

DATA = Path(__file__).parent / "data" / "gsm8k.jsonl"


class TestGsm8k(EnvironmentSuite):
    def make_env(self):
        return Gsm8k()

    def data(self):
        return DATA

    def solving(self, case: Case):
        number = {"gsm8k-1": "30", "gsm8k-2": "$5,000.00"}.get(case.id)
        return [f"Step by step, 7 and 8.\n<answer>{number}</answer>"]

    def failing(self, case: Case):
        return ["<answer>31</answer>"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so it is 12", "12"),
        ("first 3, then 4.", "4"),
        ("#### 1,234", "1234"),
        ("#### 72 clips, of 96", "72"),
        ("<answer>$18.00</answer> and 9", "18"),
        ("I think <answer>it is 5 of 7", "7"),
        ("-3 degrees", "-3"),
        ("it costs .5", "0.5"),
        ("1.50 dollars", "1.5"),
        ("it is 100.", "100"),
        ("0", "0"),
    ],
)
def test_the_number_of_a_text_is_found(text: str, number: str):
    assert number_in(text) == Decimal(number)


@pytest.mark.parametrize("text", ["none at all", "<answer>none</answer> 3", "", "#### ?"])
def test_a_text_without_a_number_has_none(text: str):
    assert number_in(text) is None


def test_a_reply_without_a_number_is_a_failure_and_no_zero():
    case = next(iter(Gsm8k().read(DATA))).case
    graded = Gsm8k().grade(case, Rollout(output="I cannot tell"))
    assert isinstance(graded, Failure)
    assert (graded.kind, graded.blame) == ("parse", "candidate")


def test_numbers_are_compared_as_numbers():
    case = list(Gsm8k().read(DATA))[1].case
    graded = Gsm8k().grade(case, Rollout(output="5000.0"))
    assert isinstance(graded, Graded)
    assert graded.hard == 1


def test_every_real_answer_solves_its_own_problem():
    env = Gsm8k()
    items = list(env.read(shared("gsm8k")))
    assert len(items) == 800
    for case, _ in items:
        graded = env.grade(case, Rollout(output=env.about(case).reference))
        assert isinstance(graded, Graded)
        assert graded.hard == 1, case.id
