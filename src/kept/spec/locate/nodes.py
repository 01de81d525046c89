"""A parsed text as a tree that knows where every value stands, whatever its format."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kept.core.values import NoSpan, Value
from kept.spec.locate.path import Part, Selector, show_path


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value and the characters it is written in."""

    start: int
    end: int
    value: object
    """None, or a date and the like, where it is nothing that can be set."""
    render: Callable[[Value], str]
    obstacle: str = ""
    """Why these characters cannot be replaced; empty when they can."""


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: Sequence["Node"]
    shared: bool = False
    """Whether other places of the text stand for the same thing, as an alias of YAML does."""


@dataclass(frozen=True, slots=True)
class Room:
    """A place in a mapping where one more entry can be put."""

    at: int
    write: Callable[[Sequence[str], Value], str]
    """The entry for a key, or for keys that lead through mappings that are not there yet."""


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping; a key that stands twice is here twice."""

    entries: Sequence[tuple[str, "Node"]]
    shared: bool = False
    room: Room | None = None
    """None where nobody knows how another entry would be written."""


Node = Scalar | Items | Table


class Unreadable(Exception):
    """A text that is not in the format it should be in."""


def find(node: Node, parts: tuple[Part, ...], where: str) -> Scalar | NoSpan:
    """The value at the end of a path, or why there is none."""
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
    """Where a value that is not there could be put, and the keys that it lacks."""
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
    """All values of a tree, each once."""
    found: dict[int, Scalar] = {}
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Scalar):
            found[node.start] = node
        elif id(node) not in seen:
            # a mapping of YAML may hold itself
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
            found = [item for item in node.items if _has(item, part)]
            missing = f"no item of {here} has `{part.field}` = `{part.value}`"
        case _:
            wanted = "a mapping" if isinstance(part, str) else "a list"
            return NoSpan("target missing", f"{here} is not {wanted}")
    if len(found) > 1:
        named = f"key `{part}`" if isinstance(part, str) else f"`{show_path((part,))}`"
        detail = f"{named} stands {len(found)} times in {here}"
        return NoSpan("ambiguous", detail)
    return found[0] if found else NoSpan("target missing", missing)


def _has(item: Node, selector: Selector) -> bool:
    if not isinstance(item, Table):
        return False
    values = [value for key, value in item.entries if key == selector.field]
    return any(isinstance(v, Scalar) and plain(v.value) == selector.value for v in values)


def plain(value: object) -> str:
    """A value as a selector spells it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
