"""YAML as nodes with positions, from the nodes and offsets of the YAML library."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml as pyyaml
from ruamel.yaml.error import YAMLError

from kept.core.artifact import Value, render_value
from kept.core.parsing import ParseLimit, check_size
from kept.spec.locate.tree import Items, Node, Room, Scalar, Table, Unreadable
from kept.spec.yaml import MAX_CHARS, can_take, construct, parser_of, ruamel

_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_WORD = re.compile(r"[A-Za-z_/][\w/.-]*(?: [\w/.-]+)*")
_LITERALS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""Words that some YAML readers do not read as texts."""
# characters that YAML readers refuse or read as line ends
_SPECIAL = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")

_UNHELD = re.compile("[\x00-\x08\x0b-\x1f]|" + _SPECIAL.pattern)
"""Characters that a block scalar cannot hold."""
_BLOCK_SIGN = re.compile(r"^[|>][-+\d]*")
_BLANK_END = re.compile(r"(?:\r?\n[ \t]*)+\Z")
_INDENT = re.compile(r"^( +)\S", re.MULTILINE)


def read_yaml(text: str) -> Node:
    """Parse a text into a tree; raises `Unreadable`."""
    reader = ruamel()
    try:
        check_size(text, MAX_CHARS)
        root = _fast(text, reader.resolver) or reader.compose(text)
        if root is None:
            return Table(())
        return _Tree(text, reader).node(root)
    except ParseLimit as limit:
        raise Unreadable(f"is not YAML that can be read: {limit}") from limit
    except (YAMLError, ValueError) as error:
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise Unreadable(f"is not YAML: {problem}") from error


def _fast(text: str, resolver: Any) -> Any:  # noqa: ANN401 # the libraries have no types
    """Compose the root node by libyaml; None if ruamel.yaml has to decide."""
    if not can_take(text):
        return None
    try:
        return parser_of(text, resolver).get_single_node()
    except ParseLimit:
        raise
    except (pyyaml.YAMLError, ValueError):
        return None


class _Tree:
    """Converts the library's nodes into ours. Its nodes are `Any`: the library has no types."""

    def __init__(self, text: str, reader: Any) -> None:  # noqa: ANN401 # see above
        self._text = text
        self._reader = reader
        self._done: dict[int, Node] = {}
        self._uses: Counter[int] = Counter()

    def node(self, root: Any) -> Node:  # noqa: ANN401 # see the class
        self._count(root)
        newline = "\r\n" if "\r\n" in self._text else "\n"
        return self._convert(root, _Where(0, False, newline))

    def _count(self, node: Any) -> None:  # noqa: ANN401 # see the class
        """Count the uses of each node: an alias refers to the identical node object."""
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

    def _convert(self, node: Any, where: "_Where") -> Node:  # noqa: ANN401 # see the class
        done = self._done.get(id(node))
        if done is not None:
            return done
        shared = self._uses[id(node)] > 1
        if node.id == "mapping":
            # registered before its content: a mapping may contain itself
            entries: list[tuple[str, Node]] = []
            below = _inside(node, where)
            room = self._room(node, below)
            self._done[id(node)] = table = Table(entries, shared, room)
            for key, value in node.value:
                name = str(key.value) if key.id == "scalar" else ""
                entries.append((name, self._convert(value, below)))
            return table
        if node.id == "sequence":
            items: list[Node] = []
            self._done[id(node)] = found = Items(items, shared)
            below = _inside(node, where)
            items.extend(self._convert(item, below) for item in node.value)
            return found
        self._done[id(node)] = scalar = self._scalar(node, where, shared=shared)
        return scalar

    def _scalar(self, node: Any, where: "_Where", *, shared: bool) -> Scalar:  # noqa: ANN401 # see the class
        start, end = node.start_mark.index, node.end_mark.index
        # the library counts anchor and tag as part of the value; they are left in place
        properties = _PROPERTIES.match(self._text, start, end)
        start = properties.end() if properties else start
        obstacle = "is shared through an alias" if shared else ""
        if start == end:
            # the library's position of an absent value is not usable
            obstacle = "has no value"
        value = construct(self._reader, node)
        quote = node.style or ""
        if quote in ("|", ">"):
            return self._block(start, end, value, where, obstacle)
        # with anything behind it on the line, a block would swallow that
        alone = not self._line_after(end).strip()
        blocks = replace(where, last=end == len(self._text)) if alone and not where.flow else None

        def render(value: Value) -> str:
            block = None
            if blocks and isinstance(value, str) and "\n" in value:
                block = render_block(value, blocks)
            return block or render_yaml(value, quote)

        return Scalar(start, end, value, render, obstacle)

    def _block(self, start: int, end: int, value: object, where: "_Where", obstacle: str) -> Scalar:
        """Block scalar: a text in its own lines below `|` or `>`, which may have a comment."""
        whole = self._text[start:end]
        # blank lines behind it stay, unless they hold spaces, which a new text would include
        blank = _BLANK_END.search(whole)
        if blank is not None:
            keeps = not blank[0].strip("\r\n")
            end = start + (blank.start() if keeps else len(whole.removesuffix("\n")))
        head, _, body = whole.partition("\n")
        comment = _BLOCK_SIGN.sub("", head).rstrip("\r")
        own = _INDENT.search(body) if not re.search(r"\d", head.partition("#")[0]) else None
        column = len(own[1]) if own else where.column
        inside = replace(where, column=column, last=end == len(self._text), comment=comment)

        def render(value: Value) -> str:
            block = render_block(value, inside) if isinstance(value, str) else None
            return block or render_yaml(value) + comment

        return Scalar(start, end, value, render, obstacle)

    def _room(self, node: Any, where: "_Where") -> Room | None:  # noqa: ANN401 # see the class
        """Place for a new entry: behind the last one with a known end, else before the first."""
        if any(key.id != "scalar" for key, _ in node.value):
            return None
        ended: list[Any] = []
        for _, v in node.value:
            # true if the end of the entry is known
            if v.id == "scalar":
                ends = v.style not in ("|", ">") and v.start_mark.index < v.end_mark.index
            else:
                ends = bool(v.flow_style) and not where.flow
            if ends and self._uses[id(v)] == 1:
                ended.append(v)
        start, end = node.start_mark.index, ended[-1].end_mark.index if ended else None
        if where.flow:
            if end is not None:
                return Room(end, lambda keys, value: f", {_flow_entry(keys, value)}")
            after = ", " if node.value else ""
            at = self._text.index("{", start) + 1
            return Room(at, lambda keys, value: _flow_entry(keys, value) + after)
        margin = where.newline + " " * node.value[0][0].start_mark.column
        if end is not None:
            at = end + len(self._line_after(end))
            return Room(at, lambda keys, value: margin + _block_entry(keys, value, margin))
        at = node.value[0][0].start_mark.index
        return Room(at, lambda keys, value: _block_entry(keys, value, margin) + margin)

    def _line_after(self, at: int) -> str:
        """Rest of a line from an offset, without the line end."""
        end = self._text.find("\n", at)
        return self._text[at : end if end >= 0 else len(self._text)].removesuffix("\r")


