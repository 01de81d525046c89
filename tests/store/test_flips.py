"""Random bits of a run flipped, random files cut: the same result, or a refusal that names it."""

import asyncio
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kept.core.state import State
from kept.errors import JournalError, KeptError
from kept.results.diffs import best_diff
from kept.results.steps import step_detail
from kept.results.summary import summary
from kept.run import resume, start
from kept.store.home import Home
from kept.store.reader import Run
from kept.store.run_index import RunIndex
from kept.store.verify import COPY, repair_run, verify_run
from kept.ui.report.json import as_json
from kept.ui.report.markdown import markdown
from kept.ui.report.step import step_json
from kept.ui.web.app import run_view
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked
from kept.ui.web.templates import Links
from tests.engine.worlds import make_plan

STEPS, CLOSED = 5, 3
"""Steps of a run, and those that are closed when it is killed."""
SAMPLE, MANY = 20, 320


class World(NamedTuple):
    """A run and what its readers say of it."""

    home: Path
    said: dict[str, str]
    end: State
    killed: bool


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> list[World]:
    """A finished run, and one that was killed; with calls of a model, traces and large replies."""
    home = tmp_path_factory.mktemp("whole") / ".kept"
    plan, _, _ = make_plan(2, STEPS, 3)
    ended = asyncio.run(start(plan, Home(home)))
    killed = tmp_path_factory.mktemp("killed") / ".kept"
    shutil.copytree(home, killed, symlinks=True)
    kill(killed / "runs" / ended.folder.name)
    found: list[World] = []
    for one in (home, killed):
        folder = one / "runs" / ended.folder.name
        RunIndex(Home(one)).rows()
        said = {reader.__name__: told_by(reader, folder) for reader in READERS}
        found.append(World(one, said, ended.state, one == killed))
    return found


def kill(folder: Path) -> None:
    """Leave of a run what it had written in the middle of a step."""
    lines = (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    closed = [n for n, line in enumerate(lines) if b'"kind":"step_closed"' in line]
    (folder / "journal.jsonl").write_bytes(b"".join(lines[: closed[CLOSED]]))
    for name in ("steps.idx", "blobs.idx"):
        (folder / name).unlink()


def summed_up(folder: Path) -> str:
    with Run(folder) as run:
        return repr((summary(run), markdown(run), as_json(run), best_diff(run), run.best.texts))


def looked_into(folder: Path) -> str:
    with Run(folder) as run:
        return repr([step_json(step_detail(run, n, traces=True)) for n in range(len(run.steps))])


def paged(folder: Path) -> str:
    with Run(folder) as run:
        told = run.glance
        return repr(run_view(run, told, kind_of(told.begun.recipe), Links(), Asked()))


def listed(folder: Path) -> str:
    (row,) = RunIndex(Home(folder.parents[1])).rows()
    if row.status == "unreadable":
        raise JournalError(row.reason)
    return repr(row)


READERS: tuple[Callable[[Path], str], ...] = (summed_up, looked_into, paged, listed)


def told_by(reader: Callable[[Path], str], folder: Path) -> str:
    return reader(folder).replace(str(folder.parents[2]), "")


NAMED = re.compile(r"(journal|rollouts)\.jsonl(:\d+: | is empty)|blobs\.pack|newer kept")


def files_of(home: Path) -> list[Path]:
    """Every file of a run and the index of its home, but for the lock, which says nothing."""
    found = sorted(path for path in home.rglob("*") if path.is_file() and not path.is_symlink())
    return [
        path for path in found if path.name not in ("lock", ".gitignore") and path.stat().st_size
    ]


class Hurt(NamedTuple):
    """A file that was damaged."""

    path: Path
    cut: bool


def hurt(world: World, home: Path, chance: random.Random) -> Hurt:
    """Flip a bit of a file, or cut the file; each file as likely as any other."""
    path = chance.choice(files_of(home))
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data) - world.killed)
    cut = chance.random() < 0.25
    if cut:
        del data[at:]
    else:
        data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return Hurt(path.relative_to(home), cut)


