"""A process that outlives Kept by a moment, and takes the commands with it.

Whoever kills Kept with SIGKILL leaves it no time to end its commands. Behind walls the kernel sees
to that once the walls stand; for what has none, or is just being started, this watches.
"""

import os
import sys
from functools import cache
from itertools import count
from pathlib import Path

from kept.sandbox import orphan_search

_numbers = count(1)


def new_mark() -> str:
    """A mark for one command; the first one starts the warden."""
    return f"{_ours()}{next(_numbers)}."


@cache
def _ours() -> str:
    """What the marks of all commands of this process begin with."""
    ours = f"{os.getpid()}.{os.urandom(6).hex()}."
    if Path("/proc/self/environ").exists():
        _start(ours)
    return ours


def _start(ours: str) -> None:
    # the writer is never closed by hand: it closes when we end, however we end
    reader, _ = os.pipe()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # -I -S: as little as possible, for it may stay for days
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", orphan_search.__file__, ours],
        {},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_DUP2, nowhere, 1),
            (os.POSIX_SPAWN_DUP2, nowhere, 2),
        ],
        # away from the terminal, whose Ctrl-C is meant for us
        setsid=True,
    )
    os.close(reader)
    os.close(nowhere)
