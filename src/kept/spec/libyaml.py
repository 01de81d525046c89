"""Bounded YAML parsers: libyaml, and ruamel.yaml, which is ten times as slow.

Both say where everything stands, and say the same but for what is disputed. libyaml recurses in C:
what is nested too deeply ends the process, unless it is refused in time.
"""

import re
import time
from typing import Any, cast

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.nodes import ScalarNode

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
