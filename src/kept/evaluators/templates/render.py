"""Rendering of promptfoo templates: the common part of nunjucks, without code (decision 0222).

Values are those of JSON. A template can read, choose and repeat them. It calls no method, reaches
no attribute and takes a bounded number of steps, so templates by a proposer are safe. Unsupported
syntax is refused by name, never ignored. `names_of` lists the values that a template needs.
"""

import json
import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import inf
from typing import Any, cast

from kept.core.parsing import parse_json
from kept.evaluators.templates.parse import (
    Bind,
    Branch,
    Choice,
    Expression,
    Filtered,
    Items,
    Joined,
    Literal,
    Loop,
    Member,
    Name,
    Node,
    Not,
    Shown,
    TemplateFault,
    Words,
    parse,
)

MOST = 1_000_000
"""Maximum number of characters that a filter or a whole template may produce."""


def shown(value: object) -> str:
    """Value as text: as in JavaScript, except that lists and objects become JSON."""
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
    """Value as JSON."""
    between = None if indent is not None else (",", ":")
    wide = cast("int | str | None", indent)
    if isinstance(wide, int):
        wide = min(wide, 10)
    encoder = json.JSONEncoder(ensure_ascii=False, indent=wide, separators=between)
    return "".join(_bounded("dump", encoder.iterencode(value)))


_WORK: ContextVar[Callable[[int], None]] = ContextVar("kept_template_work")
"""Function that counts the work of the current rendering, in characters."""

_PART = 20
"""Work of joining one part, in characters."""


def _bounded(filter: str, parts: Iterable[str], between: int = 0) -> Iterator[str]:
    """Pass on parts of a text while their total is within the limits."""
    size = 0
    work = _WORK.get()
    for part in parts:
        size += len(part) + between
        if size > MOST:
            raise TemplateFault(f"`{filter}` would make too much text")
        work(len(part) + _PART)
        yield part


def _length(value: object) -> int:
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
    """Make a filter from a function on texts."""

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
"""Filters by name."""

MOST_STEPS = 100_000
"""Maximum number of nodes and loop turns per rendering; no prompt needs so many."""

MAX_WORK = 10 * MOST
"""Maximum number of characters and items that one rendering may process."""

_COMPARED_AT_ONCE = 20
"""Number of characters compared or searched in the time of converting one."""

EXACT = 2**53
"""Largest number up to which JavaScript is exact on integers."""

