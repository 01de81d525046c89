"""Temporary folders: removal after a killed process, and size checks before reading back.

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
"""Maximum files and folders."""

MAX_DEPTH = 64
"""Maximum nesting of folders: deeper paths cause problems of their own."""

_BLOCK = 512
"""Bytes per block, the unit of `st_blocks`."""


def overfull(folder: Path, limit: int, most: int | None = None) -> str | None:
    """Reason why a folder is too large to be read back; None if it is not.

    `limit` is in bytes; `most` counts files and folders, None is `MAX_ENTRIES`.
    """
    most = MAX_ENTRIES if most is None else most
    if folder.is_symlink():
        # put there by the command; links are not followed
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
    # `rm`, because Python's own removal recurses and gives up
    with suppress(OSError):
        subprocess.run(["rm", "-rf", "--", str(path)], check=False, capture_output=True)


def _entries(path: str, most: int) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as found:
            # one entry above the limit suffices to detect an excess
            return [entry for entry, _ in zip(found, range(most + 1), strict=False)]
    except OSError:
        # removed or unreadable: reading it back reports that
        return []


PREFIX = "kept-"

OWNER = ".kept-scratch"
"""File in the folder, locked by the process that owns it."""


@contextmanager
def scratch_folder(kind: str) -> Generator[Path]:
    """Create a folder until the end of the block; remove leftovers of killed processes."""
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-")).resolve()
    owned = own(folder)
    _sweep_once()
    # a caller that keeps a process until our exit may never leave the block
    at_exit = partial(_remove_ours, folder, os.getpid())
    atexit.register(at_exit)
    try:
        yield folder
    finally:
        atexit.unregister(at_exit)
        at_exit()
        os.close(owned)


def _remove_ours(folder: Path, owner: int) -> None:
    # a fork inherits the exit handler, but does not own the folder
    if os.getpid() == owner:
        remove_tree(folder)


def sweep() -> None:
    """Remove leftovers of killed processes, in a thread, since there may be many."""
    threading.Thread(target=remove_abandoned, name="kept-sweep", daemon=True).start()


_sweep_once = cache(sweep)


def own(folder: Path) -> int:
    """Lock a scratch folder for as long as this process lives; return the descriptor to close."""
    fd = os.open(folder / f"{OWNER}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    # renamed only now: under its final name the file must never be seen without its lock
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
        # raises while the owner lives, since the kernel releases a lock only when its process ends
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for inner in folder.iterdir():
            # the marker file goes last, together with links, so that an interrupted removal can
            # continue
            if inner.name != OWNER and not inner.is_symlink():
                remove_tree(inner)
        remove_tree(folder)
    finally:
        os.close(fd)


def remove_tree(folder: Path) -> None:
    """Remove a folder, even if it is very deep or a command removed its permissions."""
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
