"""What this machine can do to hold a command, found out by doing it once."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kept.sandbox.bwrap import Site, program, walled
from kept.sandbox.cgroup import Parents, find_parents
from kept.sandbox.command import Command, View
from kept.sandbox.process import Status
from kept.sandbox.temp_dirs import scratch_folder

SANDBOX = "sandbox"
"""Among what is enforced: whether commands run in one at all."""

_SECONDS = 20
"""A machine that needs longer for a command that does nothing is not to be waited for."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What holds here."""

    walls: bool
    """Whether bwrap works."""
    overlay: bool
    """Whether a tree can be laid under the candidate without copying it."""
    groups: Parents
    """The control groups in which each command gets some of its own."""
    calls: bool = False
    """Whether walls refuse the system calls that lead round them."""
    why_not: str = ""
    """What keeps bwrap, the overlay or that filter from working."""

    def enforced(self, *, walls: bool = True) -> Mapping[str, bool]:
        """By what it is about, whether it holds for a command that wants walls, or wants none."""
        up = walls and self.walls
        counted = self.groups.pids is not None or (up and os.geteuid() != 0)
        return {
            SANDBOX: up,
            "network": up,
            "files outside the tree are read-only": up,
            "hidden files cannot be read": up,
            "no system call leads round the walls": up and self.calls,
            "no process outlives its command": up or self.groups.pids is not None,
            "size of the output folder while a command runs": up,
            "number of processes": counted,
            "cpu, memory and file size": sys.platform == "linux",
            "memory of all processes together": self.groups.memory is not None,
        }


@cache
def abilities() -> Abilities:
    """What this machine can do; found out once in the life of a process."""
    groups = find_parents()
    for tool in ("bwrap", "unshare", "mount"):
        if shutil.which(tool) is None:
            return Abilities(walls=False, overlay=False, groups=groups, why_not=f"no `{tool}` here")
    with scratch_folder("probe") as folder:
        return _walls(folder, groups)


def calls_filter(view: View) -> bytes:
    """The filter of system calls for what a command may see; empty where there is none."""
    return program(platform.machine(), sockets=view.network == "on") or b""


def _walls(folder: Path, groups: Parents) -> Abilities:
    """The best that can be built here."""
    first = ""
    (folder / "tree").mkdir()
    for overlay, calls in ((True, True), (False, True), (True, False), (False, False)):
        if calls and not calls_filter(View(folder)):
            first = first or f"no filter of system calls for {platform.machine()}"
            continue
        trouble = _trouble(folder, overlay=overlay, calls=calls)
        if not trouble:
            return Abilities(walls=True, overlay=overlay, groups=groups, calls=calls, why_not=first)
        first = first or trouble
    return Abilities(walls=False, overlay=False, groups=groups, why_not=first)


def _trouble(folder: Path, *, overlay: bool, calls: bool) -> str:
    """Build walls round nothing; what went wrong, empty if it worked."""
    site, tree = folder / "scratch" / f"{overlay}-{calls}" / "w", folder / "tree"
    for name in ("candidate", "output", "layers"):
        (site / name).mkdir(parents=True)
    (site / "candidate" / "new").touch()
    (site / "tree").symlink_to(tree)
    view = View(tree)
    command = Command("true", tree, view=view)
    test = 'test -e "$1/new" && : > "$1/written"' if overlay else "true"
    inner = ["/bin/sh", "-c", test, "kept", str(tree)]
    try:
        with Status(calls_filter(view) if calls else b"") as status:
            words = walled(command, Site(site, None if overlay else tree), status, inner)
            done = subprocess.run(
                words,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                pass_fds=status.fds,
                timeout=_SECONDS,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else f"exit {done.returncode}"
