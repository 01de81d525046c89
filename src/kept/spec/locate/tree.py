"""Value paths, and locators of values in YAML, JSON, TOML and line-based files.

Examples of paths are `model.temperature`, `tools[name=search].top_k` and `rows[0].w`. A key with a
dot, a bracket or a space is written in double quotes: `"my.key".value`.

Any format is parsed into a tree with the position of every value. `locate` is a
`kept.core.artifact.Locator`: setting a value changes only its characters. `read_value` returns
the current value.

Other files have `KEY = value` or `KEY: value` lines: .env, .ini, Python constants. Except in Python
they have no types, so a text that looks like a number is one, quoted or not.
"""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from kept.core.artifact import NoSpan, Span, Value, locate_line_value, render_value


@dataclass(frozen=True, slots=True)
class Selector:
    """The one item of a list whose field has this value."""

    field: str
    value: str


Part = str | int | Selector
"""Key of a mapping, index of a list item, or selector of a list item."""

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PLAIN = r'[^\s.\[\]"=]+'
_PART = re.compile(
    rf"""
      (?P<dot>\.)?(?P<key>{_QUOTED}|{_PLAIN})
    | \[(?P<index>\d+)\]
    | \[(?P<field>{_QUOTED}|{_PLAIN})=(?P<value>{_QUOTED}|[^\]"]+)\]
    """,
    re.VERBOSE,
)


def parse_path(text: str) -> tuple[Part, ...] | str:
    """Parse a path; returns an error message if it is not valid."""
    parts: list[Part] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        # every key but the first needs a dot before it
        if match is None or (match["key"] and bool(match["dot"]) != bool(parts)):
            return f"`{text}` is no path (at `{text[at:]}`); write it as in `tools[name=x].top_k`"
        if match["key"]:
            parts.append(_unquote(match["key"]))
        elif match["index"]:
            parts.append(int(match["index"]))
        else:
            parts.append(Selector(_unquote(match["field"]), _unquote(match["value"])))
        at = match.end()
    return tuple(parts) if parts else "the path is empty"


def show_path(parts: tuple[Part, ...]) -> str:
    """Write a path as text, the inverse of `parse_path`."""
    shown = ""
    for part in parts:
        match part:
            case str():
                word = part if re.fullmatch(_PLAIN, part) else _quote(part)
                shown += f".{word}" if shown else word
            case int():
                shown += f"[{part}]"
            case Selector():
                value = part.value if re.fullmatch(r'[^\]"]+', part.value) else _quote(part.value)
                shown += f"[{part.field}={value}]"
    return shown


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text.startswith('"') else text


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value and its characters in the text."""

    start: int
    end: int
    value: object
    """The value; None, or a type such as a date, if it cannot be set."""
    render: Callable[[Value], str]
    obstacle: str = ""
    """Reason why these characters cannot be replaced; empty if they can."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: Sequence["Node"]
    shared: bool = False
    """True if other places of the text refer to it, by aliases of YAML."""


