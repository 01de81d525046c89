"""Sandbox capabilities of this machine, found by building one sandbox."""

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
"""Key of `Abilities.enforced` for running in a sandbox at all."""

_SECONDS = 20
"""Seconds for each probe; a machine that needs longer for an empty command is too slow."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """Isolation features that work on this machine."""

    walls: bool
    """True if bwrap works."""
    overlay: bool
    """True if the candidate can be overlaid on a tree without copying it."""
    groups: Parents
    """Control groups in which each command gets its own groups."""
    calls: bool = False
    """True if a filter refuses the system calls that bypass the sandbox."""
    why_not: str = ""
    """Reason why bwrap, the overlay or the filter does not work."""

    def enforced(self, *, walls: bool = True) -> Mapping[str, bool]:
        """Guarantees by topic, True if held; `walls` is False for commands without a sandbox."""
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
    """Detect the capabilities of this machine, once per process."""
    groups = find_parents()
    for tool in ("bwrap", "unshare", "mount"):
        if shutil.which(tool) is None:
            return Abilities(walls=False, overlay=False, groups=groups, why_not=f"no `{tool}` here")
    with scratch_folder("probe") as folder:
        return _walls(folder, groups)


def calls_filter(view: View) -> bytes:
    """Seccomp filter for a view; empty if there is none for this processor."""
    return program(platform.machine(), sockets=view.network == "on") or b""


def _walls(folder: Path, groups: Parents) -> Abilities:
    """Try feature combinations, the best first."""
    first = ""
    (folder / "tree").mkdir()
    # the filter matters more than the overlay, in place of which trees can be copied
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
    """Build a sandbox around an empty command; return the error, or an empty text."""
    site, tree = folder / "scratch" / f"{overlay}-{calls}" / "w", folder / "tree"
    for name in ("candidate", "output", "layers"):
        (site / name).mkdir(parents=True)
    (site / "candidate" / "new").touch()
    (site / "tree").symlink_to(tree)
    view = View(tree)
    command = Command("true", tree, view=view)
    # with an overlay: the candidate's file is visible in the tree, and writes succeed
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
