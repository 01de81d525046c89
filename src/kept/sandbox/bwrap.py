"""bwrap sandbox: its arguments, the seccomp filter, hidden secrets and sockets.

Inside, the file system is ours read-only, except for
    the tree             at its own path, with the candidate's files; changes are discarded
    /run/kept            candidate, case.json, output, home
    /tmp, /var/tmp       empty, private
and without hidden paths. There are no other processes and no capabilities. The overlay is mounted
before bwrap starts, in its own mount namespace, because Debian's bwrap has no option for it.

Namespaces isolate network, processes and files, but not the whole kernel. So a seccomp filter
refuses further system calls. Those that need a capability are not listed: a command has none, and
the first line keeps it from getting any.

    unshare, clone     of a user namespace: inside, a command has every capability
    clone3             hides its flags from a filter; without it programs take `clone`
    io_uring           makes other calls, `socket` among them, that no filter sees
    keyctl …           the keys of the user, which no namespace parts from those of the command
    bpf, perf, …       start of most kernel escapes, and needed by no build or test
    socket             of other families, such as AF_VSOCK, which leave any network namespace

The filter is classic BPF, as in `struct sock_filter`. On a processor without one, the sandbox
runs unfiltered.

Known places of secrets are unreadable. The rest of a home is readable, because programs and their
libraries may lie there. The list can never be complete; `hidden` of a task's sandbox adds to it,
and `readable` removes from it.

Unix sockets in the file system bypass the network namespace. Any process that sees the file can
connect, even on a read-only mount, so they are hidden too.
"""

import errno
import os
import pwd
import re
import stat
import struct
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kept.sandbox.command import Command, View
from kept.sandbox.process import FIRST_TO_GO, Status
from kept.settings import child_environment, readable_paths


class Processor(NamedTuple):
    """System call numbers of one processor architecture."""

    audit: int
    """AUDIT_ARCH of <linux/audit.h>."""
    namespaces: tuple[int, int]
    """clone, unshare."""
    sockets: tuple[int, int]
    """socket, socketpair."""
    refused: tuple[int, ...]
    """add_key, request_key, keyctl, perf_event_open, bpf, userfaultfd."""
    second_table: int | None = None
    """First number of a second table of calls, such as the x32 ABI."""


PROCESSORS = {
    "x86_64": Processor(
        0xC000003E, (56, 272), (41, 53), (248, 249, 250, 298, 321, 323), second_table=0x40000000
    ),
    "aarch64": Processor(0xC00000B7, (220, 97), (198, 199), (217, 218, 219, 241, 280, 282)),
}

ABSENT = (425, 426, 427, 435)
"""io_uring_setup, io_uring_enter, io_uring_register, clone3: equal numbers on all architectures.

They are reported as missing (ENOSYS), since programs then use other calls.
"""

FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: families that a network namespace confines."""

_NEW_USER = 0x10000000
"""CLONE_NEWUSER."""

# instructions of <linux/bpf_common.h>
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
# offsets in struct seccomp_data; both processors are little-endian
_NUMBER, _PROCESSOR, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


@cache
def program(machine: str, *, sockets: bool) -> bytes | None:
    """Build the seccomp filter of an architecture; `sockets` allows sockets of all families."""
    kind = PROCESSORS.get(machine)
    if kind is None:
        return None
    # system calls of another architecture have other numbers: kill the process by SIGSYS
    code = [_step(_LOAD, _PROCESSOR), _step(_EQUAL, kind.audit, 1), _answer(_KILL)]
    code.append(_step(_LOAD, _NUMBER))
    if kind.second_table is not None:
        code += [_step(_AT_LEAST, kind.second_table, 0, 1), _answer(_ERROR | errno.ENOSYS)]
    code += _refuse(kind.refused, errno.EPERM)
    code += _refuse(ABSENT, errno.ENOSYS)
    new_user = [_step(_ANY_BIT, _NEW_USER, 0, 1), _answer(_ERROR | errno.EPERM)]
    code += _by_argument(kind.namespaces, [*new_user, _answer(_ALLOW)])
    if not sockets:
        known = [part for one in FAMILIES for part in (_step(_EQUAL, one, 0, 1), _answer(_ALLOW))]
        code += _by_argument(kind.sockets, [*known, _answer(_ERROR | errno.EAFNOSUPPORT)])
    code.append(_answer(_ALLOW))
    return b"".join(code)


def _refuse(numbers: Iterable[int], error: int) -> list[bytes]:
    return [part for one in numbers for part in (_step(_EQUAL, one, 0, 1), _answer(_ERROR | error))]


def _by_argument(numbers: tuple[int, int], body: list[bytes]) -> list[bytes]:
    """Instructions that decide two calls by their first argument."""
    first, second = numbers
    skip = len(body) + 1
    head = [_step(_EQUAL, first, 1), _step(_EQUAL, second, 0, skip)]
    return [*head, _step(_LOAD, _FIRST_ARGUMENT), *body]


def _answer(value: int) -> bytes:
    return _step(_ANSWER, value)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; how many to skip if its test holds, and if it fails."""
    return struct.pack("<HBBI", code, then, otherwise, value)


