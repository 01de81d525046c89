"""What disks and people do to a journal: a clear error each time, and nothing lost."""

import asyncio
import errno
import fcntl
import json
import logging
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import kept
from kept.core.artifact import Candidate
from kept.core.rollout import Job
from kept.core.score import Outcome
from kept.core.state import State
from kept.errors import JournalError, LockedError, SetupError
from kept.models.cache import CallCache
from kept.orchestrator.prompt_registry import PromptRegistry
from kept.orchestrator.refine.best import alone
from kept.orchestrator.refine.session import refining
from kept.run import resume, start
from kept.store.candidate_files import swap_best
from kept.store.home import Home
from kept.store.journal import RunJournal
from kept.store.lock import Lock, holder
from kept.store.pack import Pack
from kept.store.reader import Run
from tests.engine.worlds import make_plan
from tests.store.damaging import resealed
from tests.store.test_private import an_epoch

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, State]:
    """A finished run and the state it ended in."""
    plan, _, _ = make_plan(3, 8, 3)
    return asyncio.run(start(plan, Home(tmp_path)))


def resumed(folder: Path, width: int = 3, steps: int = 8, seed: int = 3) -> State:
    plan, _, _ = make_plan(width, steps, seed)
    return asyncio.run(resume(plan, folder)).state


def cut_to(path: Path, lines: int, torn: bytes = b"") -> None:
    kept = path.read_bytes().splitlines(keepends=True)[:lines]
    path.write_bytes(b"".join(kept) + torn)


def test_a_torn_last_line_is_dropped_said_and_kept_aside(
    run: tuple[Path, State], caplog: pytest.LogCaptureFixture
):
    folder, whole = run
    cut_to(folder / "journal.jsonl", 9, b'{"step":2,"ver')
    with caplog.at_level(logging.WARNING):
        state = resumed(folder)
    assert state.settled() == whole.settled()
    assert "journal.jsonl: the last line was cut off by a crash" in caplog.text
    assert (folder / "journal.jsonl.torn").read_bytes() == b'{"step":2,"ver\n'


def test_a_corrupt_line_in_the_middle_is_named_and_nothing_is_changed(run: tuple[Path, State]):
    folder, _ = run
    spine = folder / "journal.jsonl"
    lines = spine.read_bytes().splitlines(keepends=True)
    lines[4] = b"\x00\x00garbage\n"
    spine.write_bytes(b"".join(lines))
    before = {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()}
    with pytest.raises(JournalError, match=r"journal\.jsonl:5: not a record of this journal"):
        resumed(folder)
    reader = Run(folder)
    with pytest.raises(JournalError, match=r"journal\.jsonl:5"):
        assert reader.state
    reader.close()
    for name in ("journal.jsonl", "rollouts.jsonl", "blobs.pack"):
        assert (folder / name).read_bytes() == before[name]


def test_a_missing_line_is_an_event_that_cannot_follow(run: tuple[Path, State]):
    folder, _ = run
    spine = folder / "journal.jsonl"
    lines = spine.read_bytes().splitlines(keepends=True)
    del lines[2]
    spine.write_bytes(resealed(lines))
    with pytest.raises(JournalError, match=r"journal\.jsonl:3: step 2 opened, 1 expected"):
        resumed(folder)
    spine.write_bytes(b"".join(lines))
    with pytest.raises(JournalError, match=r"journal\.jsonl:\d+: .* a line above is missing"):
        resumed(folder)
    with Run(folder) as reader, pytest.raises(JournalError, match=r"jsonl:3: .* is missing"):
        assert reader.state


def test_a_corrupt_rollout_line_is_named_and_its_pair_is_rolled_out_again(
    run: tuple[Path, State], caplog: pytest.LogCaptureFixture
):
    folder, whole = run
    cut_to(folder / "journal.jsonl", 4)
    path = folder / "rollouts.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"repeat"', b'"rep\x01at"')
    path.write_bytes(b"".join(lines))
    with caplog.at_level(logging.WARNING):
        assert resumed(folder).settled() == whole.settled()
    assert "rollouts.jsonl:4: a damaged line is left out" in caplog.text


