"""The headline with its cases, and the sentence that says what may be concluded."""

from dataclasses import replace
from pathlib import Path

import pytest

import kept
from kept.core.schedules.round_robin import OF_THE_RUN
from kept.results.summary import Summary, summary
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.cli._render import run_text
from kept.ui.report.format import headline_words, verdict_counts
from kept.ui.report.json import headline
from kept.ui.report.markdown import markdown
from kept.ui.report.race import conclusion
from kept.ui.web.app import run_view
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked, outcome_of, verdicts
from kept.ui.web.templates import Links, environment, render
from tests.ui.report.runs import make_run


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
        (0.25, 0.1, 0.4, ", and by 0.100 to 0.400 on 12 test cases that nothing was tuned on."),
        (0.1, -0.1, 0.3, "; 12 test cases are too few to say by how much: add about 90."),
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


def is_seed(text: str, case: int) -> float:
    return float(text == "seed")


def alike(text: str) -> float:
    return 0.5


def longer(brief: kept.Brief) -> str:
    return f"longer {brief.seed}"


def test_a_run_whose_proposals_met_train_cases_alone_says_so(tmp_path: Path):
    result = kept.optimize(
        "seed",
        is_seed,
        range(40),
        proposers=[longer],
        budget=4,
        bounds=(0, 1),
        gate="race",
        home=tmp_path,
    )
    assert not result.improved
    assert result.conclusion == (
        "No proposal did well enough on the 12 train cases to be tried on the 20 holdout cases."
    )


def test_the_cases_of_a_final_are_the_same_in_headline_and_conclusion(tmp_path: Path):
    result = kept.optimize(
        "seed",
        alike,
        range(40),
        proposers=["one text", "another text"],
        bounds=(0, 1),
        gate="race",
        home=tmp_path,
    )
    assert "(0.5 on 32 train and holdout cases)" in str(result)
    assert result.conclusion == (
        "No proposal was shown to be better than the seed on the 32 train and holdout cases."
    )


def test_a_headline_names_the_cases_that_its_figures_are_from(tmp_path: Path):
    with make_run(tmp_path) as run:
        found, page = summary(run), markdown(run)
    assert headline_words(found) == "score 0.1 → 0.3 on 5 holdout cases"
    assert headline(found)["measured_on"] == "5 holdout cases"
    assert conclusion(found) in page
    assert headline(found)["conclusion"] == conclusion(found)
    assert "| `score` on the 5 holdout cases |" in page


def raced(tmp_path: Path) -> Path:
    """A run in which a merge is kept, one turn proposes nothing, and the claim is made."""

    def score(text: str, case: int) -> float:
        return ("good" in text) / 2 + (case % 7) / 20 + ("kind" in text) / 4

    texts = iter(["good", "kind"])

    def one_of_two(brief: kept.Brief) -> str | None:
        return next(texts, None)

    result = kept.optimize(
        "seed",
        score,
        range(60),
        proposers=[one_of_two, "bad"],
        bounds=(0, 2),
        budget=6,
        home=tmp_path,
    )
    assert result.improved
    return result.folder


def test_counts_of_proposals_and_turns_add_up(tmp_path: Path):
    folder = raced(tmp_path)
    with Run(folder) as run:
        told, page, steps = summary(run), markdown(run), run.state.history
    by_proposers = [step for step in steps if step.turn.proposer not in OF_THE_RUN]
    assert sum(row.turns for row in told.turns) == len(by_proposers)
    assert told.proposals + told.empty_turns == len(by_proposers)
    assert told.merges == 1, "the claim and the test are neither proposals nor empty turns"
    shown = run_text(told)
    assert f"proposals  {told.proposals} and 1 merge: 1 kept" in shown
    assert f"{told.proposals} proposals and 1 merge: 1 kept" in page
    assert headline(told)["proposals"] == told.proposals


def test_the_page_of_a_run_says_what_the_terminal_says(tmp_path: Path):
    folder = raced(tmp_path)
    with Run(folder) as run:
        told = summary(run)
    glance = Glance(folder).refresh()
    assert glance.values == (told.seed_value, told.best_value)
    assert glance.measured_on == told.measured
    assert "test cases" in told.measured
    assert conclusion(outcome_of(glance)) == conclusion(told)
    assert verdicts(glance) == verdict_counts(told)
    kind, links = kind_of(glance.begun.recipe), Links()
    with Run(folder) as run:
        page = render(
            environment(), kind.template, links, **run_view(run, glance, kind, links, Asked())
        )
    assert f"on {told.measured}" in page
    assert conclusion(told) in page
    assert "line and filled marks: on the 30 holdout cases" in page
    assert "6 of 6 iterations" in page, "the merges and the test come after the last iteration"


def test_figures_that_chose_a_candidate_are_told_apart_from_those_of_the_title(tmp_path: Path):
    with Run(raced(tmp_path)) as run:
        page = markdown(run)
    assert "These figures decided which candidates were kept, so they are optimistic. " in page
    assert "Those of the title chose nothing: they are from 12 test cases, drawn anew." in page


def test_a_proposer_is_told_with_its_part_in_what_was_kept_and_not_with_verdicts():
    from kept.results.summary import Turns, turns_words

    rows = (
        Turns("edit", 11, 5, 3, 0.2, 9, 0.0, None),
        Turns("variants", 3, 1, 0, 0.0, 9, 0.0, None),
    )
    assert turns_words(rows) == "edit 11 (3 in what was kept), variants 3 (none in what was kept)"
