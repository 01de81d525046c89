"""Expected cost of a race when no proposal is better; most are dropped early.

By normal theory, with noise as large from draw to draw as from case to case, on a fixed net of
points in place of chance. For people to read before a run; no verdict depends on it.
"""

from functools import lru_cache
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from kept.gates._pairs import looks

POINTS = 256
"""Courses that are followed; more of them move no figure by a twentieth."""

_NORMAL = NormalDist()


class Screened(NamedTuple):
    """Expected fate of a proposal that is exactly as good as the incumbent."""

    draws: float
    """Of the proposal, on average."""
    share: float
    """Share of proposals that pass."""
    shown: float
    """The mean gain that these seem to have, in standard deviations of one draw."""


@lru_cache(maxsize=64)
def screened(steps: tuple[tuple[int, float], ...], bar: int) -> Screened:
    """By the gain that must be shown after so many draws, against so many of the incumbent."""
    draws, through, shown = 0, 0, 0.0
    for off, *luck in _courses(1 + len(steps)):
        total, at, gain = 0.0, 0, 0.0
        for (size, floor), step in zip(steps, luck, strict=True):
            total += step * sqrt(size - at)
            at, gain = size, total / size - off / sqrt(bar)
            if gain < floor:
                break
        else:
            through, shown = through + 1, shown + gain
        draws += at
    return Screened(draws / POINTS, through / POINTS, shown / max(1, through))


class Raced(NamedTuple):
    """Draws of each side on average, until a race sees that there is nothing in it."""

    challenger: float
    incumbent: float


@lru_cache(maxsize=64)
def raced(cases: int, most: int, aim: float, patience: float) -> Raced:
    """On so many deciding cases, in so many passes at most."""
    sizes = looks(cases, most)
    bars = [size if size < cases else max(size, min(2, most) * cases) for size in sizes]
    sums = [0, 0]
    for luck in _courses(2 * len(sizes)):
        new, old, at, bar = 0.0, 0.0, 0, 0
        for n, (size, wide) in enumerate(zip(sizes, bars, strict=True)):
            new += luck[2 * n] * sqrt(size - at)
            old += luck[2 * n + 1] * sqrt(max(0, wide - bar))
            at, bar = size, max(bar, wide)
            gain = new / at - old / bar
            if (gain * aim - aim * aim / 2) / (1 / at + 1 / bar) < -patience:
                break
        sums = [sums[0] + at, sums[1] + bar]
    return Raced(sums[0] / POINTS, sums[1] / POINTS)


@lru_cache(maxsize=64)
def proof_passes(passes: tuple[int, ...], doubt: float) -> float:
    """Passes of each side until a proof sees that there is nothing to prove."""
    enough, total = -_NORMAL.inv_cdf(doubt), 0
    for luck in _courses(len(passes)):
        sums, at = 0.0, 0
        for size, step in zip(passes, luck, strict=True):
            sums += step * sqrt(size - at)
            at = size
            if sums / sqrt(at) < enough:
                break
        total += at
    return total / POINTS


@lru_cache(maxsize=64)
def _courses(steps: int) -> tuple[tuple[float, ...], ...]:
    """Steps of chance, evenly spread: multiples of roots of primes, without the whole part."""
    roots = [sqrt(prime) for prime in _primes(steps)]
    return tuple(
        tuple(_NORMAL.inv_cdf((n * root + 0.5) % 1 or 0.5) for root in roots)
        for n in range(1, POINTS + 1)
    )


def _primes(most: int) -> list[int]:
    found: list[int] = []
    n = 2
    while len(found) < most:
        if all(n % prime for prime in found):
            found.append(n)
        n += 1
    return found
