"""Hashes by which a resume knows what changed.

Apart from what is hashed: an agent's tests need these two, and nothing that a task is made of.
"""

import hashlib
import json
from pathlib import Path

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
