"""Nothing is written through a link below the folder that a person or a spec has named."""

import asyncio
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kept.orchestrator.refine.best import BEST, FRESH, OLD, Winner, recover, write_best
from kept.orchestrator.refine.session import SESSIONS, Session, write_session
from kept.orchestrator.run_folder.write import Layout, sweep
from kept.run import start
from kept.store.candidate_files import link_in, named_place, write_below, write_file, write_whole
from kept.store.exports import CandidateFolder, ResultsFile
from kept.store.home import Home
from tests.engine.worlds import make_plan

Write = Callable[[Path], object]

WINNER = Winner(
    best_run_id="r",
    best_loss=0.1,
    seed_loss=0.2,
    session_id="s",
    winning_run_dir="d",
    loss_breakdown={},
)
SESSION = Session(session_id="s", seed_run_id="r", started_at="t")

WRITERS: dict[str, Write] = {
    "write": lambda root: write_file(root / "a" / "b" / "file", b"new", below=root),
    "append": lambda root: write_file(root / "a" / "b" / "file", b"new", "ab", root),
    "whole": lambda root: write_whole(root / "a" / "b" / "file", b"new", root),
    "folder": lambda root: write_below(root / "a", {"b/file": b"new"}, root),
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "file").write_text("old")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    # whoever names a folder may name a link to it
    (tmp_path / "root").symlink_to("real")
    return tmp_path / "root"


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_below_a_folder_stays_there(name: str, root: Path):
    WRITERS[name](root)
    assert (root / "a" / "b" / "file").read_text() == "new"


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("link", ["a", "a/b", "a/b/file", "a/b/gone"])
def test_a_link_on_the_way_is_refused_by_name(name: str, link: str, root: Path, outside: Path):
    place = root / link.replace("gone", "file")
    place.parent.mkdir(parents=True, exist_ok=True)
    target = {"a": outside, "a/b": outside, "a/b/file": outside / "file"}.get(link)
    place.symlink_to(target or outside / "not-there")
    with pytest.raises(OSError, match="it is a link") as caught:
        WRITERS[name](root)
    assert caught.value.filename == str(place)
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "old"


def test_a_link_that_a_kill_or_an_attacker_left_for_a_fresh_file_is_replaced(
    root: Path, outside: Path
):
    (root / ".file.new").symlink_to(outside / "file")
    write_whole(root / "file", b"new", root)
    assert (root / "file").read_text() == "new" and not (root / "file").is_symlink()
    assert (outside / "file").read_text() == "old"


@pytest.mark.slow
def test_a_folder_that_is_swapped_for_a_link_again_and_again_leads_nowhere(
    root: Path, outside: Path
):
    (root / "a").mkdir()
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (root / "a").rename(root / "kept")
            # the writer may make the folder again in between
            with suppress(FileExistsError):
                (root / "a").symlink_to(outside)
                (root / "a").unlink()
            shutil.rmtree(root / "a", ignore_errors=True)
            with suppress(OSError):
                (root / "kept").rename(root / "a")
            (root / "a").mkdir(exist_ok=True)
            shutil.rmtree(root / "kept", ignore_errors=True)

    thread = threading.Thread(target=swap)
    thread.start()
    written = 0
    try:
        for _ in range(2_000):
            try:
                write_whole(root / "a" / "file", b"new", root)
                written += 1
            except OSError:
                continue
    finally:
        done.set()
        thread.join()
    assert written > 0
    assert (outside / "file").read_text() == "old"
    assert [path.name for path in outside.iterdir()] == ["file"]


@pytest.mark.parametrize("name", [BEST, FRESH, OLD])
def test_best_is_not_replaced_where_it_is_a_link(name: str, root: Path, outside: Path):
    (root / name).symlink_to(outside)
    with pytest.raises(OSError, match="it is a link"):
        write_best(root, WINNER, {"file": b"new"})
    with pytest.raises(OSError, match="it is a link"):
        recover(root)
    assert (root / name).is_symlink()
    assert (outside / "file").read_text() == "old"


def test_views_of_a_task_are_not_written_through_a_link_that_a_candidate_made(
    root: Path, outside: Path, caplog: pytest.LogCaptureFixture
):
    # after the spec was checked, as a command may do in a folder that it may write to
    (root / "logs").symlink_to(outside)
    plan, _, _ = make_plan(1, 2, 3)
    results = partial(ResultsFile, root / "logs" / "r.jsonl", root, plan.objective, "skip")
    for view in (results, partial(CandidateFolder, root / "logs" / "c", root)):
        asyncio.run(start(replace(plan, views=(view,)), Home(root / ".kept")))
        assert caplog.text.count("logs: it is a link") == 1
        caplog.clear()
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_a_session_is_not_written_through_a_link(root: Path, outside: Path):
    (root / SESSIONS).symlink_to(outside)
    with pytest.raises(OSError, match="it is a link"):
        write_session(root, SESSION)
    assert [path.name for path in outside.iterdir()] == ["file"]


def test_what_a_run_delivered_before_is_not_removed_through_a_link(root: Path, outside: Path):
    (root / "output").mkdir()
    (root / "output" / "run").symlink_to(outside)
    sweep(root, "run", [{"file": b"old"}], Layout())
    assert (outside / "file").exists()


def test_a_place_outside_of_a_project_is_the_users_own(root: Path, outside: Path):
    assert named_place(root / "out", root) == root
    assert named_place(outside / "out", root) == outside / "out"
    assert named_place(root / ".." / "out", root) == root / ".." / "out"
    (root / "a").symlink_to(outside)
    assert link_in(root / "a" / "b" / "c", root) == root / "a"
    assert link_in(root / "d", root) is None
