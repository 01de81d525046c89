"""A glance says what the fold says, at every moment of a run."""

import asyncio
import shutil
from pathlib import Path

import pytest

from kept.results.summary import values
from kept.run import start
from kept.store.home import Home
from kept.store.overview import Glance, journalled_spend
from kept.store.reader import Run
from kept.store.run_index import RunIndex
from kept.store.step_index import answered_step, closed_step, opened_step
from tests.engine.worlds import make_plan


def made(folder: Path, width: int = 3, steps: int = 12, seed: int = 3) -> Path:
    plan, _, _ = make_plan(width, steps, seed)
    return asyncio.run(start(plan, Home(folder))).folder


def same(told: Glance, folder: Path) -> None:
    with Run(folder) as run:
        state = run.state
        assert (told.seed, told.incumbent, told.best) == (state.seed, state.incumbent, state.best)
        assert (told.best_step, told.keeps) == (state.best_step, state.keeps)
        assert len(told.rows) == len(state.history)
        assert [one.step for one in told.open] == [step.step for step in state.open]
        assert [one.reply for one in told.open] == [step.reply for step in state.open]
        assert told.values == values(state)
        assert told.spend == journalled_spend(folder, state)
        assert told.stopped == state.stopped
        assert told.status == run.status
        for row, past in zip(told.rows, state.history, strict=True):
            assert (row.proposer, row.phase) == (past.turn.proposer, past.turn.phase)
            assert row.measured == past.loss
            assert row.candidate == past.candidate


@pytest.mark.parametrize(("width", "seed"), [(1, 1), (3, 3), (4, 7)])
def test_a_glance_says_what_the_fold_says(tmp_path: Path, width: int, seed: int):
    folder = made(tmp_path, width, 12, seed)
    same(Glance(folder).refresh(), folder)


@pytest.mark.slow
def test_a_glance_follows_a_run_record_by_record(tmp_path: Path):
    folder = made(tmp_path / "whole")
    growing = tmp_path / "growing"
    shutil.copytree(folder, growing)
    (growing / "steps.idx").unlink()
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    rollouts = (folder / "rollouts.jsonl").read_bytes()
    (growing / "journal.jsonl").write_bytes(lines[0])
    (growing / "rollouts.jsonl").write_bytes(b"")
    told = Glance(growing)
    for count in range(1, len(lines) + 1):
        (growing / "journal.jsonl").write_bytes(b"".join(lines[:count]) + b'{"torn')
        cut = rollouts[: rollouts.rfind(b"\n", 0, len(rollouts) * count // len(lines)) + 1]
        (growing / "rollouts.jsonl").write_bytes(cut)
        same(told.refresh(), growing)


def test_each_row_leads_to_the_records_of_its_step(tmp_path: Path):
    folder = made(tmp_path)
    rows = Glance(folder).refresh().rows
    assert len(rows) >= 12
    for row in rows:
        opened, answered = opened_step(folder, row), answered_step(folder, row)
        assert opened is not None and opened.turn.proposer == row.proposer
        assert answered is not None and answered.step == row.step
        assert closed_step(folder, row).verdict.words == row.reason


def test_an_index_of_an_older_version_is_made_anew(tmp_path: Path):
    folder = made(tmp_path)
    whole = Glance(folder).refresh().rows
    index = folder / "steps.idx"
    old = [
        line.split(b",")[0] + b",0,1,0,null,null,0,0]\n" for line in index.read_bytes().splitlines()
    ]
    index.write_bytes(b"".join(old))
    assert Glance(folder).refresh().rows == whole


def test_a_run_that_did_not_change_is_listed_without_being_read_again(tmp_path: Path):
    made(tmp_path)
    read: list[Path] = []

    def glance(folder: Path) -> Glance:
        read.append(folder)
        return Glance(folder).refresh()

    first = RunIndex(Home(tmp_path), glance).rows()
    assert len(read) == len(first) == 1
    assert RunIndex(Home(tmp_path), glance).rows() == first
    assert len(read) == 1
