"""Process groups that are killed when Kept dies without ending them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import is_gone, is_running, read_pid

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from kept.sandbox import watchdog
from kept.sandbox.command import Command
from kept.sandbox.process import shell

line = "sleep 100 & echo $! > inner; echo $$ > own; cat; sleep 100"
how = sys.argv[1]
words = shell(Command(line, Path.cwd()), announced=how == "announced")
stdin = watchdog.pipe() if how == "announced" else subprocess.DEVNULL
process = subprocess.Popen(words, stdin=stdin, start_new_session=True)
if how != "announced":
    watchdog.watch(process.pid)
while not Path("own").exists():
    pass
if how == "forgotten":
    watchdog.forget(process.pid)
os.kill(os.getpid(), 9)
"""


def start(how: str, folder: Path) -> tuple[int, int]:
    """Pids of a group's leader and of its child, whose Kept has been killed."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], cwd=folder, check=False)
    assert done.returncode == -9
    return read_pid(folder / "own"), read_pid(folder / "inner")


@pytest.mark.kill
@pytest.mark.parametrize("how", ["announced", "watched"])
def test_a_group_ends_with_a_kept_that_was_killed(how: str, tmp_path: Path):
    assert all(map(is_gone, start(how, tmp_path)))


@pytest.mark.kill
def test_a_group_that_ended_before_is_left_alone(tmp_path: Path):
    forgotten, inner = start("forgotten", tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    # the watchdog of the first has ended long before that of the second
    assert all(map(is_gone, start("watched", other)))
    assert is_running(forgotten)
    subprocess.run(["kill", "-9", str(forgotten), str(inner)], check=True)


WITHOUT = """
import asyncio, os
from pathlib import Path
from kept.sandbox import watchdog
from kept.sandbox.command import Command
from kept.sandbox.execute import execute
from kept.sandbox.process import descendants

watchdog.pipe()
(pid,) = descendants(os.getpid())
os.kill(pid, 9)
os.waitpid(pid, 0)
for number in range(20_000):
    watchdog.forget(1 << 22 | number)
print(asyncio.run(execute(Command("cat; echo done", Path.cwd()), {})))
"""


@pytest.mark.kill
def test_commands_run_as_before_where_the_watchdog_was_killed(tmp_path: Path):
    words = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("exit 0\n", "")