@dataclass(frozen=True, slots=True)
class Room:
    """A place in a mapping where one more entry can be put."""

    at: int
    write: Callable[[Sequence[str], Value], str]
    """Write the entry for a key, or for several keys through new nested mappings."""


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping; duplicate keys are kept."""

    entries: Sequence[tuple[str, "Node"]]
    shared: bool = False
    room: Room | None = None
    """Place for a new entry; None if none is known."""


Node = Scalar | Items | Table


class Unreadable(Exception):
    """Raised for a text that is not in the expected format."""


def find(node: Node, parts: tuple[Part, ...], where: str) -> Scalar | NoSpan:
    """Find the value at the end of a path; `NoSpan` says why there is none."""
    for at, part in enumerate(parts):
        here = f"`{show_path(parts[:at])}` of {where}" if at else where
        below = _step(node, part, here)
        if isinstance(below, NoSpan):
            return below
        node = below
        if not isinstance(node, Scalar) and node.shared:
            shown = show_path(parts[: at + 1])
            return NoSpan("ambiguous", f"`{shown}` of {where} is shared through an alias")
    if not isinstance(node, Scalar):
        kind = "a list" if isinstance(node, Items) else "a mapping"
        return NoSpan("target missing", f"`{show_path(parts)}` of {where} is {kind}, not a value")
    if node.obstacle:
        return NoSpan("ambiguous", f"`{show_path(parts)}` of {where} {node.obstacle}")
    return node


def find_room(node: Node, parts: tuple[Part, ...]) -> tuple[Room, tuple[str, ...]] | None:
    """Find a place to insert a missing value, and the keys that are missing; None if none."""
    for at, part in enumerate(parts):
        if isinstance(node, Table) and part not in [key for key, _ in node.entries]:
            keys = tuple(part for part in parts[at:] if isinstance(part, str))
            whole = len(keys) == len(parts) - at
            return (node.room, keys) if node.room and whole else None
        below = _step(node, part, "")
        if isinstance(below, NoSpan | Scalar) or below.shared:
            return None
        node = below
    return None


def scalars_of(root: Node) -> list[Scalar]:
    """Return all values of a tree, each once."""
    found: dict[int, Scalar] = {}
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Scalar):
            found[node.start] = node
        elif id(node) not in seen:
            # a YAML mapping may contain itself, through an alias
            seen.add(id(node))
            below = node.items if isinstance(node, Items) else [value for _, value in node.entries]
            waiting.extend(below)
    return list(found.values())


def _step(node: Node, part: Part, here: str) -> Node | NoSpan:
    match part, node:
        case str(), Table():
            found = [value for key, value in node.entries if key == part]
            known = ", ".join(f"`{key}`" for key, _ in node.entries[:12])
            missing = f"no key `{part}` in {here}, which has {known or 'none'}"
        case int(), Items():
            found = list(node.items[part : part + 1])
            missing = f"no item {part} in {here}, which has {len(node.items)}"
        case Selector(), Items():
            found = [
                item
                for item in node.items
                if isinstance(item, Table)
                and any(
                    key == part.field and isinstance(v, Scalar) and plain(v.value) == part.value
                    for key, v in item.entries
                )
            ]
            missing = f"no item of {here} has `{part.field}` = `{part.value}`"
        case _:
            wanted = "a mapping" if isinstance(part, str) else "a list"
            return NoSpan("target missing", f"{here} is not {wanted}")
    if len(found) > 1:
        named = f"key `{part}`" if isinstance(part, str) else f"`{show_path((part,))}`"
        detail = f"{named} stands {len(found)} times in {here}"
        return NoSpan("ambiguous", detail)
    return found[0] if found else NoSpan("target missing", missing)


def plain(value: object) -> str:
    """Write a value as a selector does."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def find_line(path: str, text: str, key: str) -> Scalar | NoSpan:
    """Find the value of the only line that sets a key."""
    span = locate_line_value(path, text, key)
    if isinstance(span, NoSpan):
        return span
    raw = text[span.start : span.end]
    if path.endswith(".py"):
        try:
            constant = ast.literal_eval(raw)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            constant = None
        return Scalar(span.start, span.end, constant, span.render)
    quote = raw[:1] if raw[:1] in ('"', "'") else ""
    bare = raw[1:-1] if quote else raw

    def render(value: Value) -> str:
        if quote and not isinstance(value, str):
            return quote + render_value(value) + quote
        return span.render(value)

    return Scalar(span.start, span.end, _typed(bare), render)


def _typed(raw: str) -> object:
    for kind in (int, float):
        try:
            return kind(raw)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(raw.lower(), raw)


_YAML = (".yaml", ".yml")
_TREES = (*_YAML, ".json", ".toml")


def locate(path: str, text: str, key: str) -> Span | NoSpan:
    """Find the span of a key's value in a text; the path's suffix determines the format."""
    found = _find(path, text, key)
    if isinstance(found, NoSpan):
        return found
    return Span(found.start, found.end, found.render)


def locate_or_insert(path: str, text: str, key: str) -> Span | NoSpan:
    """Like `locate`; for a key missing from a YAML mapping, the span inserts it."""
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
    """Read the value of a key, with the type that the format gives it."""
    found = _find(path, text, key)
    if isinstance(found, NoSpan):
        return found
    if not isinstance(found.value, str | int | float):
        detail = f"`{key}` of {path} is neither a number nor a text, nor true or false"
        return NoSpan("target missing", detail)
    return found.value


def with_texts(path: str, text: str, change: Callable[[str], str | None]) -> str:
    """Replace each text value by what `change` returns for it; None leaves it as it is."""
    try:
        found = scalars_of(_tree(path.rpartition(".")[2], text))
    except Unreadable:
        return text
    # from the end, so that earlier offsets stay valid
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


# cached: proposers read several values of the same text, again in every step
@lru_cache(maxsize=16)
def _tree(suffix: str, text: str) -> Node:
    if suffix == "json":
        from kept.spec.locate.json import read_json

        return read_json(text)
    if suffix == "toml":
        from kept.spec.locate.toml import read_toml

        return read_toml(text)
    # imported at use: the YAML library is slow to import
    from kept.spec.locate.yaml import read_yaml

    return read_yaml(text)
