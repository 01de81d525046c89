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
from kept.core.score import NO_ANSWERS, Answers
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


def answers(side: Side, purpose: Purpose) -> Answers:
    """Answers of one side for a purpose."""
    found = side.losses.get(purpose, NO_ANSWERS)
    return found if isinstance(found, Answers) else Answers(found)


def alike(side: Side, purpose: Purpose) -> bool:
    """True if no case gave two different answers."""
    return answers(side, purpose).alike


def never_varies(side: Side, purpose: Purpose) -> bool:
    """True if every case ran more than once and gave the same answer each time."""
    known = answers(side, purpose)
    if not known or not known.alike:
        return False
    return min(Counter(pair.case for pair in known).values()) > 1


class Gains(NamedTuple):
    """Result of a comparison in units of the whole scale; a gain is above zero."""

    mean: float
    """Mean over cases of each case's mean, not paired by repeat."""
    spread: float
    """Standard deviation of one of the rival's answers, over cases and repeats."""
    answers: tuple[int, int]
    """Of the challenger, of the other."""


def figures(shown: Gains) -> dict[str, float]:
    """A gain, its interval on these cases, and the chance that it is above zero.

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
    """Gain of the challenger over another side, by default over the incumbent."""
    new, old = answers(view.challenger, purpose), answers(other or view.incumbent, purpose)
    unit = view.objective.scale
    now, was = by_case(new, unit), by_case(old, unit)
    found = [was[case] - loss for case, loss in now.items() if case in was]
    mean = sum(found) / len(found) if found else 0.0
    # of the rival alone: a challenger must not make itself room by being erratic
    return Gains(mean, old.spread / (unit or 1.0), (len(new), len(old)))


def pair_gains(view: View, purpose: Purpose, other: Side | None = None) -> tuple[float, ...]:
    """Gain on each pair that both sides answered."""
    new, old = answers(view.challenger, purpose), answers(other or view.incumbent, purpose)
    unit = view.objective.scale
    differences = [old[pair] - loss for pair, loss in new.items() if pair in old]
    if unit is None:
        # a sign test: how much better is not comparable, which is better is
        return tuple([float((one > 0) - (one < 0)) for one in differences])
    return tuple([max(-1.0, min(1.0, one / unit)) for one in differences])


def by_case(found: Answers, unit: float | None) -> Mapping[str, float]:
    """Each case's mean loss, in units of the scale."""
    if not unit or unit == 1.0:
        return found.by_case
    return {case: mean / unit for case, mean in found.by_case.items()}
