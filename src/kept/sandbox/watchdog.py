"""Watchdog process that kills the process groups of commands when Kept dies.

After a SIGKILL of Kept only this process ends its commands, or bwrap once it runs. It reads the
process groups that start (`+PID`) and end (`-PID`) from a pipe. The pipe closes when Kept ends,
however it ends; then the watchdog kills the remaining groups. This module is also the watchdog's
script, so it imports little.
"""

import os
import signal
import sys
from contextlib import suppress
from functools import cache

ANNOUNCE = 'echo "+$$" >&0; exec </dev/null'
"""Shell words with which the leader of a group announces itself; its stdin must be `pipe()`.

A command announces itself before Kept knows its pid. So there is no moment in which Kept could die
and leave it running.
"""


@cache
def pipe() -> int:
    """Return the pipe for announcing groups; start the watchdog at the first call."""
    # keep the reader open here as well: a write must not fail if the watchdog was killed
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # -I -S: load as little as possible, since it may stay for days
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", __file__],
        {},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_DUP2, nowhere, 1),
            (os.POSIX_SPAWN_DUP2, nowhere, 2),
        ],
        # its own session, since Ctrl-C in the terminal is meant for Kept
        setsid=True,
    )
    os.close(nowhere)
    return writer


# a fork needs its own watchdog: it may be killed while Kept lives on
os.register_at_fork(after_in_child=pipe.cache_clear)


def watch(pid: int) -> None:
    """Have the group that a process leads killed if Kept dies."""
    _write(f"+{pid}\n")


def forget(pid: int) -> None:
    """Report that a group has ended: another one may get its number."""
    _write(f"-{pid}\n")


def _write(line: str) -> None:
    with suppress(BlockingIOError):
        os.write(pipe(), line.encode())


def main() -> None:
    """Read until Kept has ended, then kill the remaining groups."""
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
