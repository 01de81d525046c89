"""Rendering of promptfoo templates: the common part of nunjucks, without code.

Values are those of JSON. A template can read, choose and repeat them. It calls no method, reaches
no attribute and takes a bounded number of steps, so templates by a proposer are safe. Unsupported
syntax is refused by name, never ignored. The names of the values that a template needs are
available too.
"""

import operator
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from kept.evaluators.templates.filters import FILTERS, MOST, TemplateFault, dumped, shown
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
    Words,
    parse,
)

MOST_STEPS = 50_000
"""Parts that one filling may go through; nobody's prompt needs so many."""

MOST_MADE = 10 * MOST
"""Characters and items that the filters of one filling may be given and make."""

EXACT = 2**53
"""Up to which JavaScript tells whole numbers apart."""

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
    """What is being written, and the values at hand."""

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values
        self._steps = 0
        self._size = 0
        self._made = 0

    def write(self, nodes: tuple[Node, ...]) -> str:
        """The text of these parts."""
        return "".join(self._texts(nodes))

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

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise TemplateFault("the template takes too many steps")

    def _loop(self, node: Loop) -> Iterator[str]:
        over = self.value(node.over)
        rows: list[tuple[object, ...]]
        if isinstance(over, dict):
            rows = list(cast("dict[str, object]", over).items())
        elif isinstance(over, list):
            # one item for one name, or the parts of a list for several
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
        before = dict(self._values)
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
        """What an expression comes to; None for what is not there."""
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
        """A value that a filter is given or has made; all of them together are bounded."""
        self._made += cast("int", FILTERS["length"](value)) or 1
        if self._made > MOST_MADE:
            raise TemplateFault("the filters of the template make too much")
        return value

    def _joined(self, expression: Joined) -> object:
        left = self.value(expression.left)
        if expression.sign in ("and", "or"):
            decided = _true(left) == (expression.sign == "or")
            return left if decided else self.value(expression.right)
        right = self.value(expression.right)
        match expression.sign:
            case "~":
                return self._counted(shown(left) + shown(right))
            case "==":
                return _same(left, right)
            case "!=":
                return not _same(left, right)
            case "in" if isinstance(right, list):
                return any(_same(left, item) for item in cast("list[object]", right))
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
        # as large numbers are in JavaScript; whole ones of ours would grow without end
        return float(found) if abs(found) > EXACT else found
    except (ZeroDivisionError, OverflowError) as error:
        raise TemplateFault(f"`{sign}`: {error}") from error


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _true(value: object) -> bool:
    """As JavaScript has it: an empty list and an empty object are true."""
    return True if isinstance(value, list | dict) else bool(value)


def _same(left: object, right: object) -> bool:
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    # `==` of JavaScript takes "3" for 3, and the cells of a csv are texts
    if isinstance(left, str) and _is_number(right):
        return left == shown(right)
    if isinstance(right, str) and _is_number(left):
        return right == shown(left)
    for side in (left, right):
        # a list may hold another many times over: one whose text is too long is not compared
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
    """The names that stand free; those that the template makes itself do not."""
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
    """The text with its values in place; raises `TemplateFault`. What is not there is empty."""
    with _faults():
        return Page(dict(values)).write(parse(text))


def names_of(text: str) -> tuple[str, ...]:
    """The values that a template asks for, in their order; raises `TemplateFault`."""
    with _faults():
        return tuple(dict.fromkeys(names_in(parse(text))))


def is_template(text: str) -> bool:
    """Whether a text has anything to be filled in."""
    return "{{" in text or "{%" in text


@contextmanager
def _faults() -> Generator[None]:
    """Whatever a template trips over, it is the template that does."""
    try:
        yield
    except TemplateFault:
        raise
    except (RecursionError, MemoryError) as error:
        raise TemplateFault("the template is nested too deeply, or makes too much") from error
    except (ValueError, ArithmeticError) as error:
        raise TemplateFault(f"the template cannot be filled in: {error}") from error
