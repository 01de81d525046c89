"""Texts cut into passages: by their headings, or by length.

A token is counted by a rule that needs no vocabulary: a word has one for every four characters that
it begins. No provider counts like that; for English prose they come to about the same.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

CHARACTERS = 4
"""Of a token."""

_WORD = re.compile(r"\S+")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One passage, and where it stands."""

    text: str
    source: str
    """The file, below the source that was named, and the record in it."""
    path: tuple[str, ...] = ()
    """The headings that it stands under, the outermost first."""
    meta: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def whole(self) -> str:
        """What is searched: the passage below its headings."""
        return "\n".join((" > ".join(self.path), self.text)) if self.path else self.text


class Section(NamedTuple):
    """A heading's own text."""

    path: tuple[str, ...]
    body: str


def tokens(text: str) -> int:
    """How many a text has, by the rule above."""
    return sum(_weight(word) for word in text.split())


def by_length(text: str, size: int, overlap: int) -> list[str]:
    """Passages of at most so many tokens; each repeats at most so many of the one before it."""
    words = list(_words(text, size))
    passages: list[str] = []
    first = 0
    while first < len(words):
        last, room = first, size
        while last < len(words) and (room := room - words[last].weight) >= 0:
            last += 1
        passages.append(text[words[first].start : words[last - 1].end])
        if last == len(words):
            break
        # one word further at least, or it would never end
        next_first, room = last, overlap
        while next_first > first + 1 and (room := room - words[next_first - 1].weight) >= 0:
            next_first -= 1
        first = next_first
    return passages


def by_heading(text: str, depth: int = 6) -> list[Section]:
    """What stands under each Markdown heading, in order; without headings, all of it as one."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    found: list[Section] = []
    for line, level, title in _marked(text, depth):
        if not level:
            lines.append(line)
            continue
        _add(found, path, lines, level)
        path = [*(one for one in path if one[0] < level), (level, title)]
        lines = []
    _add(found, path, lines, 0)
    return found


def _add(found: list[Section], path: list[tuple[int, str]], lines: list[str], level: int) -> None:
    """Keep a section; one that only leads to a deeper one says nothing that its path does not."""
    body = "\n".join(lines).strip()
    titles = tuple(title for _, title in path)
    if body:
        found.append(Section(titles, body))
    elif path and level <= path[-1][0]:
        found.append(Section(titles[:-1], titles[-1]))


def _marked(text: str, depth: int) -> Iterator[tuple[str, int, str]]:
    """Each line, with level and title where it is a heading; what is fenced is none."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        heading = None if fence or mark else _HEADING.match(line)
        if heading and len(heading[1]) <= depth and heading[2]:
            yield line, len(heading[1]), heading[2]
        else:
            yield line, 0, ""


class _Word(NamedTuple):
    start: int
    end: int
    weight: int


def _words(text: str, size: int) -> Iterator[_Word]:
    """Where words stand; one that no passage has room for is cut."""
    most = size * CHARACTERS
    for found in _WORD.finditer(text):
        for start in range(found.start(), found.end(), most):
            end = min(start + most, found.end())
            yield _Word(start, end, _weight(text[start:end]))


def _weight(word: str) -> int:
    return -(-len(word) // CHARACTERS)