_PLACES = """
.ssh .gnupg .netrc .password-store .pgpass .my.cnf .local/share/keyrings
.aws .azure .boto .s3cfg .kube .docker .terraform.d .config/gcloud .config/doctl .config/rclone
.git-credentials .config/git/credentials .config/gh .config/hub .config/op
.npmrc .pypirc .cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings.xml
.gradle/gradle.properties .cache/huggingface/token .huggingface
.anthropic .claude .claude.json .codex .gemini .config/openai
.mozilla .config/google-chrome .config/chromium
.bash_history .zsh_history .python_history
"""
"""Secrets below a home."""

_SYSTEM_SECRETS = (
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "krb5.keytab",
)
"""Secrets below /etc: readable for root, and so for a command that runs as root."""

HOMES = Path("/home")

_NOT_SEARCHED = frozenset(
    (
        *("node_modules", "__pycache__", "site-packages", ".git", ".hg", ".svn", ".kept"),
        *(".venv", ".tox", ".nox", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    )
)
MOST_FOLDERS = 20_000
"""Maximum folders of a project searched for `.env` files, those nearest to its root first."""


def secrets(needed: Collection[Path]) -> Iterator[Path]:
    """Existing places of secrets; whole homes of other users, unless a needed path is in them."""
    yield from (path for name in _SYSTEM_SECRETS if (path := Path("/etc", name)).exists())
    yield from Path("/etc/ssh").glob("ssh_host_*_key")
    # the home in HOME, and the one in the user database
    own = [Path.home()]
    with suppress(KeyError):  # a container may run as a user that is not in its user database
        own.append(Path(pwd.getpwuid(os.geteuid()).pw_dir))
    own = list(dict.fromkeys(home for home in own if home.is_dir() and home.name))
    others = [Path("/root")]
    with suppress(OSError):
        others = [*sorted(HOMES.iterdir()), *others]
    # homes that we cannot read ourselves need not be hidden
    mode = os.R_OK | os.X_OK
    others = [h for h in others if h not in own and h.is_dir() and os.access(h, mode)]
    for home in (*own, *others):
        if home in own or any(path.is_relative_to(home) for path in needed):
            yield from (path for place in _PLACES.split() if (path := home / place).exists())
            yield from _env_files_in(home)[0]
        else:
            yield home


def env_files(folder: Path) -> Iterator[Path]:
    """Files such as `.env` and `.env.local` of a project and of each folder above it."""
    for above in folder.parents:
        yield from _env_files_in(above)[0]
    folders = deque([folder])
    for _ in range(MOST_FOLDERS):
        if not folders:
            return
        found, inner = _env_files_in(folders.popleft())
        yield from found
        folders += inner


def _env_files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """The `.env` files of one folder, and its subfolders; a virtual environment is neither."""
    found, inner = list[Path](), list[Path]()
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                is_folder = entry.is_dir(follow_symlinks=False)
                if entry.name.startswith(".env"):
                    if not (is_folder and Path(entry.path, "pyvenv.cfg").exists()):
                        found.append(Path(entry.path))
                elif is_folder and entry.name not in _NOT_SEARCHED:
                    inner.append(Path(entry.path))
    except OSError:
        pass  # what we cannot list, a command cannot either
    return found, inner


_TABLE = Path("/proc/net/unix")
_FIELDS = 7
"""Fields before the name in a line of the table."""


def named_sockets() -> Iterator[Path]:
    """Files of all sockets that the kernel lists by name."""
    try:
        lines = _TABLE.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    fields = (line.split(None, _FIELDS) for line in lines)
    names = dict.fromkeys(row[_FIELDS] for row in fields if len(row) > _FIELDS)
    for name in names:
        # abstract sockets have names that are no paths
        if not name.startswith("/"):
            continue
        try:
            is_socket = stat.S_ISSOCK(os.lstat(name).st_mode)
        except (OSError, ValueError):
            continue
        if is_socket:
            yield Path(name)


INSIDE = Path("/run/kept")
"""Folder of a command's inputs and outputs; constant, so that requests do not differ by it."""

PRIVATE = (Path("/tmp"), Path("/run"), Path("/var/tmp"))
"""Folders that are empty and private for a command; ours are invisible."""
_NAMES = (Path("/run/systemd/resolve"), Path("/run/NetworkManager"), Path("/run/resolvconf"))
"""Possible targets of /etc/resolv.conf."""
_SYSTEM = (Path("/run/current-system"), Path("/run/opengl-driver"))
"""Folders of programs on NixOS."""

_REFUSED = re.compile(r"permission denied|EACCES|\[Errno 13\]", re.IGNORECASE)
"""Error messages about a file that may not be opened."""

_SHOWS = "`sandbox.readable` of a task, or KEPT_READABLE, shows it"

# arguments of the script:
# $1 folder of the workspace
# $2 control groups, one per line
# $3 options of the tmpfs; empty for no overlay
# $4 further options of the overlay
# $5 set if stdin is the pipe of the watchdog (watchdog.ANNOUNCE)
# paths are relative, because a colon or a comma in an absolute one would end the option
_SETUP = f"""
set -e
echo {FIRST_TO_GO} 2>/dev/null > /proc/self/oom_score_adj || true
if [ -n "$5" ]; then
  echo "+$$" >&0 || true
  exec </dev/null
fi
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
shift 5
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Site:
    """Folders and control groups for one sandboxed command."""

    folder: Path
    """The workspace: candidate, case.json, output, and `layers` to mount on."""
    tree: Path | None = None
    """Folder shown at the tree's path; None for an overlay of the tree itself."""
    groups: tuple[Path, ...] = ()
    """Control groups to enter."""
    announced: bool = False
    """True if its stdin is the pipe of the watchdog."""


def walled(command: Command, site: Site, status: Status, inner: list[str]) -> list[str]:
    """Return the words that run a command in the sandbox."""
    view = command.view
    assert view is not None, "walls are for a command that has a view"
    words = ["unshare", "--mount"]
    if os.geteuid() != 0:
        words += ["--user", "--map-root-user"]
    if view.network == "none":
        # bwrap would bring up the loopback device; `unshare` leaves it down
        words += ["--net"]
    whole = site.tree or view.bare
    options = "" if whole else f"size={command.limits.tree},mode=0755"
    # extended attributes that need no privilege; root's file systems may not support them
    more = "" if os.geteuid() == 0 else ",userxattr"
    words += ["/bin/sh", "-c", _SETUP, "kept", str(site.folder), "\n".join(map(str, site.groups))]
    words += [options, more, "announced" if site.announced else ""]
    return [*words, "bwrap", *_bwrap(command, view, site, status), *inner]


def _bwrap(command: Command, view: View, site: Site, status: Status) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--cap-drop", "ALL")
    yield from ("--json-status-fd", str(status.writer))
    if status.calls is not None:
        yield from ("--seccomp", str(status.calls))
    if os.geteuid() != 0:
        yield from ("--unshare-user", "--uid", str(os.geteuid()), "--gid", str(os.getegid()))
    if view.network != "loopback":
        yield "--share-net"
    # bwrap applies its arguments in order: later mounts cover earlier ones
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
    """Arguments that hide sockets, hidden paths, other workspaces and known secrets."""
    if view.network != "on":
        # sockets of other programs, unless their folders are invisible anyway
        unseen = (*PRIVATE, Path("/dev"), view.tree)
        for path in named_sockets():
            if not any(path.is_relative_to(folder) for folder in unseen):
                yield from ("--ro-bind", "/dev/null", str(path))
    shown = (*view.readable, *readable_paths())
    # workspaces of other rollouts are in this folder
    root = _scratch(site)
    others = () if _in_private(root) and not root.is_relative_to(view.tree) else (root,)
    for path in (*view.hidden, *others):
        # the copy of the tree was made without hidden files
        if not (site.tree and path.is_relative_to(view.tree)):
            yield from _hide(path.resolve(), None if view.bare else view.tree)
    for path in known_secrets(command):
        yield from _hide(path.resolve(), None if view.bare else view.tree, shown)


def known_secrets(command: Command) -> Iterator[Path]:
    """Places of secrets that are hidden from every command, unless they are readable."""
    view = command.view
    assert view is not None, "walls are for a command that has a view"
    tree = () if view.bare else (view.tree,)
    programs = child_environment(command.env)["PATH"].split(os.pathsep)
    prefixes = (sys.prefix, sys.base_prefix, *filter(None, programs))
    needed = (*tree, *view.seen, *view.writable, *view.readable, *readable_paths())
    return secrets((*needed, command.cwd, *(Path(prefix) for prefix in prefixes)))


def hidden_words(command: Command, said: str) -> str:
    """Message about the hidden path that a command's error mentions; empty if there is none."""
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
    """Form of a path that occurs in a text; empty if none does."""
    near = [str(path.relative_to(cwd))] if path != cwd and path.is_relative_to(cwd) else []
    for name in (str(path), *near, path.name):
        if name and re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text):
            return name
    return ""


