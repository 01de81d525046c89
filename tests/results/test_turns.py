"""What the report and `kept show` tell of several proposers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

import kept
from kept.results.steps import step_detail
from kept.results.summary import summary
from kept.store.reader import Run
from kept.ui.cli._render import run_text, step_text
from kept.ui.report.json import as_json
from kept.ui.report.markdown import markdown
from tests.ui.report.runs import make_run

STEPS = 16


def adding(word: str) -> Callable[[kept.Brief], str]:
    def propose(brief: kept.Brief) -> str:
        return f"{brief.incumbent.text}{word} {brief.step}\n"

    propose.__name__ = word
    return propose


def score(candidate: kept.Candidate) -> float:
    return candidate.text.count("good") - candidate.text.count("bad")


def run_of(folder: Path, schedule: Literal["bandit", "in_turn"] = "bandit") -> Run:
    result = kept.optimize(
        "seed\n",
        score,
        proposers=[adding("good"), adding("bad")],
        schedule=schedule,
        gate="strict",
        budget=STEPS,
        width=1,
        home=folder / ".kept",
    )
    return Run(result.folder)


def test_turns_keeps_and_shares_of_each_proposer_are_told(tmp_path: Path):
    run = run_of(tmp_path)
    good, bad = summary(run).turns
    assert (good.proposer, bad.proposer) == ("good", "bad")
    assert good.turns + bad.turns == STEPS
    assert (good.keeps, bad.keeps) == (good.turns, 0)
    assert good.gain == good.turns
    assert good.share is not None
    assert bad.share is not None
    assert good.share > 0.7 > bad.share >= 0.1
    text, page, document = run_text(summary(run)), markdown(run), as_json(run)
    assert f"turns      good {good.turns} ({good.keeps} in what was kept, share " in text
    assert f"bad {bad.turns} (none in what was kept, share " in text
    rows = page.partition("## Who proposed\n")[2].partition("\n## ")[0]
    assert f"| good | {good.turns} | 0 | {good.keeps} |" in rows
    assert f" | {100 * good.share:.0f} % |" in rows
    assert [row["proposer"] for row in document["turns"]] == ["good", "bad"]
    drawn = step_text(step_detail(run, STEPS - 1), traces=False)
    assert "drawn by   good " in drawn
    first = step_detail(run, 0)
    assert "drawn by" not in step_text(first, traces=False)
    assert "builds on" not in step_text(first, traces=False)
    child = replace(first, turn=replace(first.turn, parent=3))
    assert "builds on  step 3, a near miss" in step_text(child, traces=False)


def test_in_turn_there_are_no_shares_to_tell(tmp_path: Path):
    run = run_of(tmp_path, "in_turn")
    assert [(row.turns, row.share) for row in summary(run).turns] == [(STEPS // 2, None)] * 2
    assert "share" not in run_text(summary(run))
    assert "share" not in markdown(run).partition("## Who proposed\n")[2].partition("\n## ")[0]


def test_of_one_proposer_nothing_is_told_apart(tmp_path: Path):
    run = make_run(tmp_path)
    assert summary(run).turns == ()
    assert "Who proposed" not in markdown(run)


def test_a_schedule_that_is_none_is_refused():
    with pytest.raises(kept.SetupError, match="`schedule` is 'random', not a schedule"):
        kept.optimize("a", score, proposers=["b"], schedule="random")  # pyright: ignore[reportArgumentType] # on purpose
