"""Two versions of a text side by side, with the words that differ marked."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

CONTEXT = 3
"""Unchanged lines that are shown round a change."""
MOST = 1200
"""Rows of one file; more of them nobody reads on a page."""
LONGEST = 4000
"""Characters of a line whose words are still compared."""

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


class Piece(NamedTuple):
    """A run of characters, marked where the other side lacks it."""

    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One line of each side; None where that side has none."""

    old: tuple[Piece, ...] | None
    new: tuple[Piece, ...] | None
    at: tuple[int, int]
    """Line numbers; 0 where there is none."""
    kind: str
    """`same`, `changed`, `gone`, `added` or `skipped`."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file, before and after."""

    path: str
    rows: tuple[Row, ...]
    left_out: int
    """Rows beyond the most that are shown."""


def side_by_side(old: Mapping[str, str], new: Mapping[str, str]) -> list[FileChange]:
    """Every file that differs."""
    found: list[FileChange] = []
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path, ""), new.get(path, "")
        if before != after:
            rows = list(_rows(before.splitlines(), after.splitlines()))
            found.append(FileChange(path, tuple(rows[:MOST]), max(0, len(rows) - MOST)))
    return found


def _rows(old: Sequence[str], new: Sequence[str]) -> Iterator[Row]:
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for number, group in enumerate(matcher.get_grouped_opcodes(CONTEXT)):
        if number or group[0][1] > 0 or group[0][3] > 0:
            yield Row(None, None, (0, 0), "skipped")
        for kind, a1, a2, b1, b2 in group:
            if kind == "equal":
                for a, b in zip(range(a1, a2), range(b1, b2), strict=True):
                    yield Row(_plain(old[a]), _plain(new[b]), (a + 1, b + 1), "same")
            else:
                yield from _changed(old[a1:a2], new[b1:b2], (a1, b1))


def _changed(old: Sequence[str], new: Sequence[str], at: tuple[int, int]) -> Iterator[Row]:
    for n in range(max(len(old), len(new))):
        one = old[n] if n < len(old) else None
        other = new[n] if n < len(new) else None
        lines = (at[0] + n + 1 if one is not None else 0, at[1] + n + 1 if other is not None else 0)
        if one is None or other is None:
            kind = "added" if one is None else "gone"
            marked = tuple(None if s is None else (Piece(s, True),) for s in (one, other))
            yield Row(marked[0], marked[1], lines, kind)
        else:
            yield Row(*_words(one, other), lines, "changed")


def _words(old: str, new: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    if len(old) + len(new) > LONGEST:
        return (Piece(old, True),), (Piece(new, True),)
    one, other = _WORDS.findall(old), _WORDS.findall(new)
    left: list[Piece] = []
    right: list[Piece] = []
    for kind, a1, a2, b1, b2 in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        marked = kind != "equal"
        left.extend([Piece("".join(one[a1:a2]), marked)] if a2 > a1 else [])
        right.extend([Piece("".join(other[b1:b2]), marked)] if b2 > b1 else [])
    return tuple(left), tuple(right)


def _plain(line: str) -> tuple[Piece, ...]:
    return (Piece(line, False),)
