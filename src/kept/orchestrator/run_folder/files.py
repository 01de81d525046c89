"""JSON of a run folder, read with care: what is broken or missing is nothing, never an error."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from kept.core.parsing import parse_json

Row = Mapping[str, Any]

_NOTHING: Row = {}


def read_object(path: Path) -> Row | None:
    """A file that holds one JSON object; None where it does not."""
    try:
        value: object = parse_json(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return None
    return cast("Row", value) if isinstance(value, dict) else None


def read_rows(path: Path) -> Iterator[Row]:
    """The objects of a file with one in each line; lines that are none are passed over."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            value: object = parse_json(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield cast("Row", value)


def below(row: Row, *path: str) -> Any:  # noqa: ANN401 # whatever JSON holds
    """What stands at a path of keys; None where nothing does."""
    value: object = row
    for key in path:
        if not isinstance(value, dict):
            return None
        value = cast("Row", value).get(key)
    return value


def part(row: Row, *path: str) -> Row:
    """The object at a path of keys; an empty one where there is none."""
    value = below(row, *path)
    return cast("Row", value) if isinstance(value, dict) else _NOTHING


def rows_in(value: object) -> Iterator[Row]:
    """The objects of a list."""
    if isinstance(value, list):
        for one in cast("list[object]", value):
            if isinstance(one, dict):
                yield cast("Row", one)


def text_in(value: object) -> str:
    """A text, or an empty one."""
    return value if isinstance(value, str) else ""
