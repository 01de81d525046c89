"""The headline with its cases, and the sentence that says what may be concluded."""

from dataclasses import replace
from pathlib import Path

import pytest

from kept.report.document import headline
from kept.report.outlook import conclusion
from kept.report.page import markdown
from kept.report.summary import Summary, summary
from kept.report.words import headline_words
from tests.report.runs import make_run


@pytest.fixture
def told(tmp_path: Path) -> Summary:
    """A run that was kept on 30 holdout cases, by a race."""
    with make_run(tmp_path) as run:
        found = summary(run)
    sizes = {"train": 10, "holdout": 30, "test": 12}
    return replace(found, gate="race", cases=sizes, measured="12 test cases", claim="x")


@pytest.mark.parametrize(
    ("gain", "low", "high", "words"),
    [
        (0.25, 0.1, 0.4, ", and by 0.1 to 0.4 on 12 test cases that nothing was tuned on."),
        (0.1, -0.1, 0.3, "; 12 test cases are too few to say by how much: add about 40."),
        (0.1, None, None, "; 12 test cases are too few to say by how much: add about 12."),
        (0.0, -0.2, 0.2, "; 12 test cases show no gain: add more before you rely on it."),
        (-0.3, -0.5, -0.1, ", but worse on 12 test cases: compare both on more cases before you adopt it."),  # noqa: E501
        (None, None, None, "; the 12 test cases were not read, so nothing says by how much."),
    ],
)  # fmt: skip
def test_a_gain_is_told_with_what_the_test_cases_say(
    told: Summary, gain: float | None, low: float | None, high: float | None, words: str
):
    found = replace(told, claim_gain=gain, claim_low=low, claim_high=high)
    assert conclusion(found) == f"Better on the 30 holdout cases{words}"


def test_without_a_test_split_the_cases_that_chose_are_named(told: Summary):
    found = replace(told, cases={"holdout": 30}, gate="strict")
    assert conclusion(found) == (
        "Better in one evaluation on the 30 holdout cases, which also chose it: add test cases to "
        "say by how much."
    )
    assert conclusion(replace(told, cases={})).startswith("Better in the runs made here; without")


def test_nothing_better_is_told_too(told: Summary):
    found = replace(told, best=told.seed)
    assert conclusion(found) == (
        "No proposal was shown to be better than the seed on the 30 holdout cases."
    )
    assert conclusion(replace(found, status="interrupted")) == ""
    assert conclusion(replace(found, recipe="suite")) == ""


def test_a_headline_names_the_cases_that_its_figures_are_from(tmp_path: Path):
    with make_run(tmp_path) as run:
        found, page = summary(run), markdown(run)
    assert headline_words(found) == "score 0.1 → 0.3 on 5 holdout cases"
    assert headline(found)["measured_on"] == "5 holdout cases"
    assert conclusion(found) in page
    assert headline(found)["conclusion"] == conclusion(found)
    # the figures of the table are told apart from those of the headline
    assert "| `score` on the cases that decide |" in page


def test_a_proposer_is_told_with_its_part_in_what_was_kept_and_not_with_verdicts():
    from kept.report.turns import Turns, turns_words

    rows = (
        Turns("edit", 11, 5, 3, 0.2, 9, 0.0, None),
        Turns("variants", 3, 1, 0, 0.0, 9, 0.0, None),
    )
    assert turns_words(rows) == "edit 11 (3 in what was kept), variants 3 (none in what was kept)"
