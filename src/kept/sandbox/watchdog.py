"""Watchdog process that kills the process groups of commands when Kept dies.

Nothing ends the commands of a Kept that was killed by SIGKILL but this process, or bwrap once it
stands. It reads the process groups that start (`+PID`) and end (`-PID`) from a pipe. The pipe
closes when Kept ends, however it ends; then the watchdog kills the groups that are left. This
module is also the watchdog's script, so it imports little.
"""

import os
import signal
import sys
from contextlib import suppress
from functools import cache

ANNOUNCE = 'echo "+$$" >&0; exec </dev/null'
"""Shell words by which the leader of a group announces itself; its stdin has to be `pipe()`.

A command announces itself before Kept knows its pid, so that no moment is left in which Kept could
die and leave it running.
"""


@cache
def pipe() -> int:
    """Where groups are announced; starts the watchdog at the first call."""
    # the reader stays open here as well: a write must not fail where the watchdog was killed
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # -I -S: as little as possible, for it may stay for days
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__],
        {},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_DUP2, nowhere, 1),
            (os.POSIX_SPAWN_DUP2, nowhere, 2),
        ],
        # away from the terminal, whose Ctrl-C is meant for Kept
        setsid=True,
    )
    os.close(nowhere)
    return writer


# a fork of Kept may be killed while Kept lives on
os.register_at_fork(after_in_child=pipe.cache_clear)


def watch(pid: int) -> None:
    """Have the group that a process leads killed if Kept dies."""
    _write(f"+{pid}\n")


def forget(pid: int) -> None:
    """Say that a group has ended: its number may become that of another."""
    _write(f"-{pid}\n")


def _write(line: str) -> None:
    with suppress(BlockingIOError):
        os.write(pipe(), line.encode())


def main() -> None:
    """Read until Kept has ended, then kill what it left."""
    left: set[int] = set()
    for line in sys.stdin.buffer:
        with suppress(ValueError):
            number = int(line)
            left.add(number) if number > 0 else left.discard(-number)
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
