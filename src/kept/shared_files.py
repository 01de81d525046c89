"""The files that the workers of one run share, held in memory and changed by stamped changes.

Nothing here touches a disk, so no path leads out of them, no link leads astray, and what is in a
journal can be done again in any order: of two changes of one file the later stamp holds.
"""

from collections.abc import Iterable, Mapping

from kept.core.artifact import is_safe_path
from kept.core.words import count
from kept.sandbox.walls import INSIDE

MOST_BYTES = 64 * 1024 * 1024
"""Of all files together."""

MOST_FILES = 5_000

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
        after = {**self._files, **changes}
        left = {path: data for path, data in after.items() if data is not None}
        if clash := _clash(left, changes):
            return clash
        if len(left) > self._most_files:
            return f"the workspace holds at most {count(self._most_files, 'file')}"
        if sum(map(len, left.values())) > self.most_bytes:
            return f"the workspace holds at most {self.most_bytes / 2**20:g} MiB"
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
            if data is None:
                self._files.pop(path, None)
            else:
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


def _clash(files: Mapping[str, bytes], changed: Iterable[str]) -> str | None:
    """Which file would have to be a folder, too."""
    folders = {
        "/".join(parts[:n]) for parts in (p.split("/") for p in files) for n in _depths(parts)
    }
    for path in changed:
        if path in files and path in folders:
            return f"`{path}` is a folder"
        above = ("/".join(path.split("/")[:n]) for n in _depths(path.split("/")))
        if path in files and (file := next((one for one in above if one in files), None)):
            return f"`{file}` is a file, and no folder"
    return None


def _depths(parts: list[str]) -> range:
    return range(1, len(parts))
