import asyncio
import importlib
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.rollout import Failure
from kept.sandbox import orphan_search
from kept.sandbox import process as process_module
from kept.sandbox.capabilities import abilities
from kept.sandbox.cgroup import Parents
from kept.sandbox.command import Command, Exit
from kept.sandbox.execute import execute
from tests.processes import is_gone, is_running, read_pid


def run(line: str, cwd: Path, *, seconds: float = 10, env: Mapping[str, str] | None = None) -> Exit:
    ended = asyncio.run(execute(Command(line, cwd, seconds, env or {}), {}))
    assert isinstance(ended, Exit)
    return ended


def run_out(line: str, cwd: Path, *begun: str) -> Exit:
    """Its end by a limit, the first by which it had begun and said so in these files."""
    for seconds in (0.3, 3, 30):
        ended = run(line, cwd, seconds=seconds)
        if all((cwd / name).exists() for name in begun):
            break
    return ended  # pyright: ignore[reportPossiblyUnbound] # it ran


def test_a_command_says_what_it_says_and_ends_as_it_ends(tmp_path: Path):
    ended = run("pwd; echo oops >&2; exit 3", tmp_path)
    assert ended == Exit(3, f"{tmp_path.resolve()}\n", "oops\n")
    assert str(ended) == "exit 3: oops"
    assert not ended.ok


def test_a_command_has_nothing_to_read(tmp_path: Path):
    assert run("cat; echo done", tmp_path).stdout == "done\n"


def test_only_named_variables_reach_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    monkeypatch.setenv("LANG", "C.UTF-8")
    ended = run("env", tmp_path, env={"MODE": "dry run"})
    assert "hunter2" not in ended.stdout
    seen = dict(line.split("=", 1) for line in ended.stdout.splitlines())
    assert seen["MODE"] == "dry run"
    assert seen["LANG"] == "C.UTF-8"
    of_the_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    passed = {
        "PATH",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
        "MODE",
        "KEPT_SANDBOX",
    }
    assert seen.keys() <= of_the_shell | passed


def test_python_is_the_one_that_runs_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ended = run("python -c 'import sys; print(sys.prefix)'", tmp_path)
    assert ended.stdout.strip() == sys.prefix


def test_a_command_that_is_killed_says_by_what(tmp_path: Path):
    assert str(run("kill -KILL $$", tmp_path)) == "killed by SIGKILL"
    assert str(run("exit 137", tmp_path)) == "killed by SIGKILL"


def test_of_much_output_the_end_is_kept_and_the_writer_never_waits(tmp_path: Path):
    line = "seq 1 100000; echo last; seq 1 100000 >&2"
    ended = asyncio.run(execute(Command(line, tmp_path, 10, most_text=1000), {}))
    assert isinstance(ended, Exit)
    assert ended.ok
    assert ended.stdout.startswith("… 587900 bytes left out …\n")
    assert ended.stdout.endswith("100000\nlast\n")
    assert len(ended.stderr) < 1100


def test_output_that_is_not_text_is_shown_as_well_as_it_can_be(tmp_path: Path):
    assert run(r"printf 'a\377b'", tmp_path).stdout == "a\ufffdb"


def test_a_timeout_ends_the_whole_group(tmp_path: Path):
    started = time.monotonic()
    ended = run_out("sleep 100 & echo $! > pid; sleep 100", tmp_path, "pid")
    assert ended.timed_out
    assert not ended.ok
    assert time.monotonic() - started < 80
    assert is_gone(read_pid(tmp_path / "pid"))


def test_who_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_module, "GRACE", 0.1)
    line = "trap '' TERM; sh -c 'echo $$ > pid; while :; do sleep 1; done' & echo $$ > own; wait"
    ended = run_out(line, tmp_path, "pid", "own")
    assert ended.timed_out
    assert is_gone(read_pid(tmp_path / "pid"))
    assert is_gone(read_pid(tmp_path / "own"))


def test_a_command_gets_the_time_to_say_goodbye(tmp_path: Path):
    ended = run_out("trap 'echo bye; exit' TERM; : > begun; sleep 100 & wait", tmp_path, "begun")
    assert (ended.timed_out, ended.stdout) == (True, "bye\n")


def test_what_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path):
    started = time.monotonic()
    ended = run("sleep 100 & echo $! > pid", tmp_path)
    assert ended.ok
    assert time.monotonic() - started < 80
    assert is_gone(read_pid(tmp_path / "pid"))


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("pid", "w") as file:
            print(os.getpid(), file=file)
        os.closerange(0, 1000)
        os.execve("/bin/sleep", ["sleep", "100"], {})
    os._exit(0)
os.wait()
while not os.path.exists("pid"):
    time.sleep(0.001)