def test_a_journal_of_a_newer_version_is_refused(run: tuple[Path, State]):
    folder, _ = run
    spine = folder / "journal.jsonl"
    first, rest = spine.read_bytes().split(b"\n", 1)
    newer = {**json.loads(first), "schema": 99, "surprise": True}
    spine.write_bytes(resealed([json.dumps(newer).encode(), *rest.splitlines()]))
    with pytest.raises(JournalError, match="written by a newer kept") as caught:
        resumed(folder)
    assert "upgrade" in (caught.value.hint or "")


def test_a_lock_left_by_a_dead_process_locks_nobody_out(run: tuple[Path, State]):
    folder, whole = run
    cut_to(folder / "journal.jsonl", 9)
    (folder / "lock").write_text("999999\n")
    assert resumed(folder).settled() == whole.settled()


def test_a_second_writer_is_refused_with_the_pid_of_the_first(run: tuple[Path, State]):
    folder, _ = run
    journal = RunJournal(folder)
    try:
        with pytest.raises(LockedError, match=f"being written by process {os.getpid()}"):
            RunJournal(folder)
    finally:
        journal.close()
    RunJournal(folder).close()


FORKS = """
import os, sys, time
from pathlib import Path
from kept.store.lock import Lock
lock = Lock(Path(sys.argv[1]))
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


def test_a_child_that_an_evaluator_forked_does_not_keep_the_lock_of_a_killed_run(tmp_path: Path):
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert holder(tmp_path) == parent.pid, "the child let go for its parent, too"
        parent.kill()
        parent.wait()
        try:
            assert os.kill(child, 0) is None, "the child is gone, so this shows nothing"
            Lock(tmp_path).release()
        finally:
            os.kill(child, signal.SIGKILL)


def test_two_who_look_at_once_take_each_other_for_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "lock").write_text(f"{gone.pid}\n")
    flock, second = fcntl.flock, [holder]
    seen: list[int | None] = []

    def meanwhile(fd: int, operation: int) -> None:
        flock(fd, operation)
        while second:
            seen.append(second.pop()(tmp_path))

    monkeypatch.setattr(fcntl, "flock", meanwhile)
    seen.append(holder(tmp_path))
    assert seen == [None, None]
    lock = Lock(tmp_path)
    assert holder(tmp_path) == os.getpid()
    lock.release()


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ((fcntl, "flock"), errno.ENOLCK, "cannot lock"),
        ((os, "pwrite"), errno.ENOSPC, "cannot write to"),
    ],
)
def test_a_lock_that_cannot_be_had_is_told_of_and_keeps_no_file_open(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: tuple[object, str],
    code: int,
    message: str,
):
    def fails(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(*call, fails)
    with pytest.raises(JournalError, match=f"{message} .*: {os.strerror(code)}") as caught:
        Lock(tmp_path)
    assert not isinstance(caught.value, LockedError) and caught.value.hint
    # a refinement goes on, for nobody else may be at it
    with refining((tmp_path,), "mine"):
        assert message in caplog.text
    with alone(tmp_path):
        assert holder(tmp_path) is None
    left = [fd.resolve() for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
    assert [one for one in left if one.is_relative_to(tmp_path)] == []


def test_a_lock_removes_no_file_that_is_no_longer_its_own(tmp_path: Path):
    lock = Lock(tmp_path)
    (tmp_path / "lock").unlink()
    other = Lock(tmp_path)
    lock.remove()
    assert holder(tmp_path) == os.getpid(), "the other one is held still"
    other.remove()
    assert not (tmp_path / "lock").exists()


def test_an_empty_journal_says_that_the_run_never_began(tmp_path: Path):
    (tmp_path / "journal.jsonl").write_bytes(b"")
    with pytest.raises(JournalError, match="ended before it began"):
        resumed(tmp_path)
    with pytest.raises(JournalError, match="ended before it began"):
        assert Run(tmp_path).state


def test_a_resume_names_what_drifted(run: tuple[Path, State]):
    folder, _ = run
    plan, _, _ = make_plan(3, 8, 3)
    object.__setattr__(plan, "inputs", {"spec": "changed"})
    with pytest.raises(JournalError, match="spec changed since it started"):
        asyncio.run(resume(plan, folder))


@pytest.mark.parametrize("lost", ["blobs.idx", "steps.idx"])
def test_an_index_is_a_convenience_and_is_rebuilt(lost: str, run: tuple[Path, State]):
    folder, whole = run
    cut_to(folder / "journal.jsonl", 20)
    (folder / lost).write_bytes(b"nonsense here\n")
    assert resumed(folder).settled() == whole.settled()
    reader = Run(folder)
    assert reader.best.id == whole.best
    assert [row.outcome for row in reader.steps] == [s.verdict.outcome for s in whole.history]
    assert reader.closed(5).step == 5
    reader.close()


@pytest.mark.parametrize("damage", [b"", b"[0,1", b"[7,3,9]\n", None])
def test_a_reader_lists_the_steps_whatever_became_of_their_index(
    damage: bytes | None, run: tuple[Path, State]
):
    folder, whole = run
    index = folder / "steps.idx"
    right = index.read_bytes()
    index.write_bytes(right[: len(right) // 2] if damage is None else damage)
    reader = Run(folder)
    assert [row.candidate for row in reader.steps] == [s.candidate for s in whole.history]
    told = [reader.closed(n).verdict for n in range(8)]
    assert [v.reason for v in told] == [s.verdict.reason for s in whole.history]
    reader.close()
    RunJournal(folder).close()
    assert index.read_bytes() == right


def test_a_pack_with_a_torn_end_goes_on_from_its_last_whole_entry(run: tuple[Path, State]):
    folder, whole = run
    cut_to(folder / "journal.jsonl", 1)
    cut_to(folder / "rollouts.jsonl", 0)
    pack = folder / "blobs.pack"
    pack.write_bytes(pack.read_bytes()[:-7])
    assert resumed(folder).settled() == whole.settled()
    reader = Run(folder)
    assert reader.best.id == whole.best
    reader.close()


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from kept.run import resume, start
from kept.errors import KeptError
from kept.store.home import Home
from tests.engine.worlds import make_plan
if sys.argv[2] != "0":
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
plan, _, _ = make_plan(3, 8, 3)
try:
    folders = [path.parent for path in Path(sys.argv[1]).glob("runs/*/journal.jsonl")]
    asyncio.run(resume(plan, folders[0]) if folders else start(plan, Home(Path(sys.argv[1]))))
except KeptError as error:
    print(f"{type(error).__name__}: {error}")
    sys.exit(3)
"""


