"""Hashes by which a resume notices that a file or a value has changed."""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

from kept.spec.source import Source

MAX_BYTES = 64 * 1024 * 1024
"""A larger file is known by its size alone."""


def hash_of(value: object) -> str:
    """A short hash of any JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(path: Path) -> str:
    """What tells whether a file is still the same."""
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
    """A hash of each file that agents are given, by its name; artifacts are known already."""
    names = sorted({name for row in files.values() for name in row} - {*artifacts})
    return {f"`{name}`": digest(source.folder / name) for name in names}
