"""The facts that every view of a run shows."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import kept
from kept.core.text import one_line
from kept.results.summary import summary
from kept.store.reader import Run
from kept.ui.cli._render import run_text
from kept.ui.report.format import duration, number, verdict_counts
from kept.ui.report.json import as_json
from kept.ui.report.markdown import caveats, markdown
from tests.ui.report.runs import cut, make_run


def test_a_summary_has_what_the_run_came_to(tmp_path: Path):
    told = summary(make_run(tmp_path))
    assert (told.seed_value, told.best_value) == (pytest.approx(0.1), pytest.approx(0.3))
    assert told.improved
    assert told.best_step == 3
    assert [step.outcome for step in told.steps] == ["discard", "keep", "crash", "keep", "skip"]
    assert told.cases == {"train": 3, "holdout": 5, "test": 2}
    assert told.budget == {"max_iterations": 50}
    assert told.status == "finished"
    assert not told.resumable


def test_a_crash_has_no_value_though_it_counts_as_the_worst(tmp_path: Path):
    told = summary(make_run(tmp_path))
    assert told.steps[2].outcome == "crash"
    assert told.steps[2].value is None


def test_what_open_steps_used_is_part_of_the_spend(tmp_path: Path):
    whole = make_run(tmp_path)
    used = [summary(whole).spend.rollouts]
    killed = cut(whole, before_step=3)
    told = summary(killed)
    assert told.status == "killed"
    assert told.resumable
    assert told.open == (3,)
    assert told.spend.rollouts == used[0]
    assert killed.state.spend.rollouts < used[0]


def test_verdicts_are_counted_in_words(tmp_path: Path):
    told = summary(make_run(tmp_path))
    assert verdict_counts(told) == "2 kept, 1 discarded, 1 crashed; 1 turn proposed nothing"


def test_a_run_without_a_gain_is_not_improved(tmp_path: Path):
    told = summary(make_run(tmp_path, ["no\n"]))
    assert not told.improved
    assert told.best_step is None
    assert told.seed_value == told.best_value


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (12.4, "12 s"),
        (200, "3 m 20 s"),
        (7500, "2 h 05 m"),
        (30_000_000, "347 days"),
    ],
)
def test_durations_read_well(seconds: float, words: str):
    assert duration(seconds) == words


def test_numbers_read_as_in_verdicts():
    assert [number(value) for value in (2 / 3, -0.0, 12.0, None)] == [
        "0.666667",
        "0",
        "12",
        "no score",
    ]


def test_one_line_has_no_breaks_and_no_escapes():
    assert one_line("a\n  b\tc\x1b[31md") == "a b c�[31md"
    assert one_line("abcdef", 4) == "abc…"


def one_more(brief: kept.Brief) -> str:
    return f"{brief.incumbent.text}{brief.step}"


def test_rollouts_that_a_budget_made_moot_are_not_blamed_on_a_keep(tmp_path: Path):
    drawn = Random(1)

    async def chance(candidate: kept.Candidate, case: str) -> float:
        return drawn.random()

    result = kept.optimize(
        "a",
        chance,
        [str(n) for n in range(60)],
        proposers=[one_more],
        gate="race",
        bounds=(0, 1),
        budget=kept.Budget(max_rollouts=900),
        width=4,
        home=tmp_path,
    )
    with kept.read_run(result.folder) as run:
        told = summary(run)
        assert (told.keeps, told.spend.moot > 0) == (0, True)
        (line,) = [one for one in caveats(told) if one.startswith("Paid for and not used")]
    assert "because the budget did not last to the verdict of their step: " in line
    kept_one = replace(told, steps=(replace(told.steps[0], outcome="keep"), *told.steps[1:]))
    (line,) = [one for one in caveats(kept_one) if one.startswith("Paid for and not used")]
    assert "because an earlier step was kept meanwhile or the budget" in line


def test_what_an_outage_kept_from_being_measured_is_counted_in_every_view(tmp_path: Path):
    def evaluate(candidate: kept.Candidate, case: int) -> float:
        if candidate.text == "away\n":
            raise ConnectionError("nobody there")
        return candidate.text.count("good") / 10

    texts = ["good\ngood\n", "away\n", "no\n"]
    result = kept.optimize(
        "good\n", evaluate, range(10), proposers=texts, bounds=(0, 1), home=tmp_path, width=1
    )
    run = Run(result.folder)
    words = "1 proposal was never measured: there was no answer that counts"
    assert f"{words}." in caveats(summary(run))
    assert f"* {words}.\n" in markdown(run)
    assert as_json(run)["lost"] == 1
    assert f"warning    {words}\n" in run_text(summary(run)) + "\n"


def test_without_an_outage_nothing_is_said_of_one(tmp_path: Path):
    run = make_run(tmp_path)
    assert as_json(run)["lost"] == 0
    assert not any("outage" in line for line in caveats(summary(run)))
