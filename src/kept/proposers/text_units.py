"""Editable units of text: sections, lines, sentences, whole files and values.

YAML front matter between two lines of dashes is no part of the text and stays. Finding units
changes nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

from kept.core.artifact import NoSpan
from kept.core.edit import Edit, SetValue, Write
from kept.core.text import lines_of
from kept.spec.locate.tree import Table, Unreadable, read_value

RULE = "---"


@dataclass(frozen=True, slots=True)
class TextAxis:
    """One editable text, and its maximum length."""

    path: str
    """Path as the spec names it."""
    file: str
    key: str = ""
    """Key of the value in the file; empty for the whole file."""
    max_chars: int = 8000

    def read(self, texts: Mapping[str, str]) -> str | NoSpan:
        """Read the current text."""
        if self.file not in texts:
            return NoSpan("target missing", f"there is no {self.file}")
        if not self.key:
            return body_of(texts[self.file])
        value = read_value(self.file, texts[self.file], self.key)
        return value if isinstance(value, NoSpan) else str(value)

    def edits(self, texts: Mapping[str, str], new: str) -> tuple[Edit, ...]:
        """Edits that replace the text with `new`."""
        if self.key:
            return (SetValue(self.file, self.key, new),)
        old = texts[self.file]
        head = old[: len(old) - len(body_of(old))]
        if not head and body_of(new) != new:
            # the text begins like front matter, which would be dropped: put a real one before it
            head = f"{RULE}\nversion: 1\n{RULE}\n"
        return (Write(self.file, head + new),)


def body_of(text: str) -> str:
    """Text without its front matter."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != RULE:
        return text
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == RULE:
            head = "".join(lines[1:number])
            # text between two horizontal rules is no front matter
            return "".join(lines[number + 1 :]).lstrip("\r\n") if _is_mapping(head) else text
    return text


def _is_mapping(text: str) -> bool:
    # the YAML library takes longer to import than most runs to start
    from kept.spec.locate.yaml import read_yaml

    try:
        found = read_yaml(text)
    except Unreadable:
        return False
    return isinstance(found, Table) and bool(found.entries)


Kind = Literal["section", "line", "sentence"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ \t]")
# end of a sentence, followed by a possible start of the next
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9*`_])")
_PROSE = (".md", ".markdown", ".txt", ".rst", "")


class Unit(NamedTuple):
    """A part of a text that can be removed."""

    kind: Kind
    start: int
    end: int


def units(path: str, text: str, kinds: Sequence[Kind] = KINDS) -> Iterator[Unit]:
    """Yield all units of a text; of units whose removal gives the same text, the first."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    seen: set[tuple[int, int]] = set()
    known: dict[tuple[int, int], int] = {}
    finders = {"section": _sections, "line": _lines, "sentence": _sentences}
    name = path.rpartition("/")[2]
    is_prose = (f".{name.rpartition('.')[2]}" if "." in name else "") in _PROSE
    for kind in kinds:
        if kind != "line" and not is_prose:
            continue
        for start, end in finders[kind](text):
            # skip blank units, and a unit that is the whole text
            if not text[start:end].strip() or (first >= start and end >= last):
                continue
            place = (_leftmost(text, start, end, known), end - start)
            if place not in seen:
                seen.add(place)
                yield Unit(kind, start, end)


def _leftmost(text: str, start: int, end: int, known: dict[tuple[int, int], int]) -> int:
    """First position of a unit of this length whose removal gives the same text.

    Two units are equivalent exactly if one can be shifted to the other character by character.
    Comparing the remaining texts would take quadratic time.
    """
    size, at = end - start, start
    while at and text[at - 1] == text[at - 1 + size]:
        at -= 1
        if (at, size) in known:
            at = known[at, size]
            break
    known[start, size] = at
    return at


def _rows(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield offset and text of each line, and True if it is inside a code fence."""
    at, fence = 0, ""
    for row in lines_of(text):
        mark = _FENCE.match(row)
        inside = bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not row[mark.end() :].strip():
            fence = ""
        yield at, row, inside
        at += len(row)


def _sections(text: str) -> Iterator[tuple[int, int]]:
    """Yield the range from each heading to the next one of the same or a higher level."""
    headings = [
        (at, len(found[1]))
        for at, row, code in _rows(text)
        if not code and (found := _HEADING.match(row))
    ]
    ends = dict.fromkeys((at for at, _ in headings), len(text))
    open_: list[tuple[int, int]] = []
    # a stack of open headings: each is closed by the next one that is not deeper
    for at, depth in headings:
        while open_ and open_[-1][1] >= depth:
            ends[open_.pop()[0]] = at
        open_.append((at, depth))
    yield from ends.items()


def _lines(text: str) -> Iterator[tuple[int, int]]:
    for at, row, _ in _rows(text):
        yield at, at + len(row)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield sentences of lines that have several, each with the space after it."""
    for at, row, code in _rows(text):
        if code:
            continue
        body = row.rstrip("\r\n")
        cuts = [0, *(found.end() for found in _END.finditer(body)), len(body)]
        for start, end in pairwise(cuts):
            if (start, end) == (0, len(body)):
                continue
            # the last sentence includes the space before it
            first = len(body[:start].rstrip()) if end == len(body) else start
            yield at + first, at + end
