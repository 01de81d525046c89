"""Control groups for each command, where we may make them: count, bound and end its processes.

Root is exempt from the shell's limit on processes, so this is the only one that holds for it; and
only a group bounds the memory of several processes together. Nothing escapes from a group, neither
by a session of its own nor by an emptied environment.
"""

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from kept.sandbox.command import Limits

_ROOT = Path("/sys/fs/cgroup")
"""Where the second version of control groups is; the first has a mount a controller there."""

_SWAP = ("memory.swap.max", "memory.memsw.limit_in_bytes")
"""What bounds the memory that is swapped out: of its own, and together with the rest."""

_numbers = count(1)


class Parents(NamedTuple):
    """The groups that we may make groups in; None where there is none."""

    pids: Path | None = None
    memory: Path | None = None


def find_parents() -> Parents:
    """Where we may make groups; takes away what the dead left."""
    pids = _find("pids", ("pids.max",))
    memory = _find("memory", ("memory.max", "memory.limit_in_bytes"))
    for parent in {pids, memory} - {None}:
        assert parent is not None
        _sweep(parent)
    return Parents(pids, memory)


@contextmanager
def groups(parents: Parents, limits: Limits) -> Generator[tuple[Path, ...]]:
    """The groups of one command, to be entered by it; kills what is left in them."""
    number = next(_numbers)
    wanted: dict[Path, dict[str, str]] = {}
    if parents.pids is not None and limits.processes is not None:
        wanted[parents.pids] = {"pids.max": str(limits.processes)}
    if parents.memory is not None and limits.memory is not None:
        size = str(limits.memory)
        files = dict.fromkeys(("memory.max", "memory.limit_in_bytes"), size)
        files |= {_SWAP[0]: "0", _SWAP[1]: size}
        wanted.setdefault(parents.memory, {}).update(files)
    made: list[Path] = []
    try:
        for parent, files in wanted.items():
            path = parent / f"kept-{os.getpid()}-{number}"
            with suppress(OSError):
                path.mkdir()
                made.append(path)
                for name, value in files.items():
                    # each version of control groups has some of them
                    if (path / name).exists():
                        (path / name).write_text(value)
        yield tuple(made)
    finally:
        for path in made:
            end(path)


def end(path: Path, seconds: float = 5.0) -> None:
    """Kill everything in a group, and remove it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            pids = [int(line) for line in (path / "cgroup.procs").read_text().split()]
        except OSError:
            pids = []
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            path.rmdir()
            return
        # the dying are still counted
        time.sleep(0.001)


def _find(controller: str, files: tuple[str, ...]) -> Path | None:
    """The group of a controller that we may make groups in, which then have one of these files."""
    for mount in (_ROOT / controller, _ROOT):
        parent = mount / _own_path(mount)
        group = parent / f"kept-{os.getpid()}-0"
        try:
            group.mkdir()
        except OSError:
            continue
        usable = any((group / name).exists() for name in files)
        group.rmdir()
        if usable:
            return parent
    return None


def _own_path(mount: Path) -> str:
    """The group we are in ourselves, below the mount."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    wanted = "" if mount == _ROOT else mount.name
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == wanted:
            return path.lstrip("/")
    return ""


def _sweep(parent: Path) -> None:
    """Remove the empty groups of processes that were killed."""
    for path in parent.glob("kept-*-*"):
        pid = path.name.split("-")[1]
        if not Path("/proc", pid).exists():
            with suppress(OSError):
                path.rmdir()
