"""What holds for cases nobody has seen: the case is the unit, repeats only sharpen its mean."""

from collections.abc import Sequence
from math import atan, comb, inf, isfinite, pi, sqrt
from statistics import NormalDist
from typing import NamedTuple

from kept.core.rollout import Purpose
from kept.core.verdict import Side, View
from kept.gates._pairs import answers

SURE = 0.95

TAIL = (1 - SURE) / 2
"""The risk at each end of an interval."""

ROUNDING = 1e-12
"""Less spread than this, against the mean, is none."""


class Interval(NamedTuple):
    """A mean gain over cases and where the true one lies, with a chance of 95 %."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if not self.ends:
            return f"{self.mean:+.3f} (no interval: nothing shows how cases differ)"
        return f"{self.mean:+.3f} ({self.low:+.3f} … {self.high:+.3f})"

    @property
    def ends(self) -> bool:
        """Whether it has any: where nothing bounds the gain, it says no more than the mean."""
        return isfinite(self.low) and isfinite(self.high)


def case_gains(view: View, purpose: Purpose, other: Side) -> list[float]:
    """The gain of every case that both sides answered, in the metric's own units."""
    new, old = (answers(side, purpose).by_case for side in (view.challenger, other))
    return [old[case] - loss for case, loss in new.items() if case in old]


def interval(found: Sequence[float], scale: float | None) -> Interval:
    """The mean with its interval, by Student's t; within the scale, where the metric has one.

    A scale tells what a case that nobody saw can do, so that such cases are counted.
    """
    n, (mean, error) = len(found), _mean_and_error(found)
    if scale is None:
        half = inf if _no_spread(mean, error) else _reach(n) * error
        return Interval(mean, mean - half, mean + half)
    most = max(map(abs, found), default=0.0)
    middle, error = _mean_and_error([*found, *_unseen(most)])
    if n < 2:
        half = inf
    elif most <= ROUNDING * scale:
        # nothing moved: more than this share of all cases would have shown, whatever they gain
        half = (1 - TAIL ** (1 / n)) * scale
    else:
        half = _reach(n) * error
    return Interval(
        mean, min(mean, max(middle - half, -scale)), max(mean, min(middle + half, scale))
    )


def _unseen(most: float) -> tuple[float, float]:
    """What Agresti and Min add to pass or fail: a case without a gain, and half a case each way.

    The halves are as large as the largest gain seen, on whatever scale. Two cases stand for all
    three: their sum is the same, and that of their squares.
    """
    return most / sqrt(2), -most / sqrt(2)


def _reach(cases: int) -> float:
    """Standard errors from the middle of an interval to its ends."""
    return student(1 - TAIL, cases - 1)


def risk_of(found: Sequence[float]) -> float:
    """The chance of such a mean if there were no gain; one-sided."""
    if len(found) < 2:
        return 1.0
    mean, error = _mean_and_error(found)
    if _no_spread(mean, error):
        # each case is a coin that fell the same way
        return 0.5 ** len(found) if mean > 0 else 1.0
    return 1 - student_chance(mean / error, len(found) - 1)


class Signs(NamedTuple):
    """Cases that went up and down, and the chance of so many ups if both were alike."""

    better: int
    worse: int
    chance: float


def sign_test(found: Sequence[float]) -> Signs:
    """How surprising so many gains among the changes are; one-sided and exact."""
    better, worse = sum(one > 0 for one in found), sum(one < 0 for one in found)
    n = better + worse
    return Signs(better, worse, sum(comb(n, k) for k in range(better, n + 1)) / 2**n)


def _mean_and_error(found: Sequence[float]) -> tuple[float, float]:
    n = len(found)
    mean = sum(found) / n if n else 0.0
    if n < 2:
        return mean, 0.0
    return mean, sqrt(sum((one - mean) ** 2 for one in found) / (n - 1) / n)


def _no_spread(mean: float, error: float) -> bool:
    return error <= ROUNDING * abs(mean)


def student(chance: float, freedom: int) -> float:
    """The value below which Student's t lies with this chance, found by halving."""
    low, high = 0.0, 1000.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_chance(middle, freedom) < chance else (low, middle)
    return high


def student_chance(t: float, freedom: int) -> float:
    """The chance that Student's t lies below a value, by the exact sums for whole degrees."""
    if freedom > 300:
        return NormalDist().cdf(t)
    angle_tan = t / sqrt(freedom)
    cos2 = 1 / (1 + angle_tan**2)
    sin = angle_tan * sqrt(cos2)
    if freedom % 2:
        term, total = sqrt(cos2), 0.0
        if freedom > 1:
            total = term
            for k in range(2, freedom - 1, 2):
                term *= cos2 * k / (k + 1)
                total += term
        inside = 2 / pi * (atan(angle_tan) + sin * total)
    else:
        term = total = 1.0
        for k in range(1, freedom - 1, 2):
            term *= cos2 * k / (k + 1)
            total += term
        inside = sin * total
    return (1 + inside) / 2
