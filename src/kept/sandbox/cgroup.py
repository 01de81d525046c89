"""A control group for each command, where we may make one: counts and ends all its processes.

Root is exempt from the shell's limit on processes, so this is the only one that holds for it.
Nothing escapes from a group, neither by a session of its own nor by an emptied environment.
"""

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

_MOUNTS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))
"""Where the first and the second version of control groups have their `pids.max`."""

_numbers = count(1)


def find_parent() -> Path | None:
    """The group that we may make groups in, if there is one; takes away what the dead left."""
    for mount in _MOUNTS:
        parent = mount / _own_path(mount)
        group = parent / f"kept-{os.getpid()}-0"
        try:
            group.mkdir()
        except OSError:
            continue
        usable = (group / "pids.max").exists()
        group.rmdir()
        if usable:
            _sweep(parent)
            return parent
    return None


@contextmanager
def group(parent: Path | None, processes: int | None) -> Generator[Path | None]:
    """A group for one command; None where there is none to be had. Kills what is left in it."""
    if parent is None or processes is None:
        yield None
        return
    path = parent / f"kept-{os.getpid()}-{next(_numbers)}"
    try:
        path.mkdir()
        (path / "pids.max").write_text(str(processes))
    except OSError:
        yield None
        return
    try:
        yield path
    finally:
        end(path)


def end(path: Path, seconds: float = 5.0) -> None:
    """Kill everything in a group, and remove it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for pid in members(path):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            path.rmdir()
            return
        # the dying are still counted
        time.sleep(0.001)


def members(path: Path) -> list[int]:
    """The processes of a group."""
    try:
        return [int(line) for line in (path / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _own_path(mount: Path) -> str:
    """The group we are in ourselves, below the mount."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if (mount.name == "pids" and controllers == "pids") or (
            mount.name != "pids" and not controllers
        ):
            return path.lstrip("/")
    return ""


def _sweep(parent: Path) -> None:
    """Remove the empty groups of processes that were killed."""
    for path in parent.glob("kept-*-*"):
        pid = path.name.split("-")[1]
        if not Path("/proc", pid).exists():
            with suppress(OSError):
                path.rmdir()
