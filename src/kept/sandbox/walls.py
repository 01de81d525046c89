"""The walls round a command: what bwrap is told.

Inside, the file system is ours read-only, except for
    the tree             at its own path, the candidate's files laid over it, its changes discarded
    /run/kept            candidate, case.json, output, home
    /tmp, /var/tmp       empty, private
and without what is hidden. There are no other processes and no capabilities, and system calls that
lead round all this are refused. The overlay is mounted
before bwrap starts, in a mount namespace of its own, because Debian's bwrap has no option for it.
"""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kept.sandbox.command import Command, View
from kept.sandbox.limits import FIRST_TO_GO
from kept.sandbox.running import Status
from kept.sandbox.secrets import secrets
from kept.sandbox.sockets import named_sockets
from kept.settings import child_environment, readable_paths

INSIDE = Path("/run/kept")
"""Where a command finds what it works on; always the same, so that no request differs by it."""

PRIVATE = (Path("/tmp"), Path("/run"), Path("/var/tmp"))
"""Folders that a command has for itself, and of which it sees nothing of ours."""
_NAMES = (Path("/run/systemd/resolve"), Path("/run/NetworkManager"), Path("/run/resolvconf"))
"""Where /etc/resolv.conf may lead."""
_SYSTEM = (Path("/run/current-system"), Path("/run/opengl-driver"))
"""Where NixOS has its programs."""

_REFUSED = re.compile(r"permission denied|EACCES|\[Errno 13\]", re.IGNORECASE)
"""How programs say that something may not be opened."""

_SHOWS = "`sandbox.readable` of a task, or KEPT_READABLE, shows it"

# $1 folder of the workspace, $2 control groups, one a line, $3 options of the tmpfs, $4 further
# ones of the overlay; relative paths, because a colon or a comma in an absolute one would end it
_SETUP = f"""
set -e
echo {FIRST_TO_GO} 2>/dev/null > /proc/self/oom_score_adj || true
IFS='
'
for group in $2; do echo $$ > "$group/cgroup.procs"; done
unset IFS
if [ -n "$3" ]; then
  cd "$1"
  mount -t tmpfs -o "$3" kept layers
  mkdir layers/upper layers/work layers/merged
  over="lowerdir=candidate:tree,upperdir=layers/upper,workdir=layers/work$4"
  mount -t overlay kept -o "$over" layers/merged
  cd /
fi
shift 4
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a command is to be walled in."""

    folder: Path
    """The workspace: candidate, case.json, output, and `layers` to mount on."""
    tree: Path | None = None
    """What is to be seen at the tree's path; None for an overlay of the tree itself."""
    groups: tuple[Path, ...] = ()
    """The control groups to enter."""


def walled(command: Command, site: Site, status: Status, inner: list[str]) -> list[str]:
    """The words that run a command between walls."""
    view = command.view
    assert view is not None, "walls are for a command that has a view"
    words = ["unshare", "--mount"]
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    if view.network == "none":
        # bwrap would bring up the loopback device; this leaves it down
        words += ["--net"]
    whole = site.tree or view.bare
    options = "" if whole else f"size={command.limits.tree},mode=0755"
    # extended attributes that need no privilege; root's file systems may lack them
    more = "" if os.geteuid() == 0 else ",userxattr"
    words += ["/bin/sh", "-c", _SETUP, "kept", str(site.folder), "\n".join(map(str, site.groups))]
    return [*words, options, more, "bwrap", *_bwrap(command, view, site, status), *inner]


def _bwrap(command: Command, view: View, site: Site, status: Status) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
    yield from ("--json-status-fd", str(status.writer))
    if status.calls is not None:
        yield from ("--seccomp", str(status.calls))
    if os.geteuid() != 0:
        yield from ("--unshare-user", "--uid", str(os.geteuid()), "--gid", str(os.getegid()))
    if view.network != "loopback":
        yield "--share-net"
    yield from ("--ro-bind", "/", "/")
    yield from _system(command)
    for path in PRIVATE:
        if path.is_dir() and not path.is_symlink():
            yield from ("--size", str(command.limits.tree), "--tmpfs", str(path))
    yield from _seen_again(view, site)
    if not view.bare:
        seen = site.tree or site.folder / "layers" / "merged"
        yield from ("--bind", str(seen), str(view.tree))
    yield from _unseen(command, view, site)
    for path in view.writable:
        yield from ("--bind", str(path), str(path))
    yield from ("--dir", str(INSIDE / "home"))
    for name, how in (("candidate", "--ro-bind"), ("case.json", "--ro-bind"), ("output", "--bind")):
        if (site.folder / name).exists():
            yield from (how, str(site.folder / name), str(INSIDE / name))
    yield from ("--chdir", str(command.cwd), "--")


