"""JSON objects, one a line, as agent CLIs say and keep them."""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from kept.core.parsing import parse_json
from kept.models.speech import is_count, maps
from kept.sandbox.coding_agents.cli import Event

T = TypeVar("T")


class BadEvent(ValueError):
    """An event of a CLI that is not of the shape that its kind has; says what is wrong."""


def block(event: Event, key: str) -> dict[str, Any]:
    """The object under a key; an empty one where there is none. Raises `BadEvent`."""
    return cast("dict[str, Any]", _of_type(event, key, dict) or {})


def text(event: Event, key: str) -> str:
    """The text under a key; an empty one where there is none. Raises `BadEvent`."""
    return _of_type(event, key, str) or ""


def blocks(event: Event, key: str) -> list[dict[str, Any]]:
    """The objects of the list under a key, without anything else in it. Raises `BadEvent`."""
    return maps(cast("object", _of_type(event, key, list)))


def _of_type(event: Event, key: str, wanted: type[T]) -> T | None:
    value = event.get(key)
    if value is None or isinstance(value, wanted):
        return value
    raise BadEvent(f"`{key}` of `{event.get('type')}` is of type {type(value).__name__}")


def counts(usage: Event, *keys: str) -> tuple[int, ...] | None:
    """Token counts, 0 for one that is missing; None where one cannot be true."""
    found = [usage.get(key) or 0 for key in keys]
    return tuple(found) if all(map(is_count, found)) else None


_STATUS = re.compile(r"\b([45]\d\d)\b")


def events_of(text: str) -> Iterator[Event]:
    """The objects of a text; lines that are none are left out."""
    for line in text.splitlines():
        if (found := _object(line)) is not None:
            yield found


def _object(line: str | bytes) -> dict[str, Any] | None:
    try:
        found: object = parse_json(line)
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


def status_of(value: object) -> int | None:
    """A status of HTTP that stands by itself; None for anything else."""
    return value if type(value) is int and 100 <= value < 600 else None


def status_in(message: str) -> int | None:
    """The status of HTTP that a message tells, if it does."""
    found = _STATUS.search(message)
    return int(found[1]) if found else None
