"""Choices: their forms in data, and the one that an answer means, by hand."""

import pytest

from kept.evaluators.environments.answers import Choice, all_chosen, choices_in, chosen, labelled
from kept.evaluators.environments.chat_student import boxed

CHOICES = labelled(["40°", "$60$ degrees", "a boat", "None of these"])

CHOSEN = [
    # by hand: a letter, its signs apart; else the text of a choice; else a letter and a sign
    ("A", "A"), ("b", "B"), ("C.", "C"), ("(D)", "D"), (" d ) ", "D"), ("**B**", "B"), ("$C$", "C"),
    (r"\text{B}", "B"), (r"\boxed{\text{(C)}}", "C"), ("A:40°", "A"), ("B. 60", "B"),
    ("(C) a boat", "C"), ("40°", "A"), ("60 degrees", "B"), ("A boat.", "C"),
    ("none of  these", "D"),
    ("Option D", "D"), ("The answer is C", "C"), ("choice: a boat", "C"), ("`B`", "B"),
    ("The answer is:\nC", "C"), ("answer is : a  boat", "C"), ("the option\n B", "B"),
    # the article is no label, nor is a letter of no choice, nor two letters
    ("A bigger boat", ""), ("E", ""), ("E. none", ""), ("A and B", ""), ("AB", ""), ("", ""),
    ("40", ""), ("Because", ""), ("B60", ""), ("dog", ""),
]  # fmt: skip


@pytest.mark.parametrize(("said", "label"), CHOSEN)
def test_the_choice_that_an_answer_means(said: str, label: str):
    assert chosen(said, CHOICES) == label


@pytest.mark.parametrize(
    ("said", "label"), [("c", "C"), ("(F)", "F"), ("E: left", "E"), ("left", ""), ("3", "")]
)
def test_without_choices_any_letter_is_a_label(said: str, label: str):
    assert chosen(said, []) == label


def test_an_answer_of_signs_alone_is_not_the_choice_without_a_text():
    """Some published rows have choices whose text is missing."""
    assert chosen(".", labelled(["x", "", "z"])) == ""
    assert chosen("B", labelled(["x", "", "z"])) == "B"


LISTED = [
    ("C, D", "CD"), ("D and C", "CD"), ("c;d", "CD"), ("(C) (D)", "CD"), ("C\nD", "CD"),
    ("C & D", "CD"), (r"\text{C}, \text{D}", "CD"), ("C", "C"), ("A,B,C,D", "ABCD"), ("A, A", "A"),
    ("C. and D.", "CD"), ("C/D", "CD"), (r"\boxed{A, C}", "AC"), ("**A** and **C**", "AC"),
    ("C or D", ""), ("C, E", ""), ("CD", ""), ("both", ""), ("C: tan, D: cot", ""), ("", ""),
]  # fmt: skip


@pytest.mark.parametrize(("said", "labels"), LISTED)
def test_the_choices_that_an_answer_lists(said: str, labels: str):
    assert all_chosen(said, "ABCD") == frozenset(labels)


BOXED = [
    (r"\boxed{7}", "7"), (r"\boxed{1} or \boxed{2}", "2"), (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    (r"\boxed{\sqrt{\frac{1}{2}}}.", r"\sqrt{\frac{1}{2}}"), (r"\boxed {x}", "x"),
    (r"\boxed{ (4, 7) }", "(4, 7)"), (r"\boxed{}", ""), (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
    (r"\boxed{\boxed{B}}", r"\boxed{B}"), (r"\boxed{a} then \boxed{b", "a"),
    (r"\boxed{a \boxed{b}", "b"), (r"{ \boxed{c}", "c"), (r"} \boxed{d}", "d"),
    (r"$$\boxed{x^{2}}$$", "x^{2}"), ("\\boxed{two\nlines}", "two\nlines"),
    (r"\boxed{\left\{1\right\}}", r"\left\{1\right\}"), (r"\boxed{\text{C}}", r"\text{C}"),
    (r"boxed{7}", None), (r"\boxed{7", None), ("", None), (r"\boxed 7", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "inner"), BOXED)
def test_boxes_as_read_by_hand(text: str, inner: str | None):
    assert boxed(text) == inner


def test_many_open_boxes_take_no_time():
    assert boxed("\\boxed{" * 200_000) is None


@pytest.mark.parametrize(
    "value",
    [
        ["x", "y"],
        [{"label": "A", "text": "x"}, {"label": "b.", "content": "y"}],
        [{"text": "x"}, {"option": "y"}],
        {"B": "y", "A": "x"},
    ],
)
def test_every_form_of_choices_is_the_same(value: object):
    assert choices_in(value) == [Choice("A", "x"), Choice("B", "y")]


@pytest.mark.parametrize("value", [None, "x", 3])
def test_what_is_no_list_has_no_choices(value: object):
    assert choices_in(value) == []
