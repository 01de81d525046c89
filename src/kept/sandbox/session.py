"""A process away from our terminal, whose Ctrl-C is meant for us."""

import subprocess
from collections.abc import Callable
from pathlib import Path

_NEVER_BEGAN = 0x40
"""The kernel's flag of a process that has not become a program since it was forked."""


def start_alone(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process that gets a session of its own (`start_new_session`), whatever comes.

    Until it has that session it is one of our group, and a signal to the group ends it before it
    is the program it was to be. Then nothing has happened yet: it is started again, or a Ctrl-C
    would be taken for the command's own failure. Needs /proc; elsewhere it is started once.
    """
    while True:
        # returns once the child has become the program, or is dead or dying
        process = start()
        if not _never_began(process.pid):
            return process
        # waits for it, and closes its pipes
        process.__exit__(None, None, None)


def _never_began(pid: int) -> bool:
    try:
        told = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        # there is no /proc; or nobody waits for children here, and it is over and gone
        return False
    # after the name, which stands in brackets and may hold anything
    flags = int(told.rpartition(")")[2].split()[6])
    return bool(flags & _NEVER_BEGAN)
