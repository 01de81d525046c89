"""Two versions of a text side by side, with the words that differ marked."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kept.core.differ import Change, changes

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
    for group in _groups(changes(old, new)):
        first, last = group[0], group[-1]
        above = min(CONTEXT, first.start)
        if first.start > above or first.new_start > above:
            yield Row(None, None, (0, 0), "skipped")
        a, b = first.start - above, first.new_start - above
        for change in group:
            yield from _same(old[a : change.start], (a, b))
            a, b = change.end, change.new_end
            at = (change.start, change.new_start)
            yield from _changed(old[change.start : a], new[change.new_start : b], at)
        yield from _same(old[last.end : last.end + CONTEXT], (last.end, last.new_end))


def _groups(found: Iterator[Change]) -> Iterator[list[Change]]:
    """Changes that are shown together: no more lines lie between two than belong to both."""
    group: list[Change] = []
    for change in found:
        if group and change.start - group[-1].end > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _same(lines: Sequence[str], at: tuple[int, int]) -> Iterator[Row]:
    for n, line in enumerate(lines, 1):
        yield Row(_plain(line), _plain(line), (at[0] + n, at[1] + n), "same")


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
    a = b = 0
    for change in (*changes(one, other), Change(len(one), len(one), len(other), len(other))):
        start, end, new_start, new_end = change
        for side, words, at, to, upto in (
            (left, one, a, start, end),
            (right, other, b, new_start, new_end),
        ):
            side.extend([Piece("".join(words[at:to]), False)] if to > at else [])
            side.extend([Piece("".join(words[to:upto]), True)] if upto > to else [])
        a, b = end, new_end
    return tuple(left), tuple(right)


def _plain(line: str) -> tuple[Piece, ...]:
    return (Piece(line, False),)
