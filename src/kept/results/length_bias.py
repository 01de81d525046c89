"""Length bias of judges: rank correlation of their scores with the length of the judged text.

Lengths and scores are taken relative to their mean on the same case, since some cases need more
words than others. Ranks are used because a text ten times as long is not ten times as good.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from kept.store.reader import Run

CHARS = "judged_chars"

FEWEST = 20
"""Minimum number of rollouts for a finding."""

CLEAR = 0.4
"""Minimum absolute correlation that is reported."""

SURE = 3.0
"""Minimum distance of the correlation from 0, in standard errors."""


class Moves(NamedTuple):
    """Correlation of a judge's scores with length."""

    judge: str
    """Name of the judge's metric."""
    correlation: float
    rollouts: int


class _Read(NamedTuple):
    case: str
    chars: float
    score: float


def moves_with_length(run: Run) -> list[Moves]:
    """Find the judges of a run whose scores clearly move with length."""
    rows: dict[str, list[_Read]] = defaultdict(list)
    for _, job, outcome in run.rollouts():
        for name, chars in outcome.metrics.items():
            # a metric `NAMEjudged_chars` has the lengths for the judge's `NAMEscore`
            head, _, last = name.rpartition(CHARS)
            score = outcome.metrics.get(f"{head}score")
            if name.endswith(CHARS) and not last and score is not None:
                rows[f"{head}score"].append(_Read(job.case_id, chars, score))
    return [moves for judge, read in rows.items() if (moves := _clear(judge, read)) is not None]


def _clear(judge: str, rows: Sequence[_Read]) -> Moves | None:
    chars, scores = _within_cases(rows)
    found = correlation(_ranks(chars), _ranks(scores))
    if found is None or len(chars) < FEWEST or abs(found) < CLEAR:
        return None
    # Fisher's z-transformation: its standard error is 1 / sqrt(n - 3), whatever the correlation
    away = math.atanh(min(abs(found), 1 - 1e-9)) * math.sqrt(len(chars) - 3)
    return Moves(judge, found, len(chars)) if away >= SURE else None


def _within_cases(rows: Sequence[_Read]) -> tuple[list[float], list[float]]:
    chars: list[float] = []
    scores: list[float] = []
    for _, group in groupby(sorted(rows), key=lambda row: row.case):
        of_case = list(group)
        if len(of_case) > 1:
            chars += _against_mean(row.chars for row in of_case)
            scores += _against_mean(row.score for row in of_case)
    return chars, scores


def _against_mean(values: Iterable[float]) -> list[float]:
    found = list(values)
    mean = sum(found) / len(found)
    # rounded, so that equal values are equal after the subtraction too
    return [round(value - mean, 9) for value in found]


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks of values, from 0; equal values share their mean rank."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    ranks = [0.0] * len(values)
    done = 0
    for _, group in groupby(order, key=lambda at: values[at]):
        alike = list(group)
        for at in alike:
            ranks[at] = done + (len(alike) - 1) / 2
        done += len(alike)
    return ranks


def correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Pearson correlation; None if empty, or if one side is constant."""
    if not a:
        return None
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    both = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    squares = sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b)
    return both / math.sqrt(squares) if squares > 0 else None
