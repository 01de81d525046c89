"""TOML as nodes with positions; a scanner is needed because `tomllib` has no positions.

`tomllib` reads the text first, so the scanner can assume valid syntax.
"""

import json
import re
import tomllib
from typing import cast

from kept.core.artifact import Value
from kept.core.parsing import parse_toml
from kept.spec.locate.tree import Items, Node, Scalar, Table, Unreadable

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_HEADER = re.compile(r"\[\[?")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# multi-line strings first; they may have up to two quotes before the closing three
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}(?!")|' r"'''.*?'{3,5}(?!')|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'",
    re.DOTALL,
)
# a date may have a space before its time
_WORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:[^\s,\]}#]+|[^\s,\]}#]+")

_Tree = dict[str, "_Branch"]
_Branch = Scalar | _Tree | list["_Branch"]


def read_toml(text: str) -> Node:
    """Parse a text into a tree; raises `Unreadable`."""
    try:
        expected = parse_toml(text)
        root = _Scanner(text).document()
    except ValueError as error:
        raise Unreadable(f"is not TOML: {error}") from error
    # a bug of the scanner must not edit the wrong place
    if _values(root) != expected:
        raise Unreadable("is TOML that Kept cannot find its way in")
    return _node(root)


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> _Tree:
        root: _Tree = {}
        table = root
        while self._skip(_BLANK):
            if header := self._take(_HEADER):
                keys = self._keys()
                self._skip(_SPACE)
                self._at += len(header)
                table = _enter(root, keys, new=header == "[[")
            else:
                self._entry(table)
        return root

    def _entry(self, table: _Tree) -> None:
        *above, last = self._keys()
        self._skip(_SPACE)
        self._at += 1
        self._skip(_SPACE)
        for key in above:
            table = cast("_Tree", table.setdefault(key, {}))
        table[last] = self._value()

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            quoted = self._take(_STRING)
            keys.append(_constant(quoted) if quoted else self._take(_BARE_KEY))
            self._skip(_SPACE)
            if self._text[self._at : self._at + 1] != ".":
                return keys
            self._at += 1

    def _value(self) -> _Branch:
        mark = self._text[self._at]
        if mark == "[":
            return self._array()
        if mark == "{":
            return self._inline()
        start = self._at
        raw = self._take(_STRING) or self._take(_WORD)
        obstacle = "runs over several lines" if raw.startswith(('"""', "'''")) else ""
        quote = raw[0] if raw[0] in "\"'" else ""

        def render(value: Value) -> str:
            return render_toml(value, quote)

        return Scalar(start, self._at, _constant(raw), render, obstacle)

    def _array(self) -> list[_Branch]:
        items: list[_Branch] = []
        self._at += 1
        while self._skip(_BLANK) != "]":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            items.append(self._value())
        self._at += 1
        return items

    def _inline(self) -> _Tree:
        table: _Tree = {}
        self._at += 1
        while self._skip(_BLANK) != "}":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._entry(table)
        self._at += 1
        return table

    def _skip(self, pattern: re.Pattern[str]) -> str:
        """Skip what matches; return the next character, empty at the end."""
        self._take(pattern)
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match[0]


def _enter(root: _Tree, keys: list[str], *, new: bool) -> _Tree:
    """Find or make the table that a header names; `new` appends one to an array of tables."""
    table = root
    for key in keys[:-1]:
        found = table.setdefault(key, {})
        table = cast("_Tree", found[-1] if isinstance(found, list) else found)
    if not new:
        return cast("_Tree", table.setdefault(keys[-1], {}))
    rows = cast("list[_Branch]", table.setdefault(keys[-1], []))
    row: _Tree = {}
    rows.append(row)
    return row


def _constant(raw: str) -> str:
    # annotated for keys, which are texts; a value may have any type
    return tomllib.loads(f"x = {raw}")["x"]


def _values(branch: _Branch) -> object:
    if isinstance(branch, Scalar):
        return branch.value
    if isinstance(branch, list):
        return [_values(item) for item in branch]
    return {key: _values(value) for key, value in branch.items()}


def _node(branch: _Branch) -> Node:
    if isinstance(branch, Scalar):
        return branch
    if isinstance(branch, list):
        return Items([_node(item) for item in branch])
    return Table([(key, _node(value)) for key, value in branch.items()])


def render_toml(value: Value, quote: str = "") -> str:
    """Write a value as TOML, in the same kind of quotes if possible."""
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return repr(value)
    if quote == "'" and "'" not in value and value.isprintable():
        return f"'{value}'"
    # DEL is the one control character that JSON allows and TOML forbids
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
