"""JSON as nodes with positions; a scanner is needed because `json` has no positions."""

import json
import re

from kept.core.artifact import Value
from kept.core.parsing import parse_json
from kept.spec.locate.tree import Items, Node, Scalar, Table, Unreadable

_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"[^\s,\]}]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def read_json(text: str) -> Node:
    """Parse a text into a tree; raises `Unreadable`."""
    try:
        parse_json(text)
        # `parse_json` has validated the text, so the scanner needs no checks
        return _Scanner(text).value()
    except ValueError as error:
        raise Unreadable(f"is not JSON: {error}") from error


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def value(self) -> Node:
        mark = self._next()
        if mark == "{":
            return self._table()
        if mark == "[":
            return self._items()
        start = self._at
        return Scalar(start, start + len(word := self._scalar()), json.loads(word), render_json)

    def _table(self) -> Table:
        entries: list[tuple[str, Node]] = []
        while self._advance() != "}":
            if self._next() == "}":
                break
            key = json.loads(self._scalar())
            self._next()
            self._at += 1
            entries.append((key, self.value()))
            self._next()
        self._at += 1
        return Table(entries)

    def _items(self) -> Items:
        items: list[Node] = []
        while self._advance() != "]":
            if self._next() == "]":
                break
            items.append(self.value())
            self._next()
        self._at += 1
        return Items(items)

    def _advance(self) -> str:
        """Skip an opening bracket or a comma, but not a closing bracket; return the character."""
        mark = self._next()
        if mark in "{[,":
            self._at += 1
        return mark

    def _next(self) -> str:
        self._at = _SPACE.match(self._text, self._at).end()  # pyright: ignore[reportOptionalMemberAccess] # the pattern matches the empty string too
        return self._text[self._at : self._at + 1]

    def _scalar(self) -> str:
        pattern = _STRING if self._next() == '"' else _WORD
        match = pattern.match(self._text, self._at)
        assert match is not None, "the text is JSON"
        self._at = match.end()
        return match[0]


def render_json(value: Value) -> str:
    """Write a value as JSON."""
    return json.dumps(value, ensure_ascii=False)
