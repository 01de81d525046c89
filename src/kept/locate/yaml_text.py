"""YAML as nodes: what the YAML library composes, with the offsets that it knows."""

import json
import re
from collections import Counter
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from kept.core.values import Value, render_value
from kept.locate.nodes import Items, Node, Scalar, Table, Unreadable

_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_WORD = re.compile(r"[A-Za-z_/][\w/.-]*(?: [\w/.-]+)*")
_LITERALS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""What some reader of YAML takes for something else than a text."""
# what a reader of YAML refuses, or takes for the end of a line
_SPECIAL = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def read_yaml(text: str) -> Node:
    """The tree of a text; raises `Unreadable`."""
    yaml: Any = YAML(typ="safe", pure=True)
    try:
        root: Any = yaml.compose(text)
        if root is None:
            return Table(())
        return _Tree(text, yaml.constructor).node(root)
    except (YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise Unreadable(f"is not YAML: {problem}") from error


class _Tree:
    """Turns the library's nodes into ours. Its nodes are `Any`: the library has no types."""

    def __init__(self, text: str, constructor: Any) -> None:  # noqa: ANN401 # see above
        self._text = text
        self._constructor = constructor
        self._done: dict[int, Node] = {}
        self._uses: Counter[int] = Counter()

    def node(self, root: Any) -> Node:  # noqa: ANN401 # see the class
        self._count(root)
        return self._convert(root)

    def _count(self, node: Any) -> None:  # noqa: ANN401 # see the class
        """How many places stand for each node: an alias gives the very same one again."""
        self._uses[id(node)] += 1
        if self._uses[id(node)] > 1:
            return
        if node.id == "mapping":
            for key, value in node.value:
                self._count(key)
                self._count(value)
        elif node.id == "sequence":
            for item in node.value:
                self._count(item)

    def _convert(self, node: Any) -> Node:  # noqa: ANN401 # see the class
        done = self._done.get(id(node))
        if done is not None:
            return done
        shared = self._uses[id(node)] > 1
        if node.id == "mapping":
            # before what is in it: a mapping may hold itself
            entries: list[tuple[str, Node]] = []
            self._done[id(node)] = table = Table(entries, shared)
            for key, value in node.value:
                name = str(key.value) if key.id == "scalar" else ""
                entries.append((name, self._convert(value)))
            return table
        if node.id == "sequence":
            items: list[Node] = []
            self._done[id(node)] = found = Items(items, shared)
            items.extend(self._convert(item) for item in node.value)
            return found
        self._done[id(node)] = scalar = self._scalar(node, shared=shared)
        return scalar

    def _scalar(self, node: Any, *, shared: bool) -> Scalar:  # noqa: ANN401 # see the class
        start, end = node.start_mark.index, node.end_mark.index
        # an anchor and a tag count as part of the value, and stay
        properties = _PROPERTIES.match(self._text, start, end)
        start = properties.end() if properties else start
        obstacle = "is shared through an alias" if shared else ""
        if node.style in ("|", ">"):
            obstacle = "is a block of text"
        elif "\n" in self._text[start:end]:
            obstacle = "runs over several lines"
        elif start == end:
            # the library puts what is not there wherever it noticed that
            obstacle = "has no value"
        value = self._constructor.construct_object(node)
        quote = node.style or ""

        def render(value: Value) -> str:
            return render_yaml(value, quote)

        return Scalar(start, end, value, render, obstacle)


def render_yaml(value: Value, quote: str = "") -> str:
    """A value as YAML writes it, in quotes where there were some or where it needs them."""
    if not isinstance(value, str):
        return render_value(value)
    if quote == "'" and value.isprintable():
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    if quote == "" and _WORD.fullmatch(value) and value.lower() not in _LITERALS:
        return value
    return _SPECIAL.sub(_escape, json.dumps(value, ensure_ascii=False))


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
