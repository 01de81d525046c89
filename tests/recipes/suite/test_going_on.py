"""An optimization that was cut anywhere comes to the same end, and so does the registry."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from kept.orchestrator.prompt_registry import Epoch, PromptRegistry
from kept.run import Watch, resume, start
from kept.store import codec
from tests.engine.cutting import Home1, Moments, calls, cut, rows
from tests.recipes.suite.world import GOOD, HARMFUL, Cast, World, in_order, world
from tests.sampling import sample, some_or_all


def make(folder: Path) -> World:
    cast = Cast(proposes=in_order(GOOD[0], HARMFUL[0]))
    return world(folder, cast, "gate: rollback\n", tasks=("may",))


def dump(path: Path) -> list[tuple[object, ...]]:
    """All that a registry holds, but for when that was."""
    tables = {
        "artifact_versions": "artifact_name, version, content, parent_version, epoch_id, is_active",
        "epochs": "id, suite_id, epoch_num, mean_loss, parent_artifacts_json, child_artifacts_json",
        "epoch_runs": "*",
    }
    with closing(sqlite3.connect(path)) as database:
        return [
            row
            for table, columns in tables.items()
            for row in database.execute(f"SELECT {columns} FROM {table}")
        ]


def lines_of(folder: Path) -> Iterator[tuple[int, ...]]:
    """Sizes of the files of a run after every line that it wrote, as far as can be told."""
    spine = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    rest = (folder / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    whole = tuple((folder / name).stat().st_size for name in ("blobs.pack", "steps.idx"))
    opened = [n for n, line in enumerate(spine) if b'"rollouts_at"' in line]
    for n in opened:
        at = int(spine[n].split(b'"rollouts_at":')[1].split(b",")[0].split(b"}")[0])
        until = [m for m in opened if m > n]
        end = _at(spine, until[0]) if until else sum(map(len, rest))
        size = 0
        for line in rest:
            size += len(line)
            if at <= size <= end:
                yield sum(map(len, spine[: n + 1])), size, *whole


def _at(spine: list[bytes], n: int) -> int:
    return int(spine[n].split(b'"rollouts_at":')[1].split(b",")[0].split(b"}")[0])


@pytest.mark.slow
@some_or_all
def test_an_optimization_cut_behind_everything_it_wrote_ends_the_same(
    tmp_path: Path, everything: bool
):
    it = make(tmp_path / "whole")
    moments = Moments()
    home = Home1(tmp_path / "whole" / ".kept", moments)
    whole, state = asyncio.run(start(it.plan(epochs=2), home, Watch((moments,))))
    assert [step.verdict.outcome for step in state.history] == ["keep", "discard"]
    held = dump(it.registry.path)
    lines = rows(whole)
    places = [*moments.sizes, *list(lines_of(whole))[::5]]
    assert len(places) > 25
    for sizes in sample(places, 12, everything):
        part = cut(whole, sizes, tmp_path / "part")
        before = calls(rows(part))
        for path in it.registry.path.parent.glob("artifacts.db*"):
            path.unlink()
        again = make(tmp_path / "whole")
        _, ended = asyncio.run(resume(again.plan(epochs=2), part))
        assert ended.settled() == state.settled(), sizes
        assert ended.spend.calls == state.spend.calls
        after = rows(part)
        assert max(calls(after).values()) == 1, "a call whose reply was written was made again"
        assert before.keys() <= calls(after).keys()
        pairs = [row.entry()[0] for row in after if isinstance(row, codec.RolloutLine)]
        assert len(pairs) == len(set(pairs))
        assert len(after) == len(lines)
        assert dump(it.registry.path) == held


def test_what_the_registry_did_not_hear_it_hears_when_the_run_goes_on(tmp_path: Path):
    it = make(tmp_path)
    made = it.plan(epochs=2)
    folder, state = it.start(made)
    assert state.keeps == 1
    # as if killed between journal and registry
    for path in it.registry.path.parent.glob("artifacts.db*"):
        path.unlink()
    assert it.registry.active()["worker_pitfalls"].number == 0
    it.resume(it.plan(epochs=2), folder)
    assert it.registry.active()["worker_pitfalls"].number == 1
    assert len(it.registry.versions("worker_pitfalls")) == 3


def test_a_resume_leaves_alone_what_somebody_activated_since(tmp_path: Path):
    it = make(tmp_path)
    folder, _ = it.start(it.plan(epochs=2))
    it.registry.activate("worker_pitfalls", 0)
    it.resume(it.plan(epochs=2), folder)
    assert it.registry.active()["worker_pitfalls"].number == 0
    assert len(it.registry.epochs()) == 2


def test_a_run_goes_on_by_the_rule_that_it_began_with_whatever_the_file_says_by_now(
    tmp_path: Path,
):
    cast = Cast(proposes=in_order(HARMFUL[0], HARMFUL[1]))
    it = world(tmp_path, cast, "gate: rollback\nstep: 0.4\n", tasks=("may",))
    folder, state = it.start(it.plan(epochs=1))
    it.path.write_text(it.path.read_text().replace("rollback", "race"))
    _, state = it.resume(it.plan(began=state.settings.gate, epochs=2), folder)
    assert [step.verdict.outcome for step in state.history] == ["discard", "discard"]
    steps = [step.proposal.about["step"] for step in state.history if step.proposal]
    assert steps == [0.4, 0.2]


def test_an_epoch_is_written_whole_or_not_at_all(tmp_path: Path):
    registry = PromptRegistry(tmp_path / "a.db", {"one": "1", "two": "2"})
    epoch = Epoch(
        id="run/0",
        suite="s",
        number=1,
        started=0.0,
        ended=1.0,
        loss=0.5,
        before={"one": "1", "two": "2"},
        after={"one": "11", "two": "2"},
        kept=True,
        uses=("one", "strange"),
    )
    with pytest.raises(KeyError):
        registry.record(epoch)
    assert [one.number for one in registry.versions("one")] == [0]
    assert registry.epochs() == []


def test_an_outage_is_no_rollback_and_the_epoch_is_had_when_it_has_passed(tmp_path: Path):
    it = make(tmp_path)
    # the task was looked at, and an update proposed; then nobody answers
    it.cast.left = 6 + 6 + 2
    folder, state = it.start(replace(it.plan(epochs=2), retries=0))
    assert state.stopped is not None and state.stopped.kind == "error"
    assert len(it.registry.versions("worker_pitfalls")) == 1
    assert it.registry.active()["worker_pitfalls"].number == 0
    it.cast.left = None
    _, state = it.resume(it.plan(epochs=2), folder)
    assert state.stopped is not None and state.stopped.kind == "iterations"
    assert [one.active for one in it.registry.versions("worker_pitfalls")] == [False, True, False]


def test_an_outage_before_any_task_was_run_uses_up_no_epoch(tmp_path: Path):
    it = make(tmp_path)
    it.cast.left = 0
    folder, state = it.start(replace(it.plan(epochs=2), retries=0))
    assert state.stopped is not None and state.stopped.kind == "error", state.stopped
    it.cast.left = None
    _, state = it.resume(it.plan(epochs=2), folder)
    assert state.stopped is not None and state.stopped.kind == "iterations"
    assert [one.active for one in it.registry.versions("worker_pitfalls")] == [False, True, False]
