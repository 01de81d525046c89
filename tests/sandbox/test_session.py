"""A Ctrl-C is ours, also when it comes just as a process is started."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kept.sandbox.process import start_alone

STARTS = 300
PROGRAM = f"""
import signal, subprocess, sys
from kept.sandbox.process import start_alone
signal.signal(signal.SIGINT, lambda *_: None)
print("ready", flush=True)
def start():
    return subprocess.Popen(["/bin/true"], start_new_session=True)
begin = {{"alone": start_alone, "bare": lambda start: start()}}[sys.argv[1]]
print(sum(begin(start).wait() != 0 for _ in range({STARTS})))
"""


def hit(way: str) -> int:
    """How many of many processes died of the Ctrl-Cs that their starter got all the while."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, way],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.001)
    return int(process.communicate(timeout=120)[0])


@pytest.mark.slow
def test_a_signal_to_our_group_does_not_reach_what_is_just_being_started():
    assert hit("alone") == 0
    # the same without it, or the test would show nothing
    assert sum(hit("bare") for _ in range(4)) > 0


@pytest.mark.parametrize("number", ["TERM", "KILL"])
def test_a_command_that_ends_itself_by_a_signal_runs_once(number: str, tmp_path: Path):
    # not by those that whoever started the tests may have had ignored: `nohup` does
    runs = tmp_path / "runs"
    line = f"echo run >> {runs}; kill -{number} $$"
    for _ in range(30):
        process = start_alone(
            lambda: subprocess.Popen(["/bin/sh", "-c", line], start_new_session=True)
        )
        assert process.wait() == -signal.Signals[f"SIG{number}"]
    assert runs.read_text().count("run") == 30


@pytest.mark.slow
def test_where_nobody_waits_for_children_a_process_is_started_once():
    program = (
        "import signal, subprocess\n"
        "from kept.sandbox.process import start_alone\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "start = lambda: subprocess.Popen(['/bin/true'], start_new_session=True)\n"
        "for _ in range(100):\n"
        "    start_alone(start).wait()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
