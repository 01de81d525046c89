"""Bounds for a mean gain over cases, by the means of subsets of the cases.

Where the gains of cases lie evenly round their true mean, that mean is as likely to lie in any gap
between the sorted means of subsets as in any other, if the subsets form a group: of any two, the
cases that are in one only are one of them too (Hartigan, 1969). No bell curve is needed, however
few cases there are. That the k-th smallest of N means is above zero is the exact sign-flip test at
the level k / (N + 1). A gain that grows never lowers a bound, so no case helps by doing worse.
"""

from collections.abc import Sequence
from functools import lru_cache
from operator import add, sub
from typing import NamedTuple

BITS = 12
"""Up to so many cases every subset counts; of more cases, 2 to this power of their subsets do."""

PRIMITIVE = 0b1_0000_0101_0011
"""A polynomial over two elements whose powers run through every code of 12 bits but none."""

ROUNDING = 1e-12
"""Less than this, against the largest gain, is nothing."""


class Bounds(NamedTuple):
    """Where the true mean lies: above one and below the other, each with the same risk."""

    low: float
    high: float


@lru_cache(maxsize=8)
def subset_means(gains: tuple[float, ...]) -> tuple[float, ...]:
    """The means of the subsets, sorted."""
    bits = min(BITS, len(gains))
    sums, counts = _sums(gains, bits), _counts(len(gains))
    nothing = ROUNDING * max(map(abs, gains), default=0.0)
    means = (total / count for total, count in zip(sums, counts, strict=True) if count)
    return tuple(sorted(mean if abs(mean) > nothing else 0.0 for mean in means))


def bounds(gains: Sequence[float], level: float) -> Bounds:
    """Each is wrong with a chance of `level` at most; infinite where so few cases cannot say."""
    means = subset_means(tuple(gains))
    # the hair is for levels that are such a share themselves
    nth = int(level * (len(means) + 1) + ROUNDING)
    if not nth:
        return Bounds(float("-inf"), float("inf"))
    return Bounds(means[nth - 1], means[-nth])


def chance(gains: Sequence[float]) -> float:
    """The risk at which a mean gain above zero could just be said; one-sided."""
    means = subset_means(tuple(gains))
    return (1 + sum(mean <= 0 for mean in means)) / (1 + len(means))


def fewest(level: float) -> int:
    """Cases without which even a gain on every one of them shows nothing at this level."""
    cases = 1
    while 0.5**cases > level:
        cases += 1
    return cases


@lru_cache(maxsize=64)
def _counts(cases: int) -> tuple[int, ...]:
    """Cases in each subset."""
    return tuple(map(round, _sums((1.0,) * cases, min(BITS, cases))))


def _sums(values: Sequence[float], bits: int) -> list[float]:
    """For every subset the sum of its values.

    A case is in the n-th if n and its code share an odd number of bits, so that all sums together
    are one Walsh-Hadamard transform.
    """
    row = [0.0] * (1 << bits)
    for code, value in zip(_codes(len(values)), values, strict=True):
        row[code] += value
    total = sum(values)
    for _ in range(bits):
        even, odd = row[::2], row[1::2]
        row = [*map(add, even, odd), *map(sub, even, odd)]
    return [(total - one) / 2 for one in row]


@lru_cache(maxsize=64)
def _codes(cases: int) -> tuple[int, ...]:
    """A code for each case; they come again where there are more cases than codes."""
    found: list[int] = []
    code = 1
    for _ in range(cases):
        found.append(code)
        code <<= 1
        if code >> BITS:
            code ^= PRIMITIVE
    return tuple(found)
