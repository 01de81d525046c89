"""Whether a command without walls changed files that were none of its business."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class _Print(NamedTuple):
    """What tells whether a file changed; the hash is taken only when the rest says it may have."""

    changed: int
    size: int
    digest: str


class Guard:
    """Remembers files as they were when it was made."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._before = {path: _print(path) for path in files}

    def changed(self) -> list[Path]:
        """The files that are no longer what they were."""
        return [path for path, before in self._before.items() if not _is_still(path, before)]


def _is_still(path: Path, before: _Print | None) -> bool:
    try:
        now = path.stat()
    except OSError:
        return before is None
    if before is None:
        return False
    if (now.st_ctime_ns, now.st_size) == before[:2]:
        return True
    after = _print(path)
    return after is not None and after.digest == before.digest


def _print(path: Path) -> _Print | None:
    try:
        found = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
    return _Print(found.st_ctime_ns, found.st_size, digest)