def _unseen(command: Command, view: View, site: Site) -> Iterator[str]:
    """What is there and is not the command's business."""
    if view.network != "on":
        yield from _shut(view.tree)
    shown = (*view.readable, *readable_paths())
    for path in (*view.hidden, *_others(site, view)):
        # a copy of the tree was made without them
        if not (site.tree and path.is_relative_to(view.tree)):
            yield from _hide(path.resolve(), None if view.bare else view.tree)
    for path in known_secrets(command):
        yield from _hide(path.resolve(), None if view.bare else view.tree, shown)


def known_secrets(command: Command) -> Iterator[Path]:
    """Places of this machine that are hidden from every command, unless they are readable."""
    view = command.view
    assert view is not None, "walls are for a command that has a view"
    tree = () if view.bare else (view.tree,)
    programs = child_environment(command.env)["PATH"].split(os.pathsep)
    prefixes = (sys.prefix, sys.base_prefix, *filter(None, programs))
    needed = (*tree, *view.seen, *view.writable, *view.readable, *readable_paths())
    return secrets((*needed, command.cwd, *(Path(prefix) for prefix in prefixes)))


def hidden_words(command: Command, said: str) -> str:
    """Say which hidden path a command names in an error; empty where it names none."""
    view = command.view
    assert view is not None, "walls are for a command that has a view"
    refused = "\n".join(line for line in said.splitlines() if _REFUSED.search(line))
    if not refused:
        return ""
    for path in view.hidden:
        if name := _named(path, command.cwd, refused):
            more = f"; {_SHOWS}" if path.name.startswith(".env") else ""
            return f"`{name}` is hidden from this command{more}"
    for path in known_secrets(command):
        if name := _named(path, command.cwd, refused):
            return f"`{name}` is hidden from commands; {_SHOWS}"
    return ""


def _named(path: Path, cwd: Path, text: str) -> str:
    """The path as a text names it; empty where it does not."""
    near = [str(path.relative_to(cwd))] if path != cwd and path.is_relative_to(cwd) else []
    for name in (str(path), *near, path.name):
        if name and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text):
            return name
    return ""


def _system(command: Command) -> Iterator[str]:
    """Devices and processes."""
    yield from ("--dev", "/dev", "--size", str(command.limits.tree), "--tmpfs", "/dev/shm")
    # a folder in memory that has no limit of its own
    yield from ("--remount-ro", "/dev", "--proc", "/proc")
    if os.geteuid() == 0:
        # root owns the kernel's settings, and needs no capability to write to what it owns
        yield from ("--remount-ro", "/proc")


def _shut(tree: Path) -> Iterator[str]:
    """Doors of other programs, but for those that are not to be seen anyway."""
    unseen = (*PRIVATE, Path("/dev"), tree)
    for path in named_sockets():
        if not any(path.is_relative_to(folder) for folder in unseen):
            yield from ("--ro-bind", "/dev/null", str(path))


def _seen_again(view: View, site: Site) -> Iterator[str]:
    """What lies in a folder that is made private, and is needed all the same."""
    names = _NAMES if view.network == "on" else ()
    python = (Path(prefix) for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)))
    seen = (path for path in view.seen if can_be_seen(path, _scratch(site)))
    for path in (*names, *_SYSTEM, *python, *seen):
        if path.exists() and _in_private(path):
            yield from ("--ro-bind", str(path), str(path))


def can_be_seen(path: Path, scratch: Path) -> bool:
    """Whether a folder can be shown: none that holds the workspaces of all rollouts, or more."""
    above = any(one.is_relative_to(path) for one in (*PRIVATE, scratch))
    return not (above and _in_private(path))


def _in_private(path: Path) -> bool:
    return any(path.is_relative_to(private) for private in PRIVATE)


def _scratch(site: Site) -> Path:
    """Where the workspaces of all rollouts are."""
    return site.folder.parent.parent


def _others(site: Site, view: View) -> Iterable[Path]:
    """The scratch folder, where the workspaces of other rollouts are."""
    root = _scratch(site)
    return () if _in_private(root) and not root.is_relative_to(view.tree) else (root,)


def _hide(path: Path, tree: Path | None, shown: Collection[Path] = ()) -> Iterator[str]:
    """Have whoever opens a path be refused, but for one that the tree is in, or that is shown."""
    if tree is not None and tree.is_relative_to(path):
        return
    if any(path.is_relative_to(one) for one in shown):
        return
    inside = [one for one in shown if one.is_relative_to(path) and one.exists()]
    if path.is_dir() and inside:
        yield from ("--perms", "0555", "--tmpfs", str(path))
        for one in inside:
            yield from ("--ro-bind", str(one), str(one))
        yield from ("--remount-ro", str(path))
    elif path.is_dir():
        yield from ("--perms", "0000", "--tmpfs", str(path))
    elif path.is_file():
        # bwrap binds without devices, so this one cannot be opened
        yield from ("--ro-bind", "/dev/null", str(path))
