"""Which lines differ between two texts, in a time that no text can stretch.

The exact answer takes the square of the lines where many are alike, as in data, and in texts that
were made to be slow. So a large text is first taken apart at lines that stand just once in both; a
large piece without such lines counts as changed from end to end.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

MANY = 250_000
"""Pairs of lines that are compared exactly, which takes a tenth of a second at worst."""

_DEPTH = 20
"""How often a piece is taken apart further."""


class Change(NamedTuple):
    """Lines `start` to `end` of the one text, and what stands for them in the other."""

    start: int
    end: int
    new_start: int
    new_end: int


def changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Change]:
    """Every stretch that differs, in order."""
    yield from _changes(old, new, Change(0, len(old), 0, len(new)), _DEPTH)


def _changes(old: Sequence[str], new: Sequence[str], piece: Change, depth: int) -> Iterator[Change]:
    piece = _trimmed(old, new, piece)
    before, after = old[piece.start : piece.end], new[piece.new_start : piece.new_end]
    if not before and not after:
        return
    if len(before) * len(after) <= MANY:
        for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            if tag != "equal":
                yield Change(
                    *(piece.start + n for n in (a, b)), *(piece.new_start + n for n in (c, d))
                )
        return
    anchors = _anchors(before, after) if depth else []
    if not anchors:
        yield piece
        return
    ends = [(-1, -1), *anchors, (len(before), len(after))]
    for (a, c), (b, d) in pairwise(ends):
        inner = Change(
            piece.start + a + 1, piece.start + b, piece.new_start + c + 1, piece.new_start + d
        )
        yield from _changes(old, new, inner, depth - 1)


def _trimmed(old: Sequence[str], new: Sequence[str], piece: Change) -> Change:
    """A piece without what both sides of it begin and end with."""
    start, end, new_start, new_end = piece
    while start < end and new_start < new_end and old[start] == new[new_start]:
        start, new_start = start + 1, new_start + 1
    while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
        end, new_end = end - 1, new_end - 1
    return Change(start, end, new_start, new_end)


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Places of lines that stand once on either side, as many as are in the same order on both."""
    counts, new_counts = Counter(old), Counter(new)
    places = {line: at for at, line in enumerate(new) if new_counts[line] == 1}
    pairs = [(n, places[x]) for n, x in enumerate(old) if counts[x] == 1 and x in places]
    # the longest row of pairs that rises on both sides: for each length, the least end of one
    ends: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for at, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        before.append(tops[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        tops[length : length + 1] = [at]
    row: list[tuple[int, int]] = []
    at = tops[-1] if tops else -1
    while at >= 0:
        row.append(pairs[at])
        at = before[at]
    return row[::-1]
