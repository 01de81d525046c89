"""Template errors, and filters: those of nunjucks in common use, and promptfoo's `load`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any, cast

from kept.core.parsing import parse_json


class TemplateFault(ValueError):
    """A template that is wrong, or asks for more than is offered here."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line
        """Of the template, from 1; 0 where it is not known."""


MOST = 1_000_000
"""Characters that a filter, or a whole template, may make."""


def shown(value: object) -> str:
    """A value as a text: as JavaScript writes it, but for lists and objects, which are JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if value != value or value in (inf, -inf):
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        case float():
            return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)
        case _:
            return dumped(value)


def dumped(value: object, indent: object = None) -> str:
    """A value as JSON."""
    between = None if indent is not None else (",", ":")
    wide = cast("int | str | None", indent)
    if isinstance(wide, int):
        wide = min(wide, 10)
    encoder = json.JSONEncoder(ensure_ascii=False, indent=wide, separators=between)
    return "".join(_bounded("dump", encoder.iterencode(value)))


def _bounded(filter: str, parts: Iterable[str], between: int = 0) -> Iterator[str]:
    """Texts that are put together, as long as that does not come to too much."""
    size = 0
    for part in parts:
        size += len(part) + between
        if size > MOST:
            raise TemplateFault(f"`{filter}` would make too much text")
        yield part


def _length(value: object) -> object:
    return len(cast("list[object]", value)) if isinstance(value, str | list | dict) else 0


def _items(value: object) -> list[object]:
    if isinstance(value, list):
        return cast("list[object]", value)
    if isinstance(value, dict):
        return list(cast("dict[str, object]", value))
    return list(shown(value))


def _join(value: object, between: object = "", key: object = None) -> object:
    items = _items(value)
    if key is not None:
        items = [cast("dict[str, object]", i).get(shown(key)) for i in items if isinstance(i, dict)]
    mark = shown(between)
    return mark.join(_bounded("join", map(shown, items), len(mark)))


def _default(value: object, other: object = "", empty: object = False) -> object:
    return other if value is None or (empty and not value) else value


def _replaced(value: object, old: object, new: object = "", most: object = -1) -> object:
    times = most if isinstance(most, int) else -1
    text = shown(value)
    if text.count(shown(old)) * len(shown(new)) + len(text) > MOST:
        raise TemplateFault("`replace` would make too much text")
    return text.replace(shown(old), shown(new), times)


def _number(value: object, other: object = 0) -> float | None:
    try:
        return float(shown(value).strip())
    except (ValueError, OverflowError):
        return other if isinstance(other, int | float) else None


def _int(value: object, other: object = 0) -> object:
    found = _number(value, other)
    return None if found is None or found != found or abs(found) > 1e300 else int(found)


def _round(value: object, places: object = 0, how: object = "common") -> object:
    number, digits = _number(value), places if isinstance(places, int) else 0
    if number is None:
        return None
    scale = 10 ** max(-10, min(digits, 10))
    whole = number * scale
    down = int(whole // 1)
    chosen = {"floor": down, "ceil": -int(-whole // 1)}.get(shown(how), int((whole + 0.5) // 1))
    return chosen / scale


def _truncated(value: object, most: object = 255, cut: object = False, end: object = "...") -> str:
    text, limit = shown(value), most if isinstance(most, int) else 255
    if len(text) <= limit:
        return text
    kept = text[:limit]
    if not cut and " " in kept:
        kept = kept[: kept.rindex(" ")]
    return kept + shown(end)


def _indented(value: object, wide: object = 4, first: object = False) -> str:
    by = " " * min(wide if isinstance(wide, int) else 4, 100)
    lines = shown(value).split("\n")
    lines = list(_bounded("indent", lines, len(by) + 1))
    return "\n".join(by + line if n or first else line for n, line in enumerate(lines))


def _loaded(value: object) -> object:
    try:
        return parse_json(shown(value))
    except ValueError:
        raise TemplateFault(f"`load` was given what is no JSON: {shown(value)[:60]}") from None


def _sorted(value: object, backwards: object = False) -> object:
    items: list[Any] = _items(value)
    if all(isinstance(item, int | float) for item in items):
        return sorted(items, reverse=bool(backwards))
    keys = list(_bounded("sort", map(shown, items)))
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(backwards))
    return [items[at] for at in order]


def _reversed(value: object) -> object:
    return value[::-1] if isinstance(value, str) else _items(value)[::-1]


def _itself(value: object) -> object:
    return value


def _by(change: Callable[[str], object]) -> Callable[[object], object]:
    """A filter that changes the text of a value."""

    def changed(value: object) -> object:
        return change(shown(value))

    return changed


def _at_end(place: int, value: object) -> object:
    items = _items(value)
    return items[place] if items else None


FILTERS: Mapping[str, Callable[..., object]] = {
    "capitalize": _by(str.capitalize),
    "d": _default,
    "default": _default,
    "dump": dumped,
    "first": partial(_at_end, 0),
    "float": _number,
    "indent": _indented,
    "int": _int,
    "join": _join,
    "last": partial(_at_end, -1),
    "length": _length,
    "list": _items,
    "load": _loaded,
    "lower": _by(str.lower),
    "replace": _replaced,
    "reverse": _reversed,
    "round": _round,
    "safe": _itself,
    "sort": _sorted,
    "string": shown,
    "title": _by(str.title),
    "trim": _by(str.strip),
    "truncate": _truncated,
    "upper": _by(str.upper),
    "wordcount": _by(lambda text: len(text.split())),
}
"""By their names in a template."""
