"""Pairs of a comparison: which to ask for, in what order, and the gains they show."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.verdict import Side, View

WIDE = NormalDist().inv_cdf(0.975)
"""Errors on each side of a mean that hold the true one with a chance of 95 %."""

TENURE = 1000
"""Repeats of one incumbent's time: the draws that made it win are never its bar."""

BLOCK = 25
"""Draws after which a race first looks whether to go on."""


def tenure_of(view: View) -> int:
    """Whose draws they are, counted by keeps; without noise all are alike, and none made it win."""
    return 0 if view.still else view.ledger.tenure


@lru_cache(maxsize=256)
def shuffled(cases: tuple[str, ...]) -> tuple[str, ...]:
    """Cases in an order that has nothing to do with what they are."""
    return tuple(sorted(cases, key=lambda case: hashlib.sha256(case.encode()).digest()))


@lru_cache(maxsize=1024)
def draws(cases: tuple[str, ...], count: int, tenure: int) -> tuple[Pair, ...]:
    """The first so many draws: every case once, then every case again."""
    start = tenure * TENURE
    return tuple(Pair(cases[n % len(cases)], start + n // len(cases)) for n in range(count))


def looks(cases: int, most: int) -> list[int]:
    """After how many draws a race looks: often at first, then ever more seldom."""
    early = [size for size in (BLOCK, 2 * BLOCK, 4 * BLOCK, 8 * BLOCK) if size < cases * 0.8]
    passes: list[int] = []
    at = 0
    while at < most:
        at = min(most, at + max(1, at // 4))
        passes.append(at * cases)
    return [*early, *passes]


def missing_asks(
    sides: tuple[tuple[Side, tuple[Pair, ...]], ...], purpose: Purpose
) -> tuple[Ask, ...]:
    """Asks for what was not asked for yet."""
    asks: list[Ask] = []
    for side, pairs in sides:
        known = side.known.get(purpose)
        if known is None or known.asked < len(pairs):
            asks.append(Ask(side.id, pairs, purpose))
    return tuple(asks)


def alike(side: Side, purpose: Purpose) -> bool:
    """Whether no case has given two different answers."""
    seen: dict[str, float] = {}
    answers = side.losses.get(purpose, {}).items()
    return all(seen.setdefault(pair.case, loss) == loss for pair, loss in answers)


def never_varies(side: Side, purpose: Purpose) -> bool:
    """Whether every case was asked more than once and gave the same answer each time."""
    known = side.losses.get(purpose, {})
    counts = Counter(pair.case for pair in known)
    return bool(known) and min(counts.values()) > 1 and alike(side, purpose)


class Gains(NamedTuple):
    """What a comparison shows, in units of the whole scale, a gain above zero."""

    pairs: tuple[float, ...]
    """Of every pair that both sides answered."""
    mean: float
    """Mean over cases of each case's mean, the sides' answers taken each for itself."""
    spread: float
    """Standard deviation of one of the rival's answers, over cases and repeats."""
    answers: tuple[int, int]
    """Of the challenger, of the other."""


def figures(shown: Gains) -> dict[str, float]:
    """A gain, where the true one on these cases lies, and the chance that it is one.

    By normal theory, for people to read: no verdict depends on it.
    """
    error = shown.spread * sqrt(sum(1 / n for n in shown.answers if n))
    better = NormalDist(shown.mean, error).cdf(0) if error else float(shown.mean <= 0)
    half = WIDE * error
    return {
        "gain": shown.mean,
        "low": shown.mean - half,
        "high": shown.mean + half,
        "better": 1 - better,
    }


def gains(view: View, purpose: Purpose, other: Side | None = None) -> Gains:
    """The challenger against another, the incumbent if nobody else is named."""
    rival = other or view.incumbent
    new, old = (side.losses.get(purpose, {}) for side in (view.challenger, rival))
    unit = view.objective.scale
    pairs = tuple(_gain(old[pair] - loss, unit) for pair, loss in new.items() if pair in old)
    means = [by_case(side, unit) for side in (new, old)]
    common = [case for case in means[0] if case in means[1]]
    mean = sum(means[1][case] - means[0][case] for case in common) / len(common) if common else 0.0
    # of the rival alone: a challenger must not make itself room by being erratic
    return Gains(pairs, mean, _spread([*old.values()], unit), (len(new), len(old)))


def by_case(losses: Mapping[Pair, float], unit: float | None) -> dict[str, float]:
    """Each case's mean loss, in units of the scale."""
    rows: dict[str, list[float]] = {}
    for pair, loss in losses.items():
        rows.setdefault(pair.case, []).append(loss)
    return {case: sum(row) / len(row) / (unit or 1.0) for case, row in rows.items()}


def _gain(difference: float, unit: float | None) -> float:
    if unit is None:
        # a sign test: how much better is not comparable, which is better is
        return float((difference > 0) - (difference < 0))
    return max(-1.0, min(1.0, difference / unit))


def _spread(losses: list[float], unit: float | None) -> float:
    if len(losses) < 2:
        return 0.0
    mean = sum(losses) / len(losses)
    return (sum((loss - mean) ** 2 for loss in losses) / len(losses)) ** 0.5 / (unit or 1.0)
