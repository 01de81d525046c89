"""Ctrl-C on a real process: what is in flight, what is left running, how it goes on."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kept.engine.stop import stop_signals
from tests.processes import start_kept
from tests.ui.cli.tasks import RUN, kept, write_task

pytestmark = pytest.mark.slow

# Its own pid and that of its child, then a wait, then word that it came to its end.
SLOW_RUN = f"""
echo $$ >>"$TMPDIR/pids"
sleep "$(cat "$TMPDIR/seconds")" & echo $! >>"$TMPDIR/pids"
wait $!
{RUN}
echo done >>"$TMPDIR/done"
"""


# The pids of a command are those of this machine, and its $TMPDIR is ours.
NO_WALLS = ("--set", "sandbox.walls=off")


class Sitting:
    """`kept optimize` as a terminal would start it: the leader of a process group."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        write_task(folder, run=SLOW_RUN)
        (folder / "seconds").write_text(str(seconds))
        self.process = start_kept(folder, "optimize", "task.yaml", *NO_WALLS)

    def pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(6000):
            if condition():
                return
            time.sleep(0.01)
        self.process.kill()
        raise AssertionError(f"never happened: {self.process.communicate()}")

    def in_flight(self) -> None:
        """Wait until a rollout waits for its child."""
        self.until(lambda: len(self.pids()) >= 2)

    def press_ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, seconds: float) -> tuple[int, str]:
        """The exit code and what was said on stderr; fails when it takes longer."""
        try:
            _, said = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return self.process.returncode, said

    def left_running(self) -> list[int]:
        return [pid for pid in self.pids() if is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # a zombie whose new parent has not looked yet runs no more
    return status != "Z"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_once_it_lets_what_is_in_flight_finish_and_can_be_resumed(
    here: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
):
    sitting = Sitting(here, seconds=1)
    sitting.in_flight()
    os.killpg(sitting.process.pid, number)
    code, said = sitting.end(seconds=120)
    assert code == 130
    assert (here / "done").read_text().split() == ["done"] * (len(sitting.pids()) // 2)
    assert sitting.left_running() == []
    assert "what is in flight may finish" in said
    assert "Traceback" not in said
    resume = said.partition("interrupted: `kept ")[2].partition("`")[0]
    assert resume.startswith("resume ")
    rollouts = len(sitting.pids()) // 2
    # the same task, but quick
    (here / "seconds").write_text("0")
    monkeypatch.setenv("TMPDIR", str(here))
    finished = kept(*resume.split(), "--json").json
    assert finished["status"] == "finished"
    # five candidates, two more runs of the seed, and one more of each of two that were kept
    assert (finished["best"]["value"], finished["spend"]["rollouts"]) == (3, 5 + 2 + 1 * 2)
    assert rollouts < 5 + 2 + 1 * 2


def test_asked_twice_it_stops_at_once_and_leaves_nothing_running(here: Path):
    sitting = Sitting(here, seconds=60)
    sitting.in_flight()
    sitting.press_ctrl_c()
    time.sleep(0.3)
    assert sitting.process.poll() is None
    asked = time.monotonic()
    sitting.press_ctrl_c()
    code, said = sitting.end(seconds=120)
    assert code == 130
    assert time.monotonic() - asked < 50
    assert sitting.left_running() == []
    assert not (here / "done").exists()
    assert "stopping at once" in said
    assert "kept resume" in said


def test_the_terminal_gets_its_cursor_back_after_ctrl_c(here: Path):
    write_task(here, run=SLOW_RUN.format(seconds=1))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kept", "optimize", "task.yaml", *NO_WALLS],
        cwd=here,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(here), "TERM": "xterm", "LANG": "C.UTF-8"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    pressed = False
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # what Linux says when the other side has closed
            break
        shown += chunk
        if not pressed and b"proposals" in shown and (here / "pids").exists():
            os.killpg(process.pid, signal.SIGINT)
            pressed = True
    os.close(ours)
    assert process.wait() == 130
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert b"kept resume" in shown


def test_a_terminal_that_closes_leaves_a_run_that_can_be_resumed(here: Path):
    write_task(here, run=SLOW_RUN)
    (here / "seconds").write_text("1")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "kept", "optimize", "task.yaml", *NO_WALLS]
    # `setsid --ctty`: the terminal is its own, so that closing it sends SIGHUP
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command],
        cwd=here,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(here), "TERM": "xterm", "LANG": "C.UTF-8"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    while b"proposals" not in shown or not (here / "pids").exists():
        shown += os.read(ours, 4096)
    os.close(ours)
    assert process.wait(60) == 130
    (folder,) = (here / ".kept" / "runs").iterdir()
    assert "interrupted" in (folder / "report.md").read_text()


def test_a_signal_that_nohup_or_a_host_program_handles_is_left_alone():
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, is_ours in ((signal.SIG_DFL, True), (signal.SIG_IGN, False), (print, False)):
            signal.signal(signal.SIGHUP, handler)
            assert (signal.SIGHUP in stop_signals()) == is_ours
    finally:
        signal.signal(signal.SIGHUP, before)
