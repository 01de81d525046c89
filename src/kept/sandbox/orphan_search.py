"""Processes that left the group of their command, found by two marks that they inherit.

One is a variable. The other is a limit, which stays with a process that empties its environment:
on resident memory, which Linux has not enforced since 2.4, and so large that nobody who asks for it
minds. Works without any privilege, and against everything but a process that means to get away:
that can change its limits. Needs /proc; elsewhere nothing is found. Imports little, for it is also
a script that `warden` keeps running.
"""

import os
import resource
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "KEPT_SANDBOX"
"""The variable that every command is started with."""

_LEAST = 1 << 52
"""KiB of the smallest limit that is a mark."""

_UNMARKED = (_LEAST - 1) * 1024
"""Bytes of a limit that is no mark, and lower than all of them, so that anyone may set it."""

_COMMANDS = 1 << 24
"""Limits for the commands of one process."""

_DIGITS = 7
"""Of the random part of a mark that tell processes apart; with more, a limit would be too large."""

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
    wanted, limits = f"{MARK}={mark}".encode(), _limits(mark)
    me = os.getpid()
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 # a Path for each would take longer than all the rest
    except OSError:
        return []
    found: list[int] = []
    for pid in pids:
        if pid == me:
            continue
        try:
            resident = resource.prlimit(pid, resource.RLIMIT_RSS)[0] // 1024
        except OSError:
            # refused for other users' processes, and impossible for the dead
            resident = 0
        if resident in limits or wanted in _environment(pid):
            found.append(pid)
    return found


def limit(mark: str) -> int:
    """KiB of resident memory that a command with this mark gets as its limit."""
    return _limits(mark)[0]


def _limits(mark: str) -> range:
    """The limits of what has a mark: one of a command, many of what all commands begin with."""
    _, ours, number, *_ = f"{mark}..".split(".")
    if not ours:
        return range(0)
    first = _LEAST + int(ours[:_DIGITS], 16) * _COMMANDS
    if not number:
        return range(first, first + _COMMANDS)
    return range(first + int(number) % _COMMANDS, first + int(number) % _COMMANDS + 1)


def descendants(pid: int) -> list[int]:
    """All processes below one, parents first; empty where the kernel does not tell."""
    found = _children(pid)
    for child in found:
        # grows while we go through it
        found.extend(_children(child))
    return found


def watch(mark: str) -> None:
    """Wait until stdin closes, which the end of Kept does; then clear up."""
    # where Kept itself runs as a command of another Kept, that one's mark was inherited: it would
    # end this process together with its own Kept, and what it watches over would stay
    resource.setrlimit(resource.RLIMIT_RSS, (_UNMARKED, _UNMARKED))
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


def _environment(pid: int) -> bytes:
    # empty for the dead that wait to be fetched, and refused for other users' processes
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 # as above
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    watch(sys.argv[1])
