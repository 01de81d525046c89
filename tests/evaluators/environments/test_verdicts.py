"""A judge of short answers: what it is asked, and how its reply is read."""

import pytest

from kept.core.rollout import Failure
from kept.evaluators.environments.answers import LONGEST, judged, verdict
from kept.evaluators.environments.base import Graded, JudgeQuestion

VERDICTS = [
    # by hand: the one word that stands in the reply, unless it is negated
    ("True", True), ("true.", True), ("TRUE", True), ("**True**", True), ("Verdict: True", True),
    ("True, both say seven.", True), ("True\nTrue", True), ("<answer>True</answer>", True),
    ('{"correct": true}', True), ("It is true", True),
    ("False", False), ("false!", False), ("FALSE", False), ("`False`", False),
    ("It says six. False", False), ('{"correct": false}', False),
    ("not true", None), ("That is not  True.", None), ("True or False", None),
    ("False. It is true that", None), ("untrue", None), ("yes", None), ("", None),
    ("falsehood", None),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "expected"), VERDICTS)
def test_verdicts_as_read_by_hand(reply: str, expected: bool | None):
    assert verdict(reply) is expected


def question(answer: str = "six") -> JudgeQuestion:
    made = judged("How many?", ["seven", "7"], answer)
    assert isinstance(made, JudgeQuestion)
    return made


def test_a_judge_sees_question_expected_answers_and_the_answer():
    *_, asked = question().request.messages
    for part in ("How many?", "seven | 7", "six", "True or False"):
        assert part in asked.text


def test_the_grade_that_a_verdict_means():
    assert question().read("True") == Graded(1.0, 1.0, told="judge: True")
    no = question().read("False")
    assert isinstance(no, Graded) and (no.hard, no.soft) == (0.0, 0.0)
    assert no.why == "`six` is not the answer that was expected"
    without = question().fallback
    assert isinstance(without, Graded) and without.hard == 0


def test_a_reply_without_a_verdict_is_no_zero_and_not_the_students_fault():
    failure = question().read("That depends.")
    assert isinstance(failure, Failure)
    assert (failure.blame, failure.retryable) == ("infrastructure", False)


def test_an_answer_of_many_pages_is_sent_to_no_judge():
    failure = judged("How many?", ["seven"], "x" * (LONGEST + 1))
    assert isinstance(failure, Failure) and failure.blame == "candidate"
