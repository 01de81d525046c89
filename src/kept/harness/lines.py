"""JSON objects, one a line, as agent CLIs say and keep them."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from kept.harness.cli import Event

_STATUS = re.compile(r"\b([45]\d\d)\b")


def events_of(text: str) -> Iterator[Event]:
    """The objects of a text; lines that are none are left out."""
    for line in text.splitlines():
        if (found := _object(line)) is not None:
            yield found


def _object(line: str | bytes) -> dict[str, Any] | None:
    try:
        found: object = json.loads(line)
    except ValueError:
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def cut_lines(session: bytes, steps: int, ends_step: Callable[[Event], bool]) -> bytes:
    """A session up to the line that ends so many steps; all of it where it has no more."""
    kept: list[bytes] = []
    for line in session.splitlines(keepends=True):
        kept.append(line)
        found = _object(line)
        if found is not None and ends_step(found):
            steps -= 1
            if steps <= 0:
                break
    return b"".join(kept)


def status_in(message: str) -> int | None:
    """The status of HTTP that a message tells, if it does."""
    found = _STATUS.search(message)
    return int(found[1]) if found else None
