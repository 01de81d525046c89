"""What a text is made of: sections of Markdown, lines, sentences. Finds them, changes nothing."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

Kind = Literal["section", "line", "sentence"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ \t]")
# the end of a sentence, and then something that may begin one
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9*`_])")
_PROSE = (".md", ".markdown", ".txt", ".rst", "")


class Unit(NamedTuple):
    """A stretch of a text that can be left out."""

    kind: Kind
    start: int
    end: int


def units(path: str, text: str, kinds: Sequence[Kind] = KINDS) -> Iterator[Unit]:
    """Every unit of a text; of those that leave the same text behind, the first."""
    seen: set[int] = set()
    finders = {"section": _sections, "line": _lines, "sentence": _sentences}
    for kind in kinds:
        if kind != "line" and not _is_prose(path):
            continue
        for start, end in finders[kind](text):
            left_over = text[:start] + text[end:]
            # hashes only: a long text without each of its lines would fill the memory
            if text[start:end].strip() and left_over.strip() and hash(left_over) not in seen:
                seen.add(hash(left_over))
                yield Unit(kind, start, end)


def _is_prose(path: str) -> bool:
    name = path.rpartition("/")[2]
    return (f".{name.rpartition('.')[2]}" if "." in name else "") in _PROSE


def _rows(text: str) -> Iterator[tuple[int, str, bool]]:
    """Offset and text of each line, and whether it is code between fences."""
    at, fence = 0, ""
    for row in text.splitlines(keepends=True):
        mark = _FENCE.match(row)
        inside = bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        yield at, row, inside
        at += len(row)


def _sections(text: str) -> Iterator[tuple[int, int]]:
    """From a heading to the next one that is not below it."""
    headings = [
        (at, len(found[1]))
        for at, row, code in _rows(text)
        if not code and (found := _HEADING.match(row))
    ]
    for n, (start, depth) in enumerate(headings):
        later = (at for at, other in headings[n + 1 :] if other <= depth)
        yield start, next(later, len(text))


def _lines(text: str) -> Iterator[tuple[int, int]]:
    for at, row, _ in _rows(text):
        yield at, at + len(row)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Sentences of lines that have several; the space behind one goes with it."""
    for at, row, code in _rows(text):
        if code:
            continue
        body = row.rstrip("\r\n")
        cuts = [0, *(found.end() for found in _END.finditer(body)), len(body)]
        for start, end in pairwise(cuts):
            if (start, end) == (0, len(body)):
                continue
            # the last sentence takes the space before it along
            first = len(body[:start].rstrip()) if end == len(body) else start
            yield at + first, at + end
