from pathlib import Path

import pytest

from kept.core.case import Case
from kept.core.rollout import Rollout
from kept.evaluators.environments.base import Graded
from kept.evaluators.environments.qa import Bbh, same
from kept.testing import EnvironmentSuite
from tests.evaluators.environments.shared import shared

DATA = Path(__file__).parent / "data" / "bbh"


class TestBbh(EnvironmentSuite):
    def make_env(self):
        return Bbh()

    def data(self):
        return DATA

    def solving(self, case: Case):
        target = Bbh().about(case).reference
        return [f"Let me think.\n<answer>{target}.</answer>"]

    def failing(self, case: Case):
        return ["<answer>maybe</answer>"]


@pytest.mark.parametrize(
    ("answer", "target", "is_same"),
    [
        ("(B)", "(B)", True),
        ("B", "(B)", True),
        ("b) 12/25/1937", "(B)", True),
        ("It is (A), no, (B)", "(B)", True),
        ("(A)", "(B)", False),
        ("Because", "(B)", False),
        ("yes", "Yes", True),
        ("**No**.", "No", True),
        ("No way", "No", False),
        ("8", "8", True),
        ("18", "8", False),
        ("apple  fig pear", "apple fig pear", True),
        ("fig apple pear", "apple fig pear", False),
        ("] ) >", "] ) >", True),
    ],
)
def test_an_answer_is_compared_as_what_the_target_is(answer: str, target: str, is_same: bool):
    assert same(answer, target) is is_same


def test_the_file_is_the_type_of_a_case():
    cases = {case.id: Bbh().about(case).type for case, _ in Bbh().read(DATA)}
    assert cases["boolean_expressions-2"] == "boolean_expressions"
    assert cases["word_sorting-1"] == "word_sorting"


def test_words_in_the_wrong_order_are_right_in_part_only():
    case = next(case for case, _ in Bbh().read(DATA) if case.id == "word_sorting-1")
    graded = Bbh().grade(case, Rollout(output="fig apple plum"))
    assert isinstance(graded, Graded)
    assert graded.hard == 0
    assert graded.soft == pytest.approx(2 / 3)


def test_every_real_target_solves_its_own_puzzle():
    env = Bbh()
    items = list(env.read(shared("bbh")))
    assert len(items) == 1187
    for case, _ in items:
        graded = env.grade(case, Rollout(output=f"<answer>{env.about(case).reference}</answer>"))
        assert isinstance(graded, Graded)
        assert graded.hard == 1, case.id
