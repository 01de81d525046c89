"""YAML as plain values with line numbers; bounded parsing with libyaml or ruamel.yaml.

The reference is ruamel.yaml. libyaml is ten times as fast; it is used if it is installed and both
agree on the syntax. Errors of either are reported by ruamel.yaml. libyaml recurses in C: deep
nesting would crash the process, so it is refused first.
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
"""Maximum values and keys of a text, aliases counted once; a node takes about a kilobyte."""

MAX_SECONDS = 30.0
"""Time limit for ruamel.yaml, which reads 50 kB/s; libyaml reads `MAX_NODES` within it."""

_DISPUTED = re.compile("[\t\x85\u2028\u2029\ufeff]|^%", re.MULTILINE)
"""Syntax that the two libraries may parse differently: line ends, tabs, `%YAML` versions."""


def can_take(text: str) -> bool:
    """True if libyaml is installed and both libraries parse the text alike."""
    return yaml.__with_libyaml__ and not _DISPUTED.search(text)


class _Bounds:
    """Counts the nodes that a composer descends into; raises `ParseLimit`."""

    def __init__(self, seconds: float | None = None) -> None:
        self._depth = 0
        self._nodes = 0
        self._seconds = seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def descend(self, parent: Any, index: object) -> None:  # noqa: ANN401 # see `parser_of`
        """Count a node before it is composed; has the signature of a resolver's method."""
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
        """Leave a node after it is composed."""
        self._depth -= 1


def parser_of(text: str, resolver: Any) -> Any:  # noqa: ANN401 # the libraries have no types
    """Return libyaml's parser of a text, with ruamel's rules for which words are numbers.

    Raises `ParseLimit`, here and while nodes are composed.
    """
    check_size(text, MAX_CHARS)
    libraries = cast("Any", yaml)
    base: Any = libraries.cyaml.CParser if yaml.__with_libyaml__ else libraries.SafeLoader
    known: dict[str, str] = {}
    bounds = _Bounds()

    class Parser(base):
        def resolve(self, kind: type, value: str, implicit: tuple[bool, bool]) -> str:
            if kind is not yaml.ScalarNode:
                return "tag:yaml.org,2002:map"  # or a list: the tag is not used
            if not implicit[0]:
                return STRING
            if value not in known:
                known[value] = str(resolver.resolve(ScalarNode, value, implicit))
            return known[value]

        # the composer calls these two around every node, `descend` before it recurses
        descend_resolver = staticmethod(bounds.descend)
        ascend_resolver = staticmethod(bounds.ascend)

    return cast("Any", Parser(text))


def ruamel() -> Any:  # noqa: ANN401 # the library has no types
    """Return a ruamel.yaml reader for one text; composing raises `ParseLimit`."""
    reader: Any = YAML(typ="safe", pure=True)
    bounds = _Bounds(MAX_SECONDS)

    # not in the resolver, which `%YAML 1.1` replaces
    class BoundedComposer(Composer):
        def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 # see above
            bounds.descend(parent, index)
            node = cast("Any", super()).compose_node(parent, index)
            bounds.ascend()
            return node

    reader.Composer = BoundedComposer
    return reader


def construct(reader: Any, node: Any) -> object:  # noqa: ANN401 # the library has no types
    """Return the value of a scalar node by ruamel's rules; `ValueError` if it has none."""
    if len(node.value) > MAX_DIGITS and node.tag in _NUMBERS:
        raise too_long_number()
    plain = ScalarNode(node.tag, node.value, style=node.style)  # libyaml has its own node class
    try:
        value = reader.constructor.construct_object(plain)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # such as `!!bool x`: ruamel's constructors trust an explicit tag
        raise ValueError(f"`{node.value[:40]}` is no {node.tag.rpartition(':')[2]}") from error
    check_number(value)
    return value


def compose_all(text: str) -> None:
    """Compose all documents of a text; raises `yaml.YAMLError` or `ParseLimit`."""
    parser = parser_of(text, ruamel().resolver)
    while parser.check_node():
        parser.get_node()


Loc = tuple[str | int, ...]
"""Path of keys and list indexes that leads to a value."""

MAX_VALUES = 100_000
"""Maximum values of a file, aliases counted each time; far more than is written by hand."""

LONG = 200_000
"""Length in characters above which libyaml's own error is shown: ruamel.yaml is too slow."""


class YamlFault(Exception):
    """Raised for a text that is not YAML, or that exceeds a limit."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        signs = ("block scalar", "for the tag", "undefined alias", "start any token")
        # usual causes are `op: >=` and `op: !=`
        needs_quotes = any(sign in message for sign in signs)
        self.hint = "put quotes round a text that begins with a sign" if needs_quotes else None
        if r"'\t'" in message:
            self.hint = "indent with spaces: YAML does not take tabs"


@dataclass(frozen=True, slots=True)
class Document:
    """Values of a text, with the lines of its keys."""

    data: object
    """None for an empty text."""
    lines: dict[Loc, int] = field(default_factory=dict[Loc, int])
    """Line of each key and each list item, from 1."""
    doubles: list[tuple[Loc, int]] = field(default_factory=list[tuple[Loc, int]])
    """Duplicate keys and their lines; only the first value is used."""
    templates: set[Loc] = field(default_factory=set[Loc])
    """Places of unquoted texts with a `${`: once filled in, they may be numbers."""


def read_yaml(text: str) -> Document:
    """Read a text of one document; raises `YamlFault`."""
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
                pass  # ruamel.yaml below reports the error and its line
        return _Reader().read(text)
    except ParseLimit as limit:
        raise YamlFault(limit.line or 1, str(limit)) from limit


class _Reader:
    """Converts the library's nodes into values. Nodes are `Any`: the library has no types."""

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
        """Read by libyaml; raises the errors of either library."""
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
        """Add the values of a merge key `<<`; keys of the mapping itself win."""
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
