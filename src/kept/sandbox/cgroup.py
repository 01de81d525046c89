"""Control groups for each command: count, limit and end its processes.

They need permission to create groups. Root is exempt from the shell's limit on processes, so only a
group's limit applies to it. Only a group limits the memory of several processes together. Nothing
escapes from a group, neither by its own session nor by an emptied environment.
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
"""Mount of cgroup v2; v1 has one mount per controller below it."""

_SWAP = ("memory.swap.max", "memory.memsw.limit_in_bytes")
"""Limits of swap: in v2 for swap alone, in v1 for memory and swap together."""

_numbers = count(1)


class Parents(NamedTuple):
    """Groups in which we may create groups; None if there is none."""

    pids: Path | None = None
    memory: Path | None = None


def find_parents() -> Parents:
    """Find the groups in which we may create others; remove leftovers of dead processes."""
    pids = _find("pids", ("pids.max",))
    memory = _find("memory", ("memory.max", "memory.limit_in_bytes"))
    for parent in {pids, memory} - {None}:
        assert parent is not None
        _sweep(parent)
    return Parents(pids, memory)


@contextmanager
def groups(parents: Parents, limits: Limits) -> Generator[tuple[Path, ...]]:
    """Create the groups of one command, which enters them; kill what is left in them."""
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
                    # each cgroup version has some of these files
                    if (path / name).exists():
                        (path / name).write_text(value)
        yield tuple(made)
    finally:
        for path in made:
            end(path)


def end(path: Path, seconds: float = 5.0) -> None:
    """Kill all processes of a group, and remove it."""
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
        # dying processes still count, so removal has to wait
        time.sleep(0.001)


def _find(controller: str, files: tuple[str, ...]) -> Path | None:
    """Group of a controller in which we may create groups that have one of these files."""
    for mount in (_ROOT / controller, _ROOT):
        parent = mount / _own_path(mount)
        # the reliable test is to create a group and look for its files
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
    """Path of our own group below the mount."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ""
    # v2 has an empty list of controllers in /proc/self/cgroup
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
