"""What is told of a process that has ended."""

import os
import signal
from contextlib import suppress
from typing import IO

_DETAIL = 4000
"""Bytes of its last words that are worth telling."""


def how_ended(code: int | None) -> str:
    """By its exit code; None where it has not ended."""
    if code is None:
        return "fell silent"
    # bwrap reports a signal as 128 + n
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code if code < 0 else code - 128).name}"
    return f"ended with exit {code}"


def last_words(errors: IO[bytes]) -> str:
    """The end of what it wrote to a file of ours."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - _DETAIL))
    return errors.read().decode("utf-8", "replace").strip()
