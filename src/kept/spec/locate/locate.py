"""Where a value stands in a YAML, JSON, TOML or line-based text, by its path.

`locate` is a `kept.core.values.Locator`: setting a value changes the characters of that value and
nothing else. `read_value` says what stands there now.
"""

from collections.abc import Callable
from functools import lru_cache

from kept.core.values import NoSpan, Span, Value
from kept.spec.locate.lines import find_line
from kept.spec.locate.nodes import Node, Scalar, Unreadable, find, find_room, scalars_of
from kept.spec.locate.path import parse_path

_YAML = (".yaml", ".yml")
_TREES = (*_YAML, ".json", ".toml")


def locate(path: str, text: str, key: str) -> Span | NoSpan:
    """The span of the value that a key names in a text; the path says which format that is."""
    found = _find(path, text, key)
    if isinstance(found, NoSpan):
        return found
    return Span(found.start, found.end, found.render)


def locate_or_insert(path: str, text: str, key: str) -> Span | NoSpan:
    """The same; a key that a mapping of YAML has not is put into it, where its value is set."""
    span = locate(path, text, key)
    parts = parse_path(key)
    if isinstance(span, Span) or not path.endswith(_YAML) or isinstance(parts, str):
        return span
    try:
        found = find_room(_tree("yaml", text), parts)
    except Unreadable:
        return span
    if found is None:
        return span
    room, keys = found
    return Span(room.at, room.at, lambda value: room.write(keys, value))


def read_value(path: str, text: str, key: str) -> Value | NoSpan:
    """The value that a key names, as the format reads it."""
    found = _find(path, text, key)
    if isinstance(found, NoSpan):
        return found
    if not isinstance(found.value, str | int | float):
        detail = f"`{key}` of {path} is neither a number nor a text, nor true or false"
        return NoSpan("target missing", detail)
    return found.value


def with_texts(path: str, text: str, change: Callable[[str], str | None]) -> str:
    """A text in which other texts stand, wherever `change` has another for one; None leaves it."""
    try:
        found = scalars_of(_tree(path.rpartition(".")[2], text))
    except Unreadable:
        return text
    for one in sorted(found, key=lambda scalar: -scalar.start):
        new = change(one.value) if isinstance(one.value, str) and not one.obstacle else None
        if new is not None:
            text = text[: one.start] + one.render(new) + text[one.end :]
    return text


def _find(path: str, text: str, key: str) -> Scalar | NoSpan:
    if not path.endswith(_TREES):
        return find_line(path, text, key)
    parts = parse_path(key)
    if isinstance(parts, str):
        return NoSpan("target missing", parts)
    try:
        return find(_tree(path.rpartition(".")[2], text), parts, path)
    except Unreadable as error:
        return NoSpan("target missing", f"{path} {error}")


# a proposer reads several values of the same text, and the next step the same ones again
@lru_cache(maxsize=16)
def _tree(suffix: str, text: str) -> Node:
    if suffix == "json":
        from kept.spec.locate.json import read_json

        return read_json(text)
    if suffix == "toml":
        from kept.spec.locate.toml import read_toml

        return read_toml(text)
    # the YAML library takes longer to import than most runs to start
    from kept.spec.locate.yaml import read_yaml

    return read_yaml(text)