@dataclass(frozen=True, slots=True)
class _Where:
    """Context of a value, needed to write it as a block scalar."""

    column: int
    """Number of spaces before each line."""
    flow: bool
    """True if inside brackets (flow style), where block scalars are not allowed."""
    newline: str
    last: bool = False
    """True if nothing follows, not even a line end."""
    comment: str = ""
    """Comment behind the block sign, with the spaces before it."""


def _inside(node: Any, where: _Where) -> _Where:  # noqa: ANN401 # the library has no types
    """Context of the values in a mapping or a list."""
    column = node.start_mark.column
    if node.id == "mapping" and node.value:
        # the mapping's own mark is at its anchor, so the first key's column counts
        column = node.value[0][0].start_mark.column
    return replace(where, column=column + 2, flow=where.flow or bool(node.flow_style))


def _flow_entry(keys: Sequence[str], value: Value) -> str:
    first, *others = keys
    inner = f"{{{_flow_entry(others, value)}}}" if others else render_yaml(value)
    return f"{render_yaml(first)}: {inner}"


def _block_entry(keys: Sequence[str], value: Value, margin: str) -> str:
    first, *others = keys
    if not others:
        return f"{render_yaml(first)}: {render_yaml(value)}"
    deeper = f"{margin}  "
    return f"{render_yaml(first)}:{deeper}{_block_entry(others, value, deeper)}"


def render_block(text: str, where: _Where) -> str | None:
    """Write a text as a block scalar; None if it cannot be written so."""
    lines = text.split("\n")
    ends = len(text) - len(text.rstrip("\n"))
    said = [line for line in lines if line]
    if not said or ends > 1 or said[0].startswith((" ", "\t")) or not said[-1].strip():
        return None  # a reader would find another start or end of the text
    if _UNHELD.search(text):
        return None
    margin = " " * where.column
    shown = [f"{margin}{line}" if line else "" for line in (lines[:-1] if ends else lines)]
    sign = "|" if ends else "|-"
    end = where.newline if ends and where.last else ""
    return where.newline.join([f"{sign}{where.comment}", *shown]) + end


def render_yaml(value: Value, quote: str = "") -> str:
    """Write a value as YAML, in quotes if it had some or needs them."""
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
