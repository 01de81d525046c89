"""YAML as plain values with line numbers; bounded parsing with libyaml or ruamel.yaml.

Only this module knows the YAML libraries. The reference is ruamel.yaml. The other, libyaml, is
ten times as fast. It is used if it is installed and both agree on the syntax. Errors of either
are reported by ruamel.yaml. libyaml recurses in C: deep nesting would crash the process, so it is
refused first.
"""

import re
import time
from dataclasses import dataclass, field, replace
from typing import Any, cast

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from kept.core.parsing import (
    MAX_DEPTH,
    MAX_DIGITS,
    ParseLimit,
    check_number,
    check_size,
    too_deep,
    too_long_number,
)

STRING = "tag:yaml.org,2002:str"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")

MAX_CHARS = 16 * 1024 * 1024
MAX_NODES = 500_000
"""Values and keys of a text, those behind aliases counted once; a node takes about a kilobyte."""

MAX_SECONDS = 30.0
"""Seconds for ruamel.yaml, which reads 50 kB a second; libyaml needs no more for `MAX_NODES`."""

_DISPUTED = re.compile("[\t\x85\u2028\u2029\ufeff]|^%", re.MULTILINE)
"""What the two libraries may take apart differently: other ends of lines, tabs, versions."""


def can_take(text: str) -> bool:
    """Whether libyaml is there, and both libraries agree on how to take a text apart."""
    return yaml.__with_libyaml__ and not _DISPUTED.search(text)


class _Bounds:
    """Counts the nodes that a composer descends into; raises `ParseLimit`."""

    def __init__(self, seconds: float | None = None) -> None:
        self._depth = 0
        self._nodes = 0
        self._seconds = seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def descend(self, parent: Any, index: object) -> None:  # noqa: ANN401 # see `parser_of`
        """Called before each node, as a method of a resolver."""
        self._depth += 1
        self._nodes += 1
        line = None if parent is None else int(parent.start_mark.line) + 1
        # a list at the deepest level may still hold values
        if self._depth > MAX_DEPTH + 1:
            raise too_deep(line)
        if self._nodes > MAX_NODES:
            raise ParseLimit(f"it has more than {MAX_NODES:,} values", line)
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise ParseLimit(f"reading it takes more than {self._seconds:g} seconds", line)

    def ascend(self) -> None:
        """Called behind each node."""
        self._depth -= 1


def parser_of(text: str, resolver: Any) -> Any:  # noqa: ANN401 # the libraries have no types
    """The parser of libyaml on a text, with ruamel's idea of which words are numbers.

    Raises `ParseLimit`, and so does what it composes.
    """
    check_size(text, MAX_CHARS)
    libraries = cast("Any", yaml)
    base: Any = libraries.cyaml.CParser if yaml.__with_libyaml__ else libraries.SafeLoader
    known: dict[str, str] = {}
    bounds = _Bounds()

    class Parser(base):
        def resolve(self, kind: type, value: str, implicit: tuple[bool, bool]) -> str:
            if kind is not yaml.ScalarNode:
                return "tag:yaml.org,2002:map"  # or a list: nobody asks
            if not implicit[0]:
                return STRING
            if value not in known:
                known[value] = str(resolver.resolve(ScalarNode, value, implicit))
            return known[value]

        # the composer calls these two around every node, before it recurses
        descend_resolver = staticmethod(bounds.descend)
        ascend_resolver = staticmethod(bounds.ascend)

    return cast("Any", Parser(text))


def ruamel() -> Any:  # noqa: ANN401 # the library has no types
    """A reader of ruamel.yaml for one text; what it composes raises `ParseLimit`."""
    reader: Any = YAML(typ="safe", pure=True)
    bounds = _Bounds(MAX_SECONDS)

    # not the resolver: `%YAML 1.1` puts another in its place
    class BoundedComposer(Composer):
        def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 # see above
            bounds.descend(parent, index)
            node = cast("Any", super()).compose_node(parent, index)
            bounds.ascend()
            return node

    reader.Composer = BoundedComposer
    return reader


def construct(reader: Any, node: Any) -> object:  # noqa: ANN401 # the library has no types
    """The value of a scalar node, by ruamel's rules; raises `ValueError` where there is none."""
    if len(node.value) > MAX_DIGITS and node.tag in _NUMBERS:
        raise too_long_number()
    plain = ScalarNode(node.tag, node.value, style=node.style)  # libyaml's nodes are others
    try:
        value = reader.constructor.construct_object(plain)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # `!!bool x`: its constructors take what an explicit tag says for granted
        raise ValueError(f"`{node.value[:40]}` is no {node.tag.rpartition(':')[2]}") from error
    check_number(value)
    return value


def compose_all(text: str) -> None:
    """Take all documents of a text apart; raises `yaml.YAMLError` or `ParseLimit`."""
    parser = parser_of(text, ruamel().resolver)
    while parser.check_node():
        parser.get_node()


Loc = tuple[str | int, ...]
"""Keys and places in lists that lead to a value."""

MAX_VALUES = 100_000
"""Values of a file, those behind aliases counted each time; nobody writes so many by hand."""

LONG = 200_000
"""Characters from which on libyaml says itself what it refuses: ruamel.yaml takes too long."""


