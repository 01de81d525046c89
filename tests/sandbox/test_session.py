"""A Ctrl-C is ours, also when it comes just as a process is started."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

STARTS = 300
PROGRAM = f"""
import signal, subprocess, sys
from kept.sandbox import start_alone
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
    return int(process.communicate(timeout=30)[0])


@pytest.mark.slow
def test_a_signal_to_our_group_does_not_reach_what_is_just_being_started():
    assert hit("alone") == 0
    # the same without it, or the test would show nothing
    assert sum(hit("bare") for _ in range(4)) > 0
