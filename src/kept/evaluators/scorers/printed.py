"""The JSON object that a program printed, found among whatever else it said."""

import json
import re
from typing import NamedTuple, cast

from kept.core.parsing import DuplicateKey, ParseLimit, parse_json, parse_json_at

_START = re.compile(r'\{\s*["}]')
"""How an object begins; most braces of a text begin none."""

_REST = re.compile(r"[ \t\r]*(\n|$)")

TRIES = 200
"""Beginnings without an end before the search is given up: each costs a pass over the text."""


class Found(NamedTuple):
    """An object in a text."""

    value: dict[str, object]
    alone: bool
    """Whether nothing else stands on its lines: then it was printed for itself."""
    twice: DuplicateKey | None = None
    """A key that it has twice: which of its values is meant is not guessed."""


def printed_objects(text: str, *, cut: bool = False) -> list[dict[str, object]]:
    """The JSON objects that a text was printed for.

    They are those that have lines of their own; where there are none, those inside of lines. What
    lies in an object that is not whole is not taken for one: a part of a score is no score. For the
    same reason, of a text whose beginning was cut off only what begins a line counts.

    Raises `DuplicateKey` where one of them has a key twice, and `ParseLimit` where the last line is
    one beyond a bound.
    """
    if cut:
        # without the words that say so, and what is left of a line
        text = "".join(text.split("\n", 2)[2:])
    # nearly always there, and then nothing that was said before can be in the way
    before, _, line = text.rstrip().rpartition("\n")
    last = _whole(line)
    if last is not None:
        found = [one for one in _search(before, lines_only=True) if one.alone]
        return [*_values(found), last]
    found = _search(text, lines_only=cut)
    return _values([one for one in found if one.alone] or found)


def _values(found: list[Found]) -> list[dict[str, object]]:
    for one in found:
        if one.twice is not None:
            raise one.twice
    return [one.value for one in found]


def _whole(line: str) -> dict[str, object] | None:
    if not line.startswith("{") or not line.endswith("}"):
        return None
    try:
        return cast("dict[str, object]", parse_json(line, unique_keys=True))
    except (DuplicateKey, ParseLimit):
        raise
    except ValueError:
        return None


def _search(text: str, *, lines_only: bool) -> list[Found]:
    found: list[Found] = []
    tries = 0
    start = _START.search(text)
    while start and tries < TRIES:
        at = end = start.start()
        first = text[at - 1 : at] in ("", "\n")
        if first or not lines_only:
            try:
                value, end, twice = _object_at(text, at)
                found.append(Found(value, first and _REST.match(text, end) is not None, twice))
            except json.JSONDecodeError as error:
                tries += 1
                end = error.pos
            except ParseLimit:
                # where it ends is not known
                return []
        start = _START.search(text, max(end, at + 1))
    return found if tries < TRIES else []


def _object_at(text: str, at: int) -> tuple[dict[str, object], int, DuplicateKey | None]:
    try:
        return *parse_json_at(text, at, unique_keys=True), None
    except DuplicateKey as error:
        return *parse_json_at(text, at), error
