"""What a set of cases can show: how noise and cases add up, and how many would settle it.

The error of a mean gain has two sources. Noise, the spread of answers to the same case, falls with
every further pass; what differs from case to case falls with further cases alone. By normal theory:
these are forecasts, and no verdict depends on them but whether to go on.
"""

from collections.abc import Mapping
from math import ceil, inf, sqrt
from statistics import NormalDist
from typing import NamedTuple

from kept.core.rollout import Pair
from kept.gates.case_level import student

POWER = 0.8
"""The chance to find what is there that a forecast asks for."""

MOST = 10_000_000
"""Cases or passes beyond which a forecast says nothing."""


class Spread(NamedTuple):
    """What makes the gain of one pair differ from the true mean gain, as variances."""

    noise: float
    """Of both sides' answers to the same case."""
    effect: float
    """Of the cases' true gains."""

    def error(self, cases: int, passes: float) -> float:
        """Standard error of the mean gain over so many cases."""
        return sqrt((self.effect + self.noise / passes) / cases)


def noise_of(losses: Mapping[Pair, float]) -> float | None:
    """Variance of one answer round the mean of its case; None where no case was asked twice."""
    rows: dict[str, list[float]] = {}
    for pair, loss in losses.items():
        rows.setdefault(pair.case, []).append(loss)
    total, freedom = 0.0, 0
    for row in rows.values():
        mean = sum(row) / len(row)
        total += sum((loss - mean) ** 2 for loss in row)
        freedom += len(row) - 1
    return total / freedom if freedom else None


def variance(values: list[float]) -> float:
    """Of the population that these were drawn from."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def variance_at_most(values: list[float], chance: float) -> float:
    """What the variance of the population is below, with this chance, by normal theory."""
    free = len(values) - 1
    share = 2 / (9 * free)
    # Wilson and Hilferty's cube for a quantile of chi-squared, over its degrees of freedom
    least = (1 - share + NormalDist().inv_cdf(1 - chance) * sqrt(share)) ** 3
    return variance(values) / max(least, 0.01)


def reach(cases: int, level: float) -> float:
    """How many errors wide a bound is, for a sample of this size."""
    return student(1 - level, max(1, cases - 1))


def detectable(spread: Spread, cases: int, passes: int, level: float) -> float:
    """The gain that is found in four comparisons of five."""
    return _factor(cases, level) * spread.error(cases, passes)


def cases_needed(spread: Spread, gain: float, passes: int, level: float) -> int | None:
    """Cases that it takes to find such a gain; None where no number of them would do."""
    if gain <= 0:
        return None
    one = (spread.effect + spread.noise / passes) / gain**2
    cases = 2
    for _ in range(20):
        found = one * _factor(cases, level) ** 2
        if found > MOST:
            return None
        wanted = max(2, ceil(found))
        if wanted == cases:
            break
        cases = wanted
    return cases


def passes_needed(spread: Spread, gain: float, cases: int, level: float) -> int | None:
    """Passes over the same cases that it takes; None where the cases differ too much for that."""
    if gain <= 0:
        return None
    room = cases * (gain / _factor(cases, level)) ** 2 - spread.effect
    found = spread.noise / room if room > 0 else inf
    return max(1, ceil(found)) if found <= MOST else None


def chance_above(bar: float, mean: float, error: float) -> float:
    """The chance that something round this mean ends above a bar."""
    if error <= 0:
        return float(mean > bar)
    return 1 - NormalDist(mean, error).cdf(bar)


def _factor(cases: int, level: float) -> float:
    return reach(cases, level) + student(POWER, max(1, cases - 1))
