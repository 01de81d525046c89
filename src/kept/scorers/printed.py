"""The JSON object that a program printed, found among whatever else it said."""

import json
import re
from typing import Any, cast

_START = re.compile(r'\{\s*["}]')
"""How an object begins; most braces of a text begin none."""

TRIES = 200
"""Beginnings without an end before the search is given up: each costs a pass over the text."""


def last_object(text: str, *, cut: bool = False) -> dict[str, object] | None:
    """The last JSON object that stands in a text, whatever is printed around it.

    What lies in an object that is not whole is not taken for one: a part of a score is no score.
    For the same reason, of a text whose beginning was cut off only what begins a line counts.
    """
    if cut:
        # without the words that say so, and what is left of a line
        text = "".join(text.split("\n", 2)[2:])
    # nearly always there, and then nothing that was said before can be in the way
    found = _whole(text.rstrip().rpartition("\n")[2])
    return _search(text, lines_only=cut) if found is None else found


def _whole(line: str) -> dict[str, object] | None:
    try:
        value: Any = json.loads(line) if line.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object] | None", value)


def _search(text: str, *, lines_only: bool) -> dict[str, object] | None:
    decoder = json.JSONDecoder()
    found: dict[str, object] | None = None
    tries = 0
    start = _START.search(text)
    while start and tries < TRIES:
        at = end = start.start()
        if not lines_only or text[at - 1 : at] in ("", "\n"):
            try:
                found, end = decoder.raw_decode(text, at)
            except json.JSONDecodeError as error:
                tries += 1
                end = error.pos
            except (ValueError, RecursionError):
                # a number, or a nesting, that no reader takes
                return None
        start = _START.search(text, max(end, at + 1))
    return found if tries < TRIES else None