_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda one, other: one + other,
    "-": lambda one, other: one - other,
    "*": lambda one, other: one * other,
    "/": lambda one, other: one / other,
    "//": lambda one, other: one // other,
    "%": lambda one, other: one % other,
}
_ORDER: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class Page:
    """State of one rendering: values, steps, size and work."""

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values
        self._steps = 0
        self._size = 0
        self._done = 0

    def write(self, nodes: tuple[Node, ...]) -> str:
        """Render nodes to text."""
        before = _WORK.set(self._work)
        try:
            return "".join(self._texts(nodes))
        finally:
            _WORK.reset(before)

    def _texts(self, nodes: tuple[Node, ...]) -> Iterator[str]:
        for node in nodes:
            self._step()
            match node:
                case Words():
                    yield self._counted(node.text)
                case Shown():
                    yield self._counted(shown(self.value(node.value)))
                case Bind():
                    self._values[node.name] = self.value(node.value)
                case Branch():
                    for test, body in node.arms:
                        if test is None or _true(self.value(test)):
                            yield from self._texts(body)
                            break
                case Loop():
                    yield from self._loop(node)

    def _counted(self, text: str) -> str:
        self._size += len(text)
        if self._size > MOST:
            raise TemplateFault("the template makes too much text")
        return text

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise TemplateFault("the template takes too many steps")

    def _work(self, size: int) -> None:
        self._done += size
        if self._done > MAX_WORK:
            raise TemplateFault("the template works on too much")

    def _loop(self, node: Loop) -> Iterator[str]:
        over = self.value(node.over)
        if isinstance(over, dict | list | str):
            self._step(len(cast("list[object]", over)))
        rows: list[tuple[object, ...]]
        if isinstance(over, dict):
            rows = list(cast("dict[str, object]", over).items())
        elif isinstance(over, list):
            # several names unpack each item that is a list
            rows = [
                tuple(cast("list[object]", item))
                if len(node.names) > 1 and isinstance(item, list)
                else (item,)
                for item in cast("list[object]", over)
            ]
        else:
            rows = [(character,) for character in over] if isinstance(over, str) else []
        if not rows:
            yield from self._texts(node.otherwise)
            return
        before = {n: self._values[n] for n in (*node.names, "loop") if n in self._values}
        for at, row in enumerate(rows):
            self._values.update(zip(node.names, row, strict=False))
            self._values["loop"] = {
                "index": at + 1,
                "index0": at,
                "revindex": len(rows) - at,
                "revindex0": len(rows) - at - 1,
                "first": at == 0,
                "last": at == len(rows) - 1,
                "length": len(rows),
            }
            yield from self._texts(node.body)
        for name in (*node.names, "loop"):
            self._values.pop(name, None)
            if name in before:
                self._values[name] = before[name]

    def value(self, expression: Expression) -> object:
        """Evaluate an expression; None for a missing value."""
        self._step()
        match expression:
            case Literal():
                return expression.value
            case Name():
                return self._values.get(expression.name)
            case Member():
                return _member(self.value(expression.of), self.value(expression.key))
            case Items():
                return [self.value(item) for item in expression.items]
            case Not():
                return not _true(self.value(expression.value))
            case Choice():
                chosen = _true(self.value(expression.test))
                return self.value(expression.then if chosen else expression.otherwise)
            case Filtered():
                return self._filtered(expression)
            case Joined():
                return self._joined(expression)

    def _filtered(self, expression: Filtered) -> object:
        given = [self.value(one) for one in expression.given]
        value = self._handled(self.value(expression.value))
        try:
            return self._handled(FILTERS[expression.filter](value, *given))
        except TemplateFault:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            message = f"the filter `{expression.filter}` was not given what it takes"
            raise TemplateFault(message) from error

    def _handled(self, value: object) -> object:
        """Count the work of a value that goes into or comes from a filter."""
        self._work(_length(value) or 1)
        return value

    def _joined(self, expression: Joined) -> object:
        left = self.value(expression.left)
        if expression.sign in ("and", "or"):
            decided = _true(left) == (expression.sign == "or")
            return left if decided else self.value(expression.right)
        right = self.value(expression.right)
        self._work((_length(left) + _length(right)) // _COMPARED_AT_ONCE)
        match expression.sign:
            case "~":
                return self._counted(shown(left) + shown(right))
            case "==":
                return _same(left, right)
            case "!=":
                return not _same(left, right)
            case "in" if isinstance(right, list):
                items = cast("list[object]", right)
                self._work(3 * len(items))
                return any(_same(left, item) for item in items)
            case "in":
                return isinstance(right, str | dict) and shown(left) in right
            case "+" if not (_is_number(left) and _is_number(right)):
                return self._counted(shown(left) + shown(right))
            case sign if sign in _ORDER:
                both = (_is_number(left) and _is_number(right)) or (
                    isinstance(left, str) and isinstance(right, str)
                )
                return both and _ORDER[sign](left, right)
            case sign:
                return _reckoned(sign, left, right)


def _reckoned(sign: str, left: object, right: object) -> object:
    if not (_is_number(left) and _is_number(right)):
        raise TemplateFault(f"`{sign}` is between {dumped(left)[:40]} and {dumped(right)[:40]}")
    one, other = cast("float", left), cast("float", right)
    try:
        found = _ARITHMETIC[sign](one, other)
        # float as in JavaScript; Python integers would grow without limit
        return float(found) if abs(found) > EXACT else found
    except (ZeroDivisionError, OverflowError) as error:
        raise TemplateFault(f"`{sign}`: {error}") from error


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _true(value: object) -> bool:
    """Truth as in JavaScript: empty lists and objects are true."""
    return True if isinstance(value, list | dict) else bool(value)


def _same(left: object, right: object) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    # JavaScript's `==` treats "3" and 3 as equal, and CSV cells are texts
    if isinstance(left, str) and _is_number(right):
        return left == shown(right)
    if isinstance(right, str) and _is_number(left):
        return right == shown(left)
    for side in (left, right):
        # shared lists may expand to a huge comparison: `shown` raises if the text is too long
        shown(side)
    return left == right


def _member(of: object, key: object) -> object:
    if isinstance(of, dict):
        return cast("dict[str, object]", of).get(shown(key))
    if isinstance(of, list | str):
        if key == "length":
            return len(cast("list[object]", of))
        if isinstance(key, int) and 0 <= key < len(cast("list[object]", of)):
            return cast("list[object]", of)[key]
    return None


def names_in(nodes: tuple[Node, ...], own: frozenset[str] = frozenset()) -> Iterator[str]:
    """Free names of a template, without those that it sets itself."""
    for node in nodes:
        match node:
            case Words():
                pass
            case Shown():
                yield from _free(node.value, own)
            case Bind():
                yield from _free(node.value, own)
                own = own | {node.name}
            case Branch():
                for test, body in node.arms:
                    if test is not None:
                        yield from _free(test, own)
                    yield from names_in(body, own)
            case Loop():
                yield from _free(node.over, own)
                yield from names_in(node.body, own | {*node.names, "loop"})
                yield from names_in(node.otherwise, own)


def _free(expression: Expression, own: frozenset[str]) -> Iterator[str]:
    match expression:
        case Literal():
            inner: tuple[Expression, ...] = ()
        case Name():
            inner = ()
            if expression.name not in own:
                yield expression.name
        case Member():
            inner = (expression.of, expression.key)
        case Items():
            inner = expression.items
        case Filtered():
            inner = (expression.value, *expression.given)
        case Joined():
            inner = (expression.left, expression.right)
        case Not():
            inner = (expression.value,)
        case Choice():
            inner = (expression.test, expression.then, expression.otherwise)
    for one in inner:
        yield from _free(one, own)


__all__ = ["MOST", "TemplateFault", "is_template", "names_of", "render"]


def render(text: str, values: Mapping[str, object]) -> str:
    """Render a template; raises `TemplateFault`. Missing values are empty."""
    with _faults():
        return Page(dict(values)).write(parse(text, FILTERS))


def names_of(text: str) -> tuple[str, ...]:
    """Names of the values that a template needs, in order; raises `TemplateFault`."""
    with _faults():
        return tuple(dict.fromkeys(names_in(parse(text, FILTERS))))


def is_template(text: str) -> bool:
    """True if a text has anything to fill in."""
    return "{{" in text or "{%" in text


@contextmanager
def _faults() -> Generator[None]:
    """Turn errors of a rendering into `TemplateFault`."""
    try:
        yield
    except TemplateFault:
        raise
    except (RecursionError, MemoryError) as error:
        raise TemplateFault("the template is nested too deeply, or makes too much") from error
    except (ValueError, ArithmeticError) as error:
        raise TemplateFault(f"the template cannot be filled in: {error}") from error
