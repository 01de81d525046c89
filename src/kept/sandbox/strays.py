"""Processes that left the group of their command, found by a mark in their environment.

Works without any privilege, and against everything but a process that empties its environment.
Needs /proc; elsewhere nothing is found. Imports little, for it is also a script that `warden`
keeps running.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "KEPT_SANDBOX"
"""The variable that every command is started with."""

_ROUNDS = 50
"""A process that forks faster than we look is not chased for ever."""


def kill_strays(mark: str) -> None:
    """Kill every process that has the mark, or one that begins with it."""
    for _ in range(_ROUNDS):
        found = find(mark)
        if not found:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        # the dying can still be found
        time.sleep(0.001)


def find(mark: str) -> list[int]:
    """The living processes that have the mark."""
    wanted = f"{MARK}={mark}".encode()
    me = os.getpid()
    return [pid for pid in _pids() if pid != me and wanted in _environment(pid)]


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first; empty where the kernel does not tell."""
    found = _children(pid)
    for child in found:
        # grows while we go through it
        found.extend(_children(child))
    return found


def watch(mark: str) -> None:
    """Wait until stdin closes, which the end of Kept does; then clear up."""
    sys.stdin.buffer.read()
    kill_strays(mark)
    # a command that was just being started has its mark by now
    time.sleep(0.3)
    kill_strays(mark)


def _children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 # a Path for each would take longer than all the rest
    except OSError:
        return []


def _environment(pid: int) -> bytes:
    # empty for the dead that wait to be fetched, and refused for other users' processes
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 # as above
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    watch(sys.argv[1])