class YamlFault(Exception):
    """A text that is not YAML, or more of it than we read."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        signs = ("block scalar", "for the tag", "undefined alias", "start any token")
        # `op: >=` and `op: !=` are the usual ways to get here
        needs_quotes = any(sign in message for sign in signs)
        self.hint = "put quotes round a text that begins with a sign" if needs_quotes else None
        if r"'\t'" in message:
            self.hint = "indent with spaces: YAML does not take tabs"


@dataclass(frozen=True, slots=True)
class Document:
    """What a text holds."""

    data: object
    """None for an empty text."""
    lines: dict[Loc, int] = field(default_factory=dict[Loc, int])
    """Where each key and each item of a list stands."""
    doubles: list[tuple[Loc, int]] = field(default_factory=list[tuple[Loc, int]])
    """Keys that stand a second time, and where; their second values are left out."""
    templates: set[Loc] = field(default_factory=set[Loc])
    """Texts without quotes that hold a `${`: what is filled in there may be a number."""


def read_yaml(text: str) -> Document:
    """The one document of a text; raises `YamlFault`."""
    try:
        check_size(text, MAX_CHARS)
        if can_take(text):
            try:
                return _Reader().read_fast(text)
            except ParseLimit:
                raise
            except yaml.YAMLError as error:
                if len(text) > LONG:
                    raise _fault(error, text) from error
            except (YAMLError, ValueError):
                pass  # the other one says what is wrong, and where
        return _Reader().read(text)
    except ParseLimit as limit:
        raise YamlFault(limit.line or 1, str(limit)) from limit


class _Reader:
    """Turns the library's nodes into values. Nodes are `Any`: the library has no types."""

    def __init__(self) -> None:
        self._yaml: Any = ruamel()
        self._document = Document(None)
        self._count = 0

    def read(self, text: str) -> Document:
        try:
            node: Any = self._yaml.compose(text)
            data = None if node is None else self._value(node, ())
        except ParseLimit:
            raise
        except (YAMLError, ValueError) as error:
            raise _fault(error, text) from error
        return replace(self._document, data=data)

    def read_fast(self, text: str) -> Document:
        """The same by libyaml; raises whatever either library does."""
        node: Any = parser_of(text, self._yaml.resolver).get_single_node()
        data = None if node is None else self._value(node, ())
        return replace(self._document, data=data)

    def _value(self, node: Any, loc: Loc) -> object:  # noqa: ANN401 # see the class
        self._count += 1
        if self._count > MAX_VALUES or len(loc) > MAX_DEPTH:
            why = f"nested more than {MAX_DEPTH} levels deep, or an alias of itself"
            if self._count > MAX_VALUES:
                why = f"too many values: more than {MAX_VALUES:,}, counting aliases each time"
            raise YamlFault(node.start_mark.line + 1, why)
        if isinstance(node, MappingNode | yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, SequenceNode | yaml.SequenceNode):
            return self._sequence(node, loc)
        if not node.style and "${" in node.value:
            self._document.templates.add(loc)
        if isinstance(node, yaml.ScalarNode) and node.tag == STRING:
            return node.value
        try:
            return construct(self._yaml, node)
        except ParseLimit as limit:
            raise ParseLimit(str(limit), node.start_mark.line + 1) from limit

    def _sequence(self, node: Any, loc: Loc) -> list[object]:  # noqa: ANN401 # see the class
        values: list[object] = []
        for number, item in enumerate(node.value):
            below = (*loc, number)
            self._document.lines[below] = item.start_mark.line + 1
            values.append(self._value(item, below))
        return values

    def _mapping(self, node: Any, loc: Loc) -> dict[str, object]:  # noqa: ANN401 # see the class
        values: dict[str, object] = {}
        merged: list[Any] = []
        for key, value in node.value:
            if key.value == "<<" and not key.style:
                merged.append(value)
                continue
            line = key.start_mark.line + 1
            if not isinstance(key.value, str):
                raise YamlFault(line, "a list or a mapping cannot be a key")
            below = (*loc, key.value)
            if key.value in values:
                self._document.doubles.append((below, line))
                continue
            self._document.lines[below] = line
            values[key.value] = self._value(value, below)
        for other in merged:
            self._merge(other, loc, values)
        return values

    def _merge(self, node: Any, loc: Loc, values: dict[str, object]) -> None:  # noqa: ANN401 # see the class
        """Add what `<<` stands for, where a mapping does not say it itself."""
        if isinstance(node, SequenceNode | yaml.SequenceNode):
            items: list[Any] = cast("Any", node).value
            for item in items:
                self._merge(item, loc, values)
            return
        if not isinstance(node, MappingNode | yaml.MappingNode):
            raise YamlFault(node.start_mark.line + 1, "`<<` takes a mapping, or a list of them")
        lines, doubles = dict(self._document.lines), list(self._document.doubles)
        for key, value in self._mapping(node, loc).items():
            values.setdefault(key, value)
        self._document.lines.update(lines)
        self._document.doubles[:] = doubles


def _fault(error: Any, text: str) -> YamlFault:  # noqa: ANN401 # the library has no types
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        words = ", ".join(part for part in (error.context, error.problem) if part)
        fault = YamlFault(mark.line + 1, words)
        if "flow" in words and "${" in "".join(text.splitlines()[mark.line : mark.line + 1]):
            fault.hint = "put quotes round `${NAME}` where it stands inside brackets"
        return fault
    line = text.count("\n", 0, getattr(error, "position", 0)) + 1
    return YamlFault(line, getattr(error, "reason", None) or str(error).splitlines()[0])
