"""The task for the model on this machine: its data, and that a run of it finds what is better."""

import asyncio
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from kept.core.case import Case, Cases, find_overlaps
from kept.proposers.variants import Variants
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.demo import REVIEWS

LINES = (REVIEWS / "cases.jsonl").read_text(encoding="utf-8").splitlines()
ROWS: list[dict[str, str]] = [json.loads(line) for line in LINES]


def test_there_are_enough_reviews_of_every_kind_and_label():
    assert len(ROWS) >= 150
    assert Counter(row["label"] for row in ROWS) == {"positive": 81, "negative": 81}
    assert Counter((row["kind"], row["label"]) for row in ROWS).most_common()[-1][1] == 27
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def test_no_two_reviews_are_nearly_the_same():
    cases = [Case(row["id"], row["review"]) for row in ROWS]
    # every review is beside every other one in one of the ways to cut them in two
    for bit in range(8):
        halves = Cases(
            train=tuple(case for at, case in enumerate(cases) if at >> bit & 1),
            holdout=tuple(case for at, case in enumerate(cases) if not at >> bit & 1),
        )
        assert find_overlaps(halves, threshold=0.3) == []


def test_the_task_is_in_order_and_warns_of_nothing(tmp_path: Path):
    folder = copy(tmp_path)
    compiled = compile_task(folder / "task.yaml", ["runner.model=handoff/desk"])
    told = ("walls",)  # of this machine
    assert [one for one in compiled.warnings if not any(word in one for word in told)] == []
    plan = compiled.plan
    assert plan.gate.name == "race"
    names = [proposer.name for proposer in plan.proposers]
    assert {"variants", "demos", "numeric"} <= set(names)
    variants = [proposer for proposer in plan.proposers if isinstance(proposer, Variants)]
    assert sum(len(proposer.variants) for proposer in variants) == 8
    assert {len(plan.cases.train), len(plan.cases.holdout), len(plan.cases.test)} == {49, 81, 32}


# in each run of the tests the installed command does the same, on fewer cases: tests/test_wheel.py
@pytest.mark.model
@pytest.mark.nightly
def test_the_prompt_that_defines_its_labels_beats_the_seed_on_the_real_model(
    smollm2: Path, tmp_path: Path
):
    folder = copy(tmp_path)
    (folder / "cases.jsonl").write_text("\n".join(LINES[:30]), encoding="utf-8")
    settings = (
        "gate=strict",
        "race=null",
        "cases.split=0:1:0",
        "proposers=[{kind: variants, files: [variants/4-definitions]}]",
    )
    plan = compile_task(folder / "task.yaml", settings).plan
    path, _ = asyncio.run(start(plan, Home(folder / ".kept")))
    with Run(path) as run:
        verdict = run.closed(0).verdict
    assert verdict.outcome == "keep", verdict.reason
    assert "You label reviews." in (path / "best" / "prompt.md").read_text()


def copy(folder: Path) -> Path:
    return Path(shutil.copytree(REVIEWS, folder / "reviews"))
