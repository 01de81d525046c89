"""A process that serves, with walls round it where this machine can build them.

It sees what we see, and writes to folders of its own: `/tmp` and its home, which are held in memory
between walls. Without walls it is only asked to, and `abilities` says so.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shlex import join

from kept.sandbox import cgroup, orphan_search, warden
from kept.sandbox.capabilities import abilities, calls_filter
from kept.sandbox.child import Child
from kept.sandbox.command import Command, Limits, Network, View
from kept.sandbox.limits import shell
from kept.sandbox.running import Status
from kept.sandbox.scratch import scratch_folder
from kept.sandbox.walls import INSIDE, Site, walled
from kept.settings import child_environment

_READ_ONLY = "[Errno 30]"
"""How Python says that a file cannot be written to because nothing there can."""

_PR_SET_DUMPABLE = 4
"""As linux/prctl.h has it."""

_DAY = 86_400.0
"""Seconds that it may serve; of its processors it may use many times that."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where a process serves, and what it sees."""

    folder: Path
    """It runs here, and may read what is here."""
    seen: tuple[Path, ...] = ()
    """Further files and folders that it needs, wherever they lie."""
    network: Network = "none"
    passed_on: tuple[str, ...] = ()
    """Further variables of our environment that it may see."""
    limits: Limits = field(default_factory=Limits)


def _linked(folder: Path) -> tuple[Path, ...]:
    """What links in a folder lead to: a candidate's folder has the agent's own files so."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return tuple(entry for entry in entries if entry.is_symlink() and entry.exists())


def start_confined(argv: Sequence[str], room: Room) -> Child:
    """Start it; raises `OSError` where it cannot be."""
    able = abilities()
    folder = room.folder.resolve()
    seen = (folder, *(path.resolve() for path in (*room.seen, *_linked(folder))))
    # what lies in its own folder is its own, be it called `.env`
    view = View(folder, seen=seen, readable=(folder,), network=room.network, bare=True)
    command = Command(f"exec {join(argv)}", folder, _DAY, limits=room.limits, view=view)
    mark = warden.new_mark()
    open_ = ExitStack()
    try:
        scratch = open_.enter_context(scratch_folder("serve"))
        groups = open_.enter_context(cgroup.groups(able.groups, room.limits))
        own = {"HOME": str(scratch), "TMPDIR": str(scratch), orphan_search.MARK: mark}
        if not able.walls:
            open_.callback(orphan_search.kill_strays, mark)
            words = shell(command, groups=groups, mark=mark)
            environment = child_environment(own, room.passed_on)
            return Child(words, folder, environment, after=open_.close)
        status = open_.enter_context(Status(calls_filter(view) if able.calls else b""))
        site = Site(scratch / "serve" / "w", groups=groups)
        # the shell's limit on processes holds for everyone but root
        words = walled(command, site, status, shell(command, count=os.geteuid() != 0))
        own |= {"HOME": str(INSIDE / "home"), "TMPDIR": "/tmp"}
        environment = child_environment(own, room.passed_on)
        return Child(words, Path("/"), environment, status.fds, open_.close)
    except BaseException:
        open_.close()
        raise


def start_apart(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Child:
    """Start a process that sees all files that we see, and no process but its own.

    Whoever sees our processes reads our environment from /proc: keys are in that of Kept, and in
    that of the shell that started it. Raises `OSError` where it cannot be started.
    """
    if not abilities().walls:
        _forbid_reading()
        return Child(argv, folder, environment)
    words = ["bwrap", "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/"]
    words += ["--proc", "/proc"]
    if os.geteuid() == 0:
        # root could take the mount away under which our own /proc lies
        words += ["--cap-drop", "CAP_SYS_ADMIN", "--cap-drop", "CAP_SYS_PTRACE"]
    return Child([*words, "--chdir", str(folder), "--", *argv], folder, environment)


@cache
def _forbid_reading() -> None:
    """Have nobody but root read the memory and the environment of this process."""
    # at use: few machines need it
    import ctypes

    with suppress(OSError, AttributeError):  # not on Linux
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def explained(words: str) -> str:
    """What a process says went wrong, and why, where the walls are what it ran into."""
    if _READ_ONLY not in words or not abilities().walls:
        return words
    return f"{words} (between walls only its own /tmp can be written to)"
