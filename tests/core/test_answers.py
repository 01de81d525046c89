"""What a look makes of one side's answers."""

from statistics import pstdev

import pytest

from kept.core.rollout import Pair
from kept.core.score import NO_ANSWERS, Answers

FOUND = Answers({Pair("b", 0): -1.0, Pair("a", 0): 0.0, Pair("b", 1): -0.5, Pair("b", 2): 0.0})


def test_a_case_counts_by_its_own_mean_in_the_order_of_first_answers():
    assert [*FOUND.by_case.items()] == [("b", -0.5), ("a", 0.0)]


def test_the_spread_is_that_of_one_answer_over_cases_and_repeats():
    assert FOUND.spread == pytest.approx(pstdev(FOUND.values()))
    assert Answers({Pair("a", 0): 3.0}).spread == NO_ANSWERS.spread == 0.0


def test_repeats_are_alike_until_one_of_a_case_differs():
    same = {Pair(case, n): len(case) / 3 for case in ("a", "bb") for n in range(3)}
    assert Answers(same).alike
    assert not Answers({**same, Pair("bb", 3): 0.7}).alike
    assert not FOUND.alike
    assert NO_ANSWERS.alike