def run_into(folder: Path, limit: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(folder), str(limit)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("limit", [100, 700, 1500, 3000, 6000])
def test_a_file_that_cannot_grow_stops_the_run_and_the_rest_of_it_resumes(
    limit: int, run: tuple[Path, State], tmp_path: Path
):
    _, whole = run
    done = run_into(tmp_path / "full", limit)
    assert done.returncode == 3, done.stderr
    assert "JournalError: cannot write" in done.stdout
    assert os.strerror(errno.EFBIG) in done.stdout
    assert "Traceback" not in done.stderr
    (folder,) = (tmp_path / "full" / "runs").iterdir()
    if not (folder / "journal.jsonl").read_bytes():
        assert limit < 1500, "the first event is not that large"
        return
    assert resumed(folder).settled() == whole.settled()


def fill(path: Path) -> None:
    """Leave no byte of a disk free."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(b"x"):
            pass


@pytest.mark.slow
def test_a_full_disk_stops_the_run_and_the_rest_of_it_resumes(
    run: tuple[Path, State], tmp_path: Path
):
    _, whole = run
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk cannot be mounted here (needs root)")
    try:
        done = run_into(disk, 0)
        assert done.returncode == 3, done.stdout + done.stderr
        assert os.strerror(errno.ENOSPC) in done.stdout
        (folder,) = (disk / "runs").iterdir()
        fill(disk / "filler")
        before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        again = run_into(disk, 0)
        assert (again.returncode, again.stdout) != (0, ""), again.stderr
        assert os.strerror(errno.ENOSPC) in again.stdout and "free some space" in again.stdout
        assert "Traceback" not in again.stderr
        for name in ("journal.jsonl", "rollouts.jsonl", "blobs.pack"):
            assert (folder / name).read_bytes() == before[name]
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        assert resumed(folder).settled() == whole.settled()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("which", ["calls", "prompts"])
def test_a_database_on_a_full_disk_is_told_as_one(which: str, tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk cannot be mounted here (needs root)")
    path = disk / "a.db"
    try:
        path.touch()
        fill(disk / "filler")
        with pytest.raises(SetupError, match=os.strerror(errno.ENOSPC)) as caught:
            if which == "calls":
                CallCache(path)
            else:
                PromptRegistry(path, {"critic": "a text"}).record(an_epoch())
        assert "free some space" in str(caught.value)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_read_only_folder_is_a_clear_error(tmp_path: Path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        disk.chmod(0o555)
    try:
        done = run_into(disk / "home", 0)
        assert done.returncode == 3
        assert "JournalError: cannot write to" in done.stdout
        assert "KEPT_HOME" in done.stdout
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", str(disk)], check=True)


def test_a_process_may_open_as_many_files_as_before_once_a_run_is_over(tmp_path: Path):
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    plan, _, _ = make_plan(3, 8, 3)
    asyncio.run(start(plan, Home(tmp_path)))
    before = open_files()
    for _ in range(3):
        plan, _, _ = make_plan(3, 8, 3)
        asyncio.run(start(plan, Home(tmp_path)))
    assert open_files() == before
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 0


def test_what_could_not_be_packed_is_written_before_anything_refers_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = RunJournal(tmp_path / "run")
    address = journal.put(["a trace"])
    write = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    job = Job("c", "case", 0, "decide")
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(JournalError, match="No space"):
        journal.record([(0, job, Outcome({"score": 1.0}, trace=address))])
    monkeypatch.setattr(os, "write", write)
    journal.record([(0, job, Outcome({"score": 1.0}, trace=address))])
    journal.close()
    again = RunJournal(tmp_path / "run")
    assert again.put(["a trace"]) == address
    assert b"a trace" in (tmp_path / "run" / "blobs.pack").read_bytes()
    assert (tmp_path / "run" / "blobs.pack").read_bytes().count(b"a trace") == 1
    again.close()


class Loses:
    """A sink that takes the index of steps from under the run's feet."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def on_event(self, event: object, state: State) -> None:
        (index,) = self._home.glob("runs/*/steps.idx")
        for fd in Path("/proc/self/fd").iterdir():
            if fd.exists() and fd.resolve() == index:
                full = os.open("/dev/full", os.O_WRONLY)
                os.dup2(full, int(fd.name))
                os.close(full)


def half(candidate: kept.Candidate) -> float:
    return 0.5


def test_an_index_that_cannot_be_written_does_not_stop_a_run(tmp_path: Path):
    sinks = [Loses(tmp_path)]
    result = kept.optimize("a", half, proposers=["b", "c"], home=tmp_path, sinks=sinks)
    with kept.read_run(result.folder) as run:
        assert len(run.steps) == len(run.state.history) > 1


def test_what_cannot_be_read_or_written_is_told_with_what_to_do(tmp_path: Path):
    pack = Pack(tmp_path, writable=True)
    with pytest.raises(JournalError, match="has no entry gone") as caught:
        pack.get("gone")
    pack.close()
    assert caught.value.hint is not None and "restore it from a copy" in caught.value.hint
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match=os.strerror(errno.ENOTDIR)) as caught:
        swap_best(tmp_path / "file", Candidate({"text": "a"}))
    assert caught.value.hint is not None and "then resume" in caught.value.hint
