"""Working copies of a tree where overlays are not available.

There is one copy for each concurrent command, made on first use. Between two commands only
differences are restored: written, removed or added files, and the candidate's own.
"""

import os
import shutil
import stat
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kept.errors import RunError
from kept.sandbox.command import View
from kept.sandbox.temp_dirs import remove

MAX_FILES = 50_000
"""Maximum files of a tree that is copied: a larger one is probably no project."""

LEFT_OUT = {".git", ".kept", ".venv", "node_modules", "__pycache__"}
"""Large folders that a command does not need as a copy; some are linked."""

_LINKED = {".venv", "node_modules"}


class _Mark(NamedTuple):
    """Attributes that tell whether a file of a copy was changed."""

    mode: int
    size: int
    changed: int
    inode: int


_Marks = dict[str, _Mark]
"""Marks of a folder's entries, by name."""


class Copies:
    """Copies of all trees, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: dict[View, list[_Copy]] = {}
        self._made = 0

    @contextmanager
    def lend(self, view: View, candidate: Path) -> Generator[Path]:
        """Lend a copy of a tree without hidden files, with a candidate's files laid over it."""
        free = self._free.setdefault(view, [])
        if free:
            copy = free.pop()
        else:
            self._made += 1
            # the folder of the copies may be inside the tree, and must not be copied into itself
            hidden = (*view.hidden, self._folder.parent)
            copy = _Copy(replace(view, hidden=hidden), self._folder / f"tree-{self._made}")
        copy.lay_over(candidate)
        try:
            yield copy.folder
        finally:
            copy.restore()
            free.append(copy)


class _Copy:
    """One working copy of a tree."""

    def __init__(self, view: View, folder: Path) -> None:
        self.folder = folder
        self._tree = view.tree
        self._hidden = view.hidden
        self._linked = view.writable
        self._marks: dict[str, _Marks] = {"": {}}
        folder.mkdir(parents=True)
        self._mode = folder.stat().st_mode
        for name in self._names():
            self._fetch(name)

    def lay_over(self, candidate: Path) -> None:
        """Copy a candidate's files into it."""
        for name, entry in _walk(candidate):
            target = self.folder / name
            if entry.is_dir():
                target.mkdir(exist_ok=True)
            else:
                _remove(target)
                shutil.copy2(entry.path, target)

    def restore(self) -> None:
        """Restore the state of the tree, whatever a command did to the copy."""
        self.folder.chmod(stat.S_IMODE(self._mode))
        self._restore("")

    def _restore(self, below: str) -> None:
        """Restore one folder, and then its subfolders.

        It visits every file after every command, so it does as little as possible for each. Entries
        that were left out of the copy are checked, too: a `__pycache__` of one candidate would be
        used for the next.
        """
        marks = self._marks[below]
        wrong, strange = dict(marks), list[str]()
        with os.scandir(self.folder / below) as entries:
            for entry in entries:
                mark = marks.get(entry.name)
                if mark is None:
                    strange.append(entry.path)
                elif _same(entry, mark):
                    del wrong[entry.name]
        for path in strange:
            _remove(Path(path))
        for name in sorted(wrong):
            _remove(self.folder / below / name, only_if_not=wrong[name].mode)
            self._fetch(_join(below, name))
        for name, mark in list(marks.items()):
            if stat.S_ISDIR(mark.mode):
                self._restore(_join(below, name))

    def _fetch(self, name: str) -> None:
        """Copy one file, link or folder of the tree."""
        source, target = self._tree / name, self.folder / name
        mode = source.lstat().st_mode
        # linked instead of copied: writable paths, and large folders of packages
        if source in self._linked or (Path(name).name in _LINKED and stat.S_ISDIR(mode)):
            target.symlink_to(source)
        elif stat.S_ISLNK(mode):
            target.symlink_to(source.readlink())
        elif stat.S_ISDIR(mode):
            target.mkdir(exist_ok=True)
            target.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
        else:
            shutil.copy2(source, target)
        above, _, last = name.rpartition("/")
        now = target.lstat()
        # ctime: a command can set mtime, but not this
        mark = _Mark(now.st_mode, now.st_size, now.st_ctime_ns, now.st_ino)
        self._marks[above][last] = mark
        if stat.S_ISDIR(mark.mode):
            self._marks.setdefault(name, {})

    def _names(self) -> Iterator[str]:
        linked = {str(path) for path in self._linked}
        for count, (name, entry) in enumerate(_walk(self._tree, self._hidden, linked)):
            if count >= MAX_FILES:
                raise RunError(
                    f"{self._tree} has more than {MAX_FILES} files, too many to copy",
                    hint="install bubblewrap, which needs no copy, or give the task its own folder",
                )
            if entry.is_symlink() or entry.is_dir() or entry.is_file(follow_symlinks=False):
                yield name


def _walk(
    folder: Path, hidden: tuple[Path, ...] = (), linked: Collection[str] = (), below: str = ""
) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield path and entry of everything below a folder, folders before their contents."""
    with os.scandir(folder / below) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    for entry in entries:
        name = _join(below, entry.name)
        if entry.name in LEFT_OUT - _LINKED or Path(entry.path) in hidden:
            continue
        yield name, entry
        is_link = entry.name in _LINKED or entry.path in linked
        if entry.is_dir(follow_symlinks=False) and not is_link:
            yield from _walk(folder, hidden, linked, name)


def _join(below: str, name: str) -> str:
    return f"{below}/{name}" if below else name


def _same(entry: "os.DirEntry[str]", mark: _Mark) -> bool:
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    mode, size, changed, inode = mark
    if found.st_ctime_ns == changed and found.st_ino == inode:
        return found.st_size == size
    # a folder changes with its contents, so only its mode must be equal
    return stat.S_ISDIR(mode) and found.st_mode == mode


def _remove(path: Path, only_if_not: int | None = None) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        if only_if_not is not None and stat.S_ISDIR(only_if_not):
            return
        try:
            shutil.rmtree(path, ignore_errors=True)
        except RecursionError:
            remove(path)
    else:
        path.unlink()