def check(world: World, to: Path, seed: int) -> None:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(world.home, to / ".kept", symlinks=True)
    (folder,) = (to / ".kept" / "runs").iterdir()
    path, cut = hurt(world, to / ".kept", random.Random(seed))
    told = f"seed {seed}, killed {world.killed}, {path}{' cut' if cut else ''}"
    # a killed run that is cut looks like one that was killed earlier, and resumes to the same end
    earlier = cut and world.killed
    refused = False
    for reader in READERS:
        name = reader.__name__
        try:
            assert told_by(reader, folder) == world.said[name] or earlier, f"{told}: {name}"
        except KeptError as error:
            assert NAMED.search(str(error)), f"{told}: {error}"
            refused = True
    found = [one for one in verify_run(folder) if one.severity != "ok"]
    if path.parts[0] == "runs":
        assert found or earlier, f"{told}: kept doctor does not see it"
        assert all(one.remedy for one in found)
    shutil.copytree(folder, to / "again", symlinks=True)
    plan, _, _ = make_plan(2, STEPS, 3)
    try:
        assert asyncio.run(resume(plan, folder)).state.settled() == world.end.settled(), told
    except KeptError as error:
        assert NAMED.search(str(error)), f"{told}: {error}"
        refused = True
    if refused:
        check_repair(world, to / "again", told)


def check_repair(world: World, folder: Path, told: str) -> None:
    """A repaired run resumes to the same end, and has nothing wrong with it after that."""
    before = sum(path.stat().st_size for path in folder.glob("*.jsonl*"))
    repair_run(folder)
    assert sum(path.stat().st_size for path in folder.glob("*.jsonl*")) >= before - 1, told
    if any(one.remedy == COPY for one in verify_run(folder)):
        assert "journal.jsonl" in told, "only the first record of a journal cannot be made again"
        return
    plan, _, _ = make_plan(2, STEPS, 3)
    assert asyncio.run(resume(plan, folder)).state.settled() == world.end.settled(), told
    left = [one for one in verify_run(folder) if one.severity == "problem"]
    assert all(one.place == "blobs.pack" for one in left), f"{told}: {left}"
    with Run(folder) as run:
        assert [run.closed(n).step for n in range(STEPS)] == [*range(STEPS)]
        assert run.best.id == world.end.best


def check_all(worlds: list[World], to: Path, seeds: range) -> None:
    for seed in seeds:
        check(worlds[seed % 4 == 0], to, seed)


@pytest.mark.slow
def test_a_run_whose_journal_lost_its_end_counts_all_that_was_paid(
    worlds: list[World], tmp_path: Path
):
    (whole,) = (worlds[0].home / "runs").iterdir()
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines)):
        folder = tmp_path / f"{kept}" / whole.name
        shutil.copytree(whole, folder, symlinks=True)
        (folder / "journal.jsonl").write_bytes(b"".join(lines[:kept]))
        plan, _, _ = make_plan(2, STEPS, 3)
        ended = asyncio.run(resume(plan, folder)).state
        assert ended.settled() == worlds[0].end.settled()
        least = worlds[0].end.spend
        assert ended.spend.rollouts >= least.rollouts, f"{kept} lines of the journal"
        assert ended.spend.usd > least.usd - 1e-9, f"{kept} lines of the journal"


@pytest.mark.slow
def test_a_killed_run_whose_journal_lost_steps_is_told_of_where_it_is_opened(
    worlds: list[World], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (whole,) = (worlds[1].home / "runs").iterdir()
    lines = (whole / "journal.jsonl").read_bytes().splitlines(keepends=True)
    looked_into(whole)
    assert "the end is missing" not in caplog.text
    closed = [n for n, line in enumerate(lines) if b'"kind":"step_closed"' in line]
    for number, reader in enumerate((summed_up, listed)):
        folder = tmp_path / f"{number}" / "runs" / whole.name
        shutil.copytree(whole, folder, symlinks=True)
        (folder / "journal.jsonl").write_bytes(b"".join(lines[: closed[0]]))
        reader(folder)
        assert f"{folder / 'journal.jsonl'}: the end is missing" in caplog.text, reader
        assert "the end is missing" in repr(verify_run(folder))


@pytest.mark.slow
def test_damage_anywhere_in_a_run_is_refused_or_changes_nothing(
    worlds: list[World], tmp_path: Path
):
    check_all(worlds, tmp_path / "run", range(SAMPLE))


@pytest.mark.nightly
def test_much_damage_anywhere_in_a_run_is_refused_or_changes_nothing(
    worlds: list[World], tmp_path: Path
):
    check_all(worlds, tmp_path / "run", range(1000, 1000 + MANY))
