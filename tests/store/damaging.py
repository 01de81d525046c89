"""One field of one line of a journal, damaged: the line is still JSON, and says something else."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from kept.store import codec

WRONG: tuple[object, ...] = ("x", 7, -1, 2.5, True, None, [], ["x"], {}, {"x": 1}, 10**25)
"""What a field may come to hold."""

Place = tuple[str | int, ...]


class Damage(NamedTuple):
    """What is put where."""

    line: int
    """The first is 1."""
    place: Place
    value: object
    """`GONE` takes the field away."""

    def __str__(self) -> str:
        return f"line {self.line}, {self.place}: {self.value!r}"


class _Gone:
    def __repr__(self) -> str:
        return "gone"


GONE = _Gone()


def resealed(lines: Iterable[bytes]) -> bytes:
    """Lines with checksums and offsets that fit, as a faulty writer would have written them."""
    data = b""
    for line in lines:
        data += codec.seal(
            re.sub(rb'^\{"crc": ?"[^"]*", ?"at": ?\d+, ?', b"{", line.strip()), len(data)
        )
    return data


def every_damage(lines: list[bytes], wrong: tuple[object, ...] = WRONG) -> list[Damage]:
    """All that can be done to lines, in order: every field, with each value of another kind."""
    return [
        Damage(number, place, value)
        for number, line in enumerate(lines, 1)
        for place, old in _fields(json.loads(line))
        if place[:1] not in (("crc",), ("at",))
        for value in (*wrong, *((GONE,) if place and isinstance(place[-1], str) else ()))
        if type(value) is not type(old) or value == -1
    ]


def _fields(value: object, here: Place = ()) -> Iterator[tuple[Place, object]]:
    yield here, value
    if isinstance(value, dict):
        for name, one in cast("dict[str, object]", value).items():
            yield from _fields(one, (*here, name))
    elif isinstance(value, list):
        for number, one in enumerate(cast("list[object]", value)):
            yield from _fields(one, (*here, number))


def damaged(lines: list[bytes], damage: Damage) -> bytes:
    """The file with that damage done."""
    changed = _put(json.loads(lines[damage.line - 1]), damage.place, damage.value)
    line = json.dumps(changed, separators=(",", ":")).encode() + b"\n"
    return b"".join((*lines[: damage.line - 1], line, *lines[damage.line :]))


def _put(value: Any, place: Place, new: object) -> Any:
    if not place:
        return new
    here, *rest = place
    if not rest and new is GONE:
        del value[here]
    else:
        value[here] = _put(value[here], tuple(rest), new) if rest else new
    return value


def lines_of(path: Path) -> list[bytes]:
    """The lines of a file, each with its newline."""
    return path.read_bytes().splitlines(keepends=True)
