"""Whether a command fills a folder of its own beyond what anybody could read back, or remove.

The folders lie on the disk, where no limit of the kernel's is on them. A command is looked after
while it runs, so that it does not fill the disk, and once more when it has ended.
"""

import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MAX_ENTRIES = 10_000
"""Files and folders."""

MAX_DEPTH = 64
"""Folders in one another: beyond, every path becomes a problem of its own."""

_BLOCK = 512
"""What the kernel counts the room of a file in."""


class Filled:
    """Folders that a command writes to, by what they are to it."""

    def __init__(self, folders: Mapping[str, Path], limit: int, entries: int | None = None) -> None:
        """`limit` is in bytes; `entries` counts files and folders, None is `MAX_ENTRIES`."""
        self._folders = folders
        self._limit = limit
        self._entries = entries

    def too_much(self) -> bool:
        """Whether there is too much in any of them."""
        return any(
            overfull(folder, self._limit, self._entries) for folder in self._folders.values()
        )

    def clear(self) -> str:
        """Remove what is too much; what was, in words."""
        told: list[str] = []
        for what, folder in self._folders.items():
            if why := overfull(folder, self._limit, self._entries):
                told.append(f"the {what} {why}")
                remove(folder)
        return "; ".join(told)


def overfull(folder: Path, limit: int, most: int | None = None) -> str | None:
    """What a folder has too much of; None when it is all right."""
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
                size += _room(entry)
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


def _room(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except OSError:
        return 0