"""


@pytest.fixture
def without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    able = replace(abilities(), groups=Parents())
    # the package has a function of the module's name
    module = importlib.import_module("kept.sandbox.execute")
    monkeypatch.setattr(module, "abilities", lambda: able)


@pytest.mark.usefixtures("without_groups")
def test_without_control_groups_a_daemon_with_an_emptied_environment_ends_too(tmp_path: Path):
    (tmp_path / "daemon.py").write_text(DAEMON)
    assert run("python daemon.py", tmp_path).ok
    assert is_gone(read_pid(tmp_path / "pid"))


@pytest.mark.usefixtures("without_groups")
def test_a_command_leaves_the_strays_of_others_alone(tmp_path: Path):
    async def both() -> tuple[int, Exit | Failure]:
        other = asyncio.create_task(execute(Command("echo $$ > pid; exec sleep 100", tmp_path), {}))
        pid = await asyncio.to_thread(read_pid, tmp_path / "pid")
        ended = await execute(Command("true", tmp_path), {})
        assert is_running(pid)
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        return pid, ended

    pid, ended = asyncio.run(both())
    assert isinstance(ended, Exit)
    assert is_gone(pid)


def test_the_mark_of_a_command_is_a_limit_that_no_memory_reaches(tmp_path: Path):
    one, other = orphan_search.limit("7.a1b2c3d4e5f6.1."), orphan_search.limit("7.a1b2c3d4e5f6.2.")
    elsewhere = orphan_search.limit("7.ffffffffffff.1.")
    assert len({one, other, elsewhere}) == 3
    assert all(1 << 52 <= limit < 1 << 53 for limit in (one, other, elsewhere))
    limit = run("ulimit -m", tmp_path).stdout
    assert 1 << 52 <= int(limit) < 1 << 53


def test_cancelling_leaves_no_process(tmp_path: Path):
    async def cancel() -> tuple[int, int]:
        line = "echo $$ > own; sleep 100 & echo $! > pid; wait"
        task = asyncio.create_task(execute(Command(line, tmp_path), {}))
        pids = await asyncio.gather(
            asyncio.to_thread(read_pid, tmp_path / "own"),
            asyncio.to_thread(read_pid, tmp_path / "pid"),
        )
        assert all(map(is_running, pids))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pids

    assert all(map(is_gone, asyncio.run(cancel())))


def test_cancelling_twice_does_not_wait_for_the_deaf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process_module, "GRACE", 100.0)

    async def cancel() -> int:
        line = "trap '' TERM; echo $$ > own; while :; do sleep 1; done"
        task = asyncio.create_task(execute(Command(line, tmp_path), {}))
        pid = await asyncio.to_thread(read_pid, tmp_path / "own")
        task.cancel()
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return pid

    started = time.monotonic()
    assert is_gone(asyncio.run(cancel()))
    assert time.monotonic() - started < 80


def test_without_pidfd_commands_end_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr("os.pidfd_open")
    assert run("exit 4", tmp_path).code == 4
    ended = run_out("sleep 100 & echo $! > pid; sleep 100", tmp_path, "pid")
    assert ended.timed_out
    assert is_gone(read_pid(tmp_path / "pid"))


def test_no_descriptor_stays_open(tmp_path: Path):
    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def many() -> None:
        await asyncio.gather(*(execute(Command("exit 0", tmp_path), {}) for _ in range(5)))

    asyncio.run(many())
    before = count()
    asyncio.run(many())
    assert count() == before


def test_a_command_in_a_folder_that_is_gone_is_no_candidates_fault(tmp_path: Path):
    failure = asyncio.run(execute(Command("true", tmp_path / "gone"), {}))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("harness", "infrastructure")
    assert "No such file" in failure.message


def test_the_warden_of_a_kept_inside_a_command_is_not_taken_for_one_of_its_strays():
    outer, inner = "7.a1b2c3d4e5f6.1.", "8.ffffffffffff."
    line = f'ulimit -m {orphan_search.limit(outer)}; exec "$0" -I -S "$1" {inner}'
    started = ["sh", "-c", line, sys.executable, orphan_search.__file__]
    with subprocess.Popen(started, stdin=subprocess.PIPE) as warden:
        until = time.monotonic() + 20
        # before the shell has become the warden it may not have the mark yet, and be found later
        is_warden = f"{orphan_search.__file__}\0{inner}\0".encode()
        of_process = Path(f"/proc/{warden.pid}/cmdline")
        while not of_process.read_bytes().endswith(is_warden) and time.monotonic() < until:
            time.sleep(0.01)
        while warden.pid in orphan_search.find(outer) and time.monotonic() < until:
            time.sleep(0.01)
        found = orphan_search.find(outer)
        assert warden.stdin is not None
        warden.stdin.close()
    assert warden.pid not in found
    assert warden.returncode == 0
