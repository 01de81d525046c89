"""A process away from our terminal, whose Ctrl-C is meant for us."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_OURS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What a terminal or a supervisor sends to a whole group."""

_LOOKS = 50
"""At what is dying and not dead; a program may also have wiped out its own words."""


def start_alone(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process that gets a session of its own (`start_new_session`), whatever comes.

    Until it has that session it is one of our group, and a signal to the group ends it before it
    is the program it was to be. Then nothing has happened yet: it is started again, or a Ctrl-C
    would be taken for the command's own failure.
    """
    while True:
        # returns once the child has become the program, or is dead
        process = start()
        if not _hit(process.pid):
            return process
        # waits for it, and closes its pipes
        process.__exit__(None, None, None)


def _hit(pid: int) -> bool:
    """Whether a signal to our group ended it: while it was in it, or just as it left."""
    if os.getpgid(pid) != pid:
        return True
    ended = _end_of(pid)
    for _ in range(_LOOKS):
        if ended is not None or not _dying(pid):
            break
        time.sleep(0.001)
        ended = _end_of(pid)
    return ended is not None and ended.si_code == os.CLD_KILLED and ended.si_status in _OURS


def _end_of(pid: int) -> os.waitid_result | None:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)


def _dying(pid: int) -> bool:
    """Whether it has no memory any more, and so no words it was started with."""
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
