"""Temporary folders: removal after a killed process, and whether one can be read back.

Each folder holds a file locked by its process. The kernel releases the lock when the process ends
in any way, so a process that gets the lock may remove the folder.
"""

import atexit
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

MAX_ENTRIES = 10_000
"""Files and folders."""

MAX_DEPTH = 64
"""Folders in one another: beyond, every path becomes a problem of its own."""

_BLOCK = 512
"""What the kernel counts the room of a file in."""


def overfull(folder: Path, limit: int, most: int | None = None) -> str | None:
    """What a folder has too much of to be read back; None when it is all right.

    `limit` is in bytes; `most` counts files and folders, None is `MAX_ENTRIES`.
    """
    most = MAX_ENTRIES if most is None else most
    if folder.is_symlink():
        # put there by the command; where it leads is not looked at
        return None
    entries = size = 0
    pending = [(str(folder), 0)]
    while pending:
        path, depth = pending.pop()
        if depth > MAX_DEPTH:
            return f"is nested more than {MAX_DEPTH} deep"
        for entry in _entries(path, most):
            entries += 1
            if entry.is_dir(follow_symlinks=False):
                pending.append((entry.path, depth + 1))
            else:
                with suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
            if entries > most:
                return f"holds more than {most} files"
            if size > limit:
                return f"takes more than {limit / 2**20:g} MiB"
    return None


def remove(path: Path) -> None:
    """Remove whatever is at a path, however deep; of a link only the link."""
    # not in Python, whose own removal recurses and gives up
    with suppress(OSError):
        subprocess.run(["rm", "-rf", "--", str(path)], check=False, capture_output=True)


def _entries(path: str, most: int) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as found:
            # one more than is allowed is enough to know
            return [entry for entry, _ in zip(found, range(most + 1), strict=False)]
    except OSError:
        # gone, or taken away: who reads it back says so
        return []


PREFIX = "kept-"

OWNER = ".kept-scratch"
"""A file in the folder, locked by the process that it belongs to."""


@contextmanager
def scratch_folder(kind: str) -> Generator[Path]:
    """A folder to the end of the block; what is left of killed processes is removed meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-")).resolve()
    owned = own(folder)
    _sweep_once()
    # whoever has a process open to the end of ours closes nothing
    at_exit = partial(_remove_ours, folder, os.getpid())
    atexit.register(at_exit)
    try:
        yield folder
    finally:
        atexit.unregister(at_exit)
        at_exit()
        os.close(owned)


def _remove_ours(folder: Path, owner: int) -> None:
    # a fork has inherited the duty, and not the folder
    if os.getpid() == owner:
        remove_tree(folder)


def sweep() -> None:
    """Remove what killed processes left; apart, for that may be much."""
    threading.Thread(target=remove_abandoned, name="kept-sweep", daemon=True).start()


_sweep_once = cache(sweep)


def own(folder: Path) -> int:
    """Hold a scratch folder as ours for as long as this process lives; what is to be closed."""
    fd = os.open(folder / f"{OWNER}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    # by that name it is never to be seen without its lock
    (folder / f"{OWNER}.new").rename(folder / OWNER)
    return fd


def remove_abandoned(parent: Path | None = None) -> None:
    """Remove the scratch folders of processes that were killed, and no others."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    fd = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # raises while its owner lives, for the kernel lets go of a lock when its process is gone
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for inner in folder.iterdir():
            # the mark of what it is goes last, so that a removal may be cut off; links with it
            if inner.name != OWNER and not inner.is_symlink():
                remove_tree(inner)
        remove_tree(folder)
    finally:
        os.close(fd)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also where a command took away the permission to, or went very deep."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        remove(folder)
    if folder.exists():
        folder.chmod(0o700)
        for inner, subfolders, _ in os.walk(folder):
            for path in (Path(inner, name) for name in subfolders):
                if not path.is_symlink():
                    path.chmod(0o700)
        remove(folder)
