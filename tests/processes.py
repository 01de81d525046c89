"""Processes of tests: `kept` as a terminal starts it, and whether one is still there."""

import subprocess
import sys
import time
from pathlib import Path

from tests import warm


def start_kept(folder: Path, *words: str) -> subprocess.Popen[str]:
    """`kept` in a folder, the leader of a process group, with nothing of our environment."""
    return warm.Popen(
        [sys.executable, "-m", "kept", *words],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_running(pid: int) -> bool:
    """A process that has ended and waits to be fetched by its parent does not count."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def is_gone(pid: int, seconds: float = 30) -> bool:
    """Whether a process ends; one that was killed needs a moment to die."""
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def read_pid(path: Path, seconds: float = 30) -> int:
    """The pid that a command wrote to a file, once it has."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < deadline, f"nobody wrote {path}"
        time.sleep(0.005)
    return int(path.read_text())
