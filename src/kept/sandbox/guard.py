"""Whether a command without walls changed files that were none of its business."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

MAX_FILES = 1000
"""Files of one folder that are looked at: a larger one is data, and would take long."""

_MADE = ("__pycache__", ".git", ".kept")
"""Folders that change by themselves."""


class Guard:
    """Remembers files, and those in folders, as they were when it was made."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._paths = tuple(paths)
        self._before = dict(_prints(self._paths))

    def changed(self) -> list[Path]:
        """The files that are no longer what they were, are gone, or are new."""
        now = dict(_prints(self._paths))
        paths = {**self._before, **now}
        return [path for path in paths if now.get(path) != self._before.get(path)]


def _prints(paths: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """Hashes by path of the files that are there."""
    for path in paths:
        for file in _below(path) if path.is_dir() else (path,):
            try:
                found = file.stat()
                yield file, _digest(file, found.st_ctime_ns, found.st_size, found.st_ino)
            except OSError:
                continue


def _below(folder: Path) -> Iterator[Path]:
    return islice(_walk(folder), MAX_FILES)


def _walk(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _MADE)
        yield from (Path(path, name) for name in sorted(files))


# between two commands next to nothing changes, and what has not need not be read again
@lru_cache(maxsize=10_000)
def _digest(path: Path, changed: int, size: int, inode: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
