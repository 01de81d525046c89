"""The files that the workers of one run share, held in memory and changed by stamped changes.

Nothing here touches a disk, so no path leads out of them, no link leads astray, and what is in a
journal can be done again in any order: of two changes of one file the later stamp holds.
"""

from collections import Counter
from collections.abc import Mapping

from kept.core.artifact import is_safe_path
from kept.core.words import count
from kept.sandbox.walls import INSIDE

MOST_BYTES = 64 * 1024 * 1024
"""Of all files together."""

MOST_FILES = 5_000

OUTPUT = "output"
"""The folder of the workspace that deliverables go to."""

MOUNT = str(INSIDE / "output")
"""Where a command sees them: always the same, so that no request differs by it."""

Changes = Mapping[str, bytes | None]
"""By path; None removes a file."""


class SharedFiles:
    """Files by path."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
        self.most_bytes = most_bytes
        self._most_files = most_files
        self._files: dict[str, bytes] = {}
        self._stamps: dict[str, int] = {}
        """Of the last change of each path, also of one that is gone."""
        self._last = 0
        self._bytes = 0
        self._folders: Counter[str] = Counter()
        """Files below each folder: counted along, for there may be thousands of files."""

    def copy(self) -> "SharedFiles":
        """The same files, which from now on change apart."""
        other = SharedFiles(self.most_bytes, self._most_files)
        other.apply(self._files, other.stamp())
        return other

    def read(self, path: str) -> bytes | None:
        """A file; None where there is none."""
        return self._files.get(path)

    def all(self) -> dict[str, bytes]:
        """Every file, by path, in order."""
        return dict(sorted(self._files.items()))

    def below(self, folder: str) -> dict[str, bytes]:
        """The files of a folder, by path below it."""
        start = f"{folder}/"
        return {p.removeprefix(start): d for p, d in self.all().items() if p.startswith(start)}

    def refusal(self, changes: Changes) -> str | None:
        """Why such a change is not made; None where it may be."""
        for path in changes:
            if not is_safe_path(path):
                return f"`{path}` is not a path below the workspace"
        if clash := self._clash(changes):
            return clash
        files, size = len(self._files), self._bytes
        for path, data in changes.items():
            old = self._files.get(path)
            files += (data is not None) - (old is not None)
            size += len(data or b"") - len(old or b"")
        if files > self._most_files:
            return f"the workspace holds at most {count(self._most_files, 'file')}"
        if size > self.most_bytes:
            return f"the workspace holds at most {self.most_bytes / 2**20:g} MiB"
        return None

    def _clash(self, changes: Changes) -> str | None:
        """Describe the first path that would be a file and a folder; None without one."""
        folders: Counter[str] = Counter()
        for path, data in changes.items():
            change = (data is not None) - (path in self._files)
            folders.update(dict.fromkeys(_above(path), change))
        for path, data in changes.items():
            if data is None:
                continue
            if self._folders[path] + folders[path]:
                return f"`{path}` is a folder"
            for one in _above(path):
                if changes.get(one, b"") is not None and (one in changes or one in self._files):
                    return f"`{one}` is a file, and no folder"
        return None

    def stamp(self) -> int:
        """The number of one more change."""
        self._last += 1
        return self._last

    def apply(self, changes: Changes, stamp: int) -> None:
        """Make a change, or make it again; what was changed later stays as it is."""
        self._last = max(self._last, stamp)
        for path, data in changes.items():
            if self._stamps.get(path, 0) > stamp:
                continue
            self._stamps[path] = stamp
            self._put(path, data)

    def _put(self, path: str, data: bytes | None) -> None:
        old = self._files.pop(path, None)
        self._bytes += len(data or b"") - len(old or b"")
        change = (data is not None) - (old is not None)
        if change:
            self._folders.update(dict.fromkeys(_above(path), change))
        if data is not None:
            self._files[path] = data


def changes_between(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Changes:
    """What has to be changed for files to become others."""
    changes: dict[str, bytes | None] = {p: d for p, d in after.items() if before.get(p) != d}
    return changes | {path: None for path in before if path not in after}


def path_of(given: str) -> str | None:
    """The path below the workspace that somebody means; None for one that is not there."""
    path = given.strip()
    for start in (f"{MOUNT}/", "./"):
        path = path.removeprefix(start)
    return path if is_safe_path(path) else None


def _above(path: str) -> list[str]:
    """The folders that a path is in, outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