def _system(command: Command) -> Iterator[str]:
    """Arguments for devices and processes."""
    yield from ("--dev", "/dev", "--size", str(command.limits.tree), "--tmpfs", "/dev/shm")
    # /dev is a folder in memory without a size limit, so it becomes read-only
    yield from ("--remount-ro", "/dev", "--proc", "/proc")
    if os.geteuid() == 0:
        # root owns the kernel's settings, and needs no capability to write to them
        yield from ("--remount-ro", "/proc")


def _seen_again(view: View, site: Site) -> Iterator[str]:
    """Arguments that show needed folders inside those that are private."""
    names = _NAMES if view.network == "on" else ()
    python = (Path(prefix) for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)))
    seen = (path for path in view.seen if can_be_seen(path, _scratch(site)))
    for path in (*names, *_SYSTEM, *python, *seen):
        if path.exists() and _in_private(path):
            yield from ("--ro-bind", str(path), str(path))


def can_be_seen(path: Path, scratch: Path) -> bool:
    """False for a private folder itself, or one that contains the workspaces of all rollouts."""
    above = any(one.is_relative_to(path) for one in (*PRIVATE, scratch))
    return not (above and _in_private(path))


def _in_private(path: Path) -> bool:
    return any(path.is_relative_to(private) for private in PRIVATE)


def _scratch(site: Site) -> Path:
    """Folder of the workspaces of all rollouts."""
    return site.folder.parent.parent


def _hide(path: Path, tree: Path | None, shown: Collection[Path] = ()) -> Iterator[str]:
    """Arguments that make a path unreadable, unless it is shown or contains the tree."""
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
        # bwrap binds without device access, so opening this one fails
        yield from ("--ro-bind", "/dev/null", str(path))
