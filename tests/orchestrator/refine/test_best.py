"""BEST: whole at any moment, never worse than before, and nobody else's files."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kept.core.schedules.refine import Attempt
from kept.errors import RunError
from kept.orchestrator.refine import best
from kept.orchestrator.refine.best import BEST, Winner, best_loss, exchange, recover, write_best
from kept.orchestrator.refine.session import Session, free_name, session_name, write_session


def winner(loss: float, run: str = "r1", measure: str = "follow") -> Winner:
    return Winner(
        measure=measure,
        best_run_id=run,
        best_loss=loss,
        seed_loss=0.5,
        session_id="refine_1",
        winning_run_dir=f"/somewhere/{run}",
        loss_breakdown={"total": loss},
    )


def held(seed: Path) -> dict[str, bytes]:
    place = seed / BEST
    files = (path for path in place.rglob("*") if path.is_file())
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in files}


def test_best_holds_the_deliverable_and_says_where_it_is_from(tmp_path: Path):
    assert write_best(tmp_path, winner(0.3), {"a.md": b"x", "img/b.png": b"\xff\0"})
    told = json.loads(held(tmp_path)["manifest.json"])
    assert {"best_run_id", "best_loss", "seed_loss", "session_id", "winning_run_dir"} <= set(told)
    assert held(tmp_path)["img/b.png"] == b"\xff\0"
    assert best_loss(tmp_path) == 0.3


def test_best_never_regresses(tmp_path: Path):
    write_best(tmp_path, winner(0.3), {"a.md": b"good"})
    assert not write_best(tmp_path, winner(0.4), {"a.md": b"worse"})
    assert not write_best(tmp_path, winner(0.3), {"a.md": b"equal"})
    assert held(tmp_path)["a.md"] == b"good"


def test_losses_of_two_measures_are_not_compared(tmp_path: Path):
    write_best(tmp_path, winner(0.3), {"a.md": b"by its own account"})
    assert not write_best(tmp_path, winner(0.1, "r2", "race:1"), {"a.md": b"read"})
    assert held(tmp_path)["a.md"] == b"by its own account"
    found = best.held_in(tmp_path)
    assert found is not None and "cannot be compared" in found.stays("race:1")
    assert "is not more" in found.stays("follow")
    raced = tmp_path / "raced"
    raced.mkdir()
    assert write_best(raced, winner(0.3, "r1", "race:1"), {"a.md": b"read"})
    assert json.loads(held(raced)["manifest.json"])["measure"] == "race:1"
    assert not write_best(raced, winner(0.1, "r2"), {"a.md": b"lucky"})
    assert write_best(raced, winner(0.2, "r3", "race:1"), {"a.md": b"better"})


def test_a_manifest_that_names_no_measure_is_of_runs_own_losses(tmp_path: Path):
    write_best(tmp_path, winner(0.3), {"a.md": b"good"})
    path = tmp_path / BEST / "manifest.json"
    told = json.loads(path.read_text())
    del told["measure"]
    path.write_text(json.dumps(told))
    assert write_best(tmp_path, winner(0.2), {"a.md": b"better"})


def test_best_is_replaced_as_a_whole_by_what_is_better(tmp_path: Path):
    write_best(tmp_path, winner(0.3), {"a.md": b"good", "old.md": b"x"})
    assert write_best(tmp_path, winner(0.2, "r2"), {"a.md": b"better"})
    assert set(held(tmp_path)) == {"a.md", "manifest.json"}
    assert not [path.name for path in tmp_path.iterdir() if path.name != BEST]


def test_a_deliverable_named_manifest_json_survives(tmp_path: Path):
    write_best(tmp_path, winner(0.3), {"manifest.json": b'{"theirs": 1}'})
    assert held(tmp_path)["manifest.json"] == b'{"theirs": 1}'
    assert best_loss(tmp_path) == 0.3
    assert not write_best(tmp_path, winner(0.4), {"manifest.json": b"worse"})
    assert held(tmp_path)["manifest.json"] == b'{"theirs": 1}'


def test_best_without_a_deliverable_is_refused(tmp_path: Path):
    with pytest.raises(RunError, match="left no file"):
        write_best(tmp_path, winner(0.1), {})
    assert not (tmp_path / BEST).exists()


def test_what_best_holds_is_a_copy(tmp_path: Path):
    source = tmp_path / "seed.md"
    source.write_bytes(b"x")
    before = source.stat()
    write_best(tmp_path, winner(0.3), {"seed.md": source.read_bytes()})
    (tmp_path / BEST / "seed.md").write_bytes(b"changed in place")
    after = source.stat()
    assert source.read_bytes() == b"x"
    assert (after.st_ino, after.st_mtime_ns, after.st_nlink) == (
        before.st_ino,
        before.st_mtime_ns,
        1,
    )


def test_best_is_swapped_in_one_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_best(tmp_path, winner(0.3), {"a.md": b"good"})
    seen: list[bytes] = []

    def watched(one: Path, two: Path) -> bool:
        seen.append((tmp_path / BEST / "a.md").read_bytes())
        moved = exchange(one, two)
        seen.append((tmp_path / BEST / "a.md").read_bytes())
        return moved

    monkeypatch.setattr(best, "exchange", watched)
    write_best(tmp_path, winner(0.2), {"a.md": b"better"})
    assert seen == [b"good", b"better"]


def test_best_is_whole_after_a_kill_between_two_moves(tmp_path: Path):
    write_best(tmp_path, winner(0.3), {"a.md": b"good"})
    (tmp_path / BEST).rename(tmp_path / best.OLD)
    (tmp_path / best.FRESH).mkdir()
    recover(tmp_path)
    assert held(tmp_path)["a.md"] == b"good"
    assert write_best(tmp_path, winner(0.2), {"a.md": b"better"})
    assert held(tmp_path)["a.md"] == b"better"
    assert not (tmp_path / best.FRESH).exists()


def forked(work: Callable[[], None]) -> int:
    """A process that does that and nothing else, whatever comes of it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def improving(seed: Path) -> None:
    """Have BEST be better and better, for ever: a process that is there to be killed."""
    for number in range(10_000):
        text = f"version {number}\n".encode()
        files = {f"{name}.md": text for name in "abcdefgh"}
        write_best(seed, winner(1 - number / 10_000, f"r{number}"), files)


