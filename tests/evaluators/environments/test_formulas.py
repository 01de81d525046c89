"""Formulas and choices as MathVerse writes them, by hand; and all of its published text rows."""

import json

import pytest

from kept.evaluators.environments.answers import choices_of, same_formula
from tests.evaluators.environments.shared import shared

FORMULAS = [
    # by hand: the same but for dollars, upright text, TeX's blanks, single braces and case
    ("14", "14", True), ("$14$", "14", True), (" 14 ", "14", True), ("14.", "14", True),
    ("$$r=7.00$$", "r = 7.00", True), (r"113.1 \mathrm{~cm}^{2}", "113.1 cm^2", True),
    (r"4\sqrt{6}", r"4 \sqrt6", True), (r"\frac{1}{2}", r"\frac12", True),
    (r"\dfrac{\pi}{2}", r"\frac{\pi}{2}", True), (r"62^\circ ", "62°", True),
    (r"62^{\circ}", "62°", True),
    ("118掳T", r"118^\circ T", True), ("S 23.5° W", "s 23.5 ° w", True),
    (r"\left(\frac{1}{2}, 3\right)", r"(\frac{1}{2},3)", True), ("y=-2 x+5", "y = -2x + 5", True),
    (r"2\,500", "2 500", True), (r"4.6~m", "4.6 m", True),
    (r"\text{No solution}", "no solution", True),
    (r"x^{2}+y^{2}=49", "x^2+y^2=49", True), ("(-3, -3)", "(-3,-3)", True),
    # braces round several signs, and blanks between numbers or words, mean something
    (r"\frac{1}{23}", r"\frac{12}{3}", False), ("x^{12}", "x^{1}2", False),
    ("1 2", "12", False), ("a b", "ab", False), ("(3,-3)", "(-3,-3)", False), ("14", "14.0", False),
    ("0.5", r"\frac{1}{2}", False),
    ("14 cm", "14", False), ("-14", "14", False), ("1.4", "14", False),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "same"), FORMULAS)
def test_formulas_as_compared_by_hand(one: str, other: str, same: bool):
    assert same_formula(one, other) is same
    assert same_formula(other, one) is same


CHOICES = [
    # by hand: letters in order behind the last head, at the beginnings of lines or in one
    ("q?\nChoices:\nA:40°\nB:60°", "40°|60°"), ("q?\nChoices:\nA. x\nB. y\nC. z", "x|y|z"),
    ("q?\nChoice:\nA. True\nB. False", "True|False"), ("q?\nChoices:\nA) x\nB) y", "x|y"),
    ("q?\nChoices:\n(A) x\n(B) y", "x|y"), ("q?\nChoices: A:1 B:2 C:3 D:4", "1|2|3|4"),
    ("q?\nChoices: (A) 1 (B) 2", "1|2"), ("q?\nChoices:\nA : x \nB : y ", "x|y"),
    ("q?\nChoices:\nA.two\nlines\nB.one", "two\nlines|one"), ("q?\nChoices:\nA.x\nB.\nC.z", "x||z"),
    ("q?\nChoices:\nA:point C: no\nB:y\nC:z", "point C: no|y|z"), ("CHOICES:\nA:1\nB:2", "1|2"),
    ("q?\nChoices:\nA:at B. or so\nB:y", "at B. or so|y"), ("Choices:\nA:1\nB:2\nA:3", "1|2\nA:3"),
    ("Choices:\nA:1\nB:2\nChoices:\nA:3\nB:4", "3|4"),
    ("Choices:\nA:x=1\nB:x=2\nD:x=3", "x=1|x=2\nD:x=3"),
    ("How far is A:B?", ""), ("q?\nChoices:\nnone", ""), ("q?\nChoices:\nA:1", ""), ("", ""),
    ("You have choices: many", ""), ("q? A:1 B:2", ""),
]  # fmt: skip


@pytest.mark.parametrize(("question", "texts"), CHOICES)
def test_choices_as_read_by_hand(question: str, texts: str):
    found = choices_of(question)
    assert [one.text for one in found] == (texts.split("|") if texts else [])
    assert [one.label for one in found] == [*"ABCDEFGH"][: len(found)]


def test_all_choices_of_the_published_rows_are_found():
    rows = json.loads(shared("mathverse", "testmini_text_only.json").read_text())
    choices = {row["problem_index"]: choices_of(row["question"]) for row in rows}
    for row in rows:
        asked = row["question_type"] == "multi-choice"
        assert (len(choices[row["problem_index"]]) > 1) == asked, row["question"]
    assert [one.text for one in choices["429"]] == ["True", "False"], "behind `Choice:`"
    assert len(choices["528"]) == 6
