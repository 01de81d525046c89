"""Statistics of gates: noise checks, betting evidence, intervals and power forecasts.

Noise-free repeats: a few equal rollouts prove little. A text that fails in one run of eight gives
five equal runs out of five about every other time.

Betting evidence: each paired gain g between −1 and 1 multiplies the stake by 1 + λg. Suppose that
a challenger is not better in the mean over the deciding cases. Then a full pass grows no stake on
average: the product of the means by case is at most the mean's power (AM-GM). So the stake
exceeds 1/α at the end of any pass with probability at most α. This holds for any number of looks
and any distribution of gains, also if it differs by case. Several λ share the stake. Premises:
rollouts of different cases and passes are independent, and a pass is complete. Pairs lost to
outages, at most one in ten, are unknown.

Intervals for unseen cases: the case is the unit; repeats only sharpen its mean.

Power forecasts: the error of a mean gain has two sources. Noise, the spread of answers to one
case, falls with every pass. The spread between cases falls only with further cases. The forecasts
use normal theory; only the decision to go on depends on them.

Shares of cases: the interval from a sample is exact, however small the sample.

Subset bounds: bounds for a mean gain over cases, from the means of subsets of the cases. Premise:
gains are distributed symmetrically round their true mean. Then that mean is equally likely to lie
in any gap between the sorted subset means, if the subsets form a group. That is, the symmetric
difference of any two is one of them too (Hartigan, 1969). No normal distribution is needed,
however few cases there are. The k-th smallest of N means being above zero is the exact sign-flip
test at the level k / (N + 1). A growing gain never lowers a bound, so a case cannot help by doing
worse.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import atan, ceil, comb, exp, inf, isfinite, lgamma, log, log1p, pi, sqrt
from operator import add, sub
from statistics import NormalDist
from typing import NamedTuple

from kept.core.alpha import Ledger
from kept.core.rollout import Pair, Purpose
from kept.core.verdict import Side, View
from kept.gates._pairs import answers

LATE = Ledger(tests=99)
"""A step that has as little to risk as any that is reckoned with beforehand."""


def agreeing(risk: float, odd: float) -> int:
    """Draws of which all are alike with no more than this risk, if a share of them is otherwise."""
    return ceil(log(risk) / log1p(-odd))


STAKES = (0.05, 0.1, 0.2, 0.4, 0.7)
"""The bets; which of them pays best depends on the size of the gain, which nobody knows."""


MOST_ODDS = 1e6
"""Beyond this, nobody needs to know them more exactly."""


def evidence(gains: Iterable[float], stakes: Sequence[float] = STAKES) -> float:
    """The logarithm of what a stake of 1 has become."""
    counts = Counter(gains).items()
    logs = [sum(n * log1p(stake * gain) for gain, n in counts) for stake in stakes]
    top = max(logs)
    return top + log(sum(exp(one - top) for one in logs) / len(logs))


def odds(chance: float) -> str:
    """Odds to one, as a person reads them."""
    if chance > MOST_ODDS:
        return f"over {MOST_ODDS:,.0f}"
    return f"{chance:,.0f}" if chance >= 10 else f"{chance:.2g}"


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
        """True if the interval has ends; without bounds on the gain it holds only the mean."""
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
    # Agresti and Min add to pass or fail: a case without a gain, and half a case each way, here as
    # large as the largest gain seen, on whatever scale; two cases stand for all three: their sum
    # is the same, and that of their squares
    middle, error = _mean_and_error([*found, most / sqrt(2), -most / sqrt(2)])
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
    """P value of so many gains among the changes: exact and one-sided."""
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


POWER = 0.8
"""The chance to find what is there that a forecast asks for."""

MOST = 10_000_000
"""Cases or passes beyond which a forecast says nothing."""


class Spread(NamedTuple):
    """Variance of the gain of one pair: noise of answers and effect of cases."""

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
    """Upper bound on the population variance that holds with this chance (normal theory)."""
    free = len(values) - 1
    share = 2 / (9 * free)
    # Wilson and Hilferty's cube for a quantile of chi-squared, over its degrees of freedom
    least = (1 - share + NormalDist().inv_cdf(1 - chance) * sqrt(share)) ** 3
    return variance(values) / max(least, 0.01)


def reach(cases: int, level: float) -> float:
    """Half-width of a bound in standard errors, for a sample of this size."""
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


STEPS = 60
"""Halvings of what is not known yet, after which it is known to the last digit."""


def chance_of(seen: int, cases: int, share: float) -> float:
    """Of drawing so many or fewer, where this share of all cases has it."""
    if seen >= cases or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    yes, no, all_ = log(share), log(1 - share), lgamma(cases + 1)
    return min(
        1.0,
        sum(
            exp(all_ - lgamma(n + 1) - lgamma(cases - n + 1) + n * yes + (cases - n) * no)
            for n in range(seen + 1)
        ),
    )


def share_at_most(seen: int, cases: int, risk: float) -> float:
    """Upper bound on a share, at this risk, given how many of the cases have it.

    Clopper and Pearson's bound; where none has it, 1 − risk^(1/cases).
    """
    low, high = seen / cases, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(seen, cases, middle) > risk else (low, middle)
    return high


BITS = 12
"""Up to so many cases every subset counts; of more cases, 2 to this power of their subsets do."""

PRIMITIVE = 0b1_0000_0101_0011
"""A polynomial over two elements whose powers run through every code of 12 bits but none."""

"""Less than this, against the largest gain, is nothing."""


class Bounds(NamedTuple):
    """Bounds on the true mean, each with the same risk."""

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
