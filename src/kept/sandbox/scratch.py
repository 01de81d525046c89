"""Folders for a while, and what becomes of those whose process was killed.

Each holds a file that its process has locked. The kernel lets go of a lock when its process is
gone, however that went, so whoever can have the lock may remove the folder.
"""

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path

from kept.sandbox.fill import remove

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


@cache
def _sweep_once() -> None:
    sweep()


def sweep() -> None:
    """Remove what killed processes left; apart, for that may be much."""
    threading.Thread(target=remove_abandoned, name="kept-sweep", daemon=True).start()


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
