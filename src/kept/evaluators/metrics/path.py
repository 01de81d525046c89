"""One value of a JSON answer, by its path: `a.b[0].c`. Pure."""

import re
from collections.abc import Iterator
from typing import Any, cast

from kept.core.parsing import parse_json

_STEP = re.compile(r"(\w[\w-]*)|\[(\d+)\]")


class NoValue(ValueError):
    """An answer that has no such value; says why."""


def value_at(answer: str, path: str) -> str:
    """The value as text; raises `NoValue` where the answer has none, or more than one there."""
    try:
        value: Any = parse_json(answer)
    except ValueError as error:
        raise NoValue(f"the answer is not JSON: {error}") from error
    been = ""
    for step in _steps(path):
        been += f"[{step}]" if isinstance(step, int) else f".{step}" if been else step
        try:
            value = _below(value, step)
        except (LookupError, TypeError) as error:
            raise NoValue(f"the answer has nothing at `{been}`") from error
    if isinstance(value, dict | list):
        raise NoValue(f"what stands at `{path}` of the answer is not a single value")
    return str(cast("object", value))


def _below(value: object, step: str | int) -> object:
    """What a list has at a place, or a mapping under a name; a text has letters, and no values."""
    kind = list if isinstance(step, int) else dict
    if not isinstance(value, kind):
        raise TypeError
    return cast("Any", value)[step]


def _steps(path: str) -> Iterator[str | int]:
    for match in _STEP.finditer(path):
        # no list has so many values as a number of more digits would need
        yield match[1] if match[1] is not None else int(match[2][:18])