@pytest.mark.kill
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("moves", [1, 2])
def test_best_is_whole_after_kill_9_while_it_is_swapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
):
    if moves == 2:
        # as on a file system that cannot exchange two folders
        monkeypatch.setattr(best, "exchange", lambda one, two: False)  # pyright: ignore
    torn = last = 0
    for number in range(40):
        child = forked(partial(improving, tmp_path))
        while not (tmp_path / BEST).exists():
            time.sleep(0.001)
        # whenever it comes: never is there a moment at which it must not
        time.sleep(0.01 + 0.0007 * (number % 13))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        torn += (tmp_path / best.FRESH).exists() or (tmp_path / best.OLD).exists()
        recover(tmp_path)
        files = held(tmp_path)
        told = json.loads(files.pop("manifest.json"))
        version = int(told["best_run_id"].removeprefix("r"))
        assert set(files.values()) == {f"version {version}\n".encode()}
        assert len(files) == 8
        assert version >= last, "what was gained is lost"
        last = version
    assert torn, "no kill came while it was being replaced"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_sessions_that_end_at_once_leave_the_best_of_them_all_whole(tmp_path: Path):
    def work(who: int) -> None:
        for number in range(60):
            loss = 1 - (3 * number + who) / 1000
            files = {f"{name}.md": f"{loss}\n".encode() for name in "abcd"}
            write_best(tmp_path, winner(loss), files)

    children = [forked(partial(work, who)) for who in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    files = held(tmp_path)
    least = json.loads(files.pop("manifest.json"))["best_loss"]
    assert least == 1 - 179 / 1000
    assert files == {f"{name}.md": f"{least}\n".encode() for name in "abcd"}


def test_a_file_system_without_the_move_does_it_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def cannot(one: Path, two: Path) -> bool:
        return False

    monkeypatch.setattr(best, "exchange", cannot)
    write_best(tmp_path, winner(0.3), {"a.md": b"good"})
    assert write_best(tmp_path, winner(0.2), {"a.md": b"better"})
    assert held(tmp_path)["a.md"] == b"better"
    assert not (tmp_path / best.OLD).exists()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no second file system")
def test_best_lies_on_another_device_than_what_it_is_made_of(tmp_path: Path):
    seed = Path("/dev/shm") / f"kept-test-{os.getpid()}"
    seed.mkdir()
    try:
        assert seed.stat().st_dev != tmp_path.stat().st_dev
        source = tmp_path / "a.md"
        source.write_bytes(b"x")
        write_best(seed, winner(0.3), {"a.md": source.read_bytes()})
        write_best(seed, winner(0.2), {"a.md": source.read_bytes()})
        assert held(seed)["a.md"] == b"x"
    finally:
        shutil.rmtree(seed)


def test_a_session_is_written_beside_its_seed_with_the_keys_of_its_source(tmp_path: Path):
    name = session_name(0.0)
    assert name == "refine_19700101T000000Z"
    session = Session(
        session_id=name,
        seed_run_id="seed",
        started_at="1970-01-01T00:00:00Z",
        iterations=(Attempt(k=1, run_id="r1", loss=0.35, status="partial"),),
    )
    path = write_session(tmp_path, session)
    assert path == tmp_path / "refinement_sessions" / f"{name}.json"
    told = json.loads(path.read_text())
    keys = "session_id seed_run_id started_at completed_at stop_reason best_iter iterations"
    assert {*keys.split(), "tier_plan_used"} <= set(told)
    row = "k run_id loss status tier model_manager model_worker"
    assert set(row.split()) <= set(told["iterations"][0])
    assert told["completed_at"] is None


def test_sessions_that_begin_in_one_second_have_names_of_their_own(tmp_path: Path):
    (tmp_path / "refine_1").mkdir()
    assert free_name("refine_1", (), tmp_path) == "refine_1_2"
    assert free_name("refine_1", {"refine_1_2"}, tmp_path) == "refine_1_3"
    assert free_name("refine_2", {"refine_1"}, tmp_path) == "refine_2"
