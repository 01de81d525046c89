"""Hashes by which a resume notices that a file or a value has changed."""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from kept.spec.source import Source

MAX_BYTES = 64 * 1024 * 1024
"""Largest file that is hashed; of a larger one only the size is compared."""


def hash_of(value: object) -> str:
    """Return a short hash of any JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(path: Path) -> str:
    """Return a short hash of a file, its size if it is large, or the error."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            return f"{size} bytes"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        return f"unreadable: {error.strerror}"


def file_hashes(
    source: Source, files: Mapping[str, tuple[str, ...]], artifacts: Collection[str]
) -> dict[str, str]:
    """Return a hash of each file that agents get, by name; artifacts are hashed elsewhere."""
    names = sorted({name for row in files.values() for name in row} - {*artifacts})
    return {f"`{name}`": digest(source.folder / name) for name in names}
