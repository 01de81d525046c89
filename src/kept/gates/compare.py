"""Comparison gate: better, not better, or undecided on cases like these; and its power.

The case is the unit: repeats only sharpen its mean. The gate looks after one, two, four and so on
passes. It stops as soon as it can decide, or when more passes would not help. All challengers and
looks share the risk of a false `better`; a second risk is shared by `worse` and `not better`. A
comparison changes nothing, so it never keeps.

The power forecast uses the noise of the seed alone. The spread of effects over cases is unknown
before a challenger runs, so there are two forecasts. One assumes the same gain on all cases. The
other assumes scores unrelated to the seed's, case by case. Then differences are as large as
between two samples of cases, whose spread is bounded from above.
"""

from dataclasses import dataclass, replace
from math import ceil, isfinite, log
from typing import NamedTuple

from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.score import Answers
from kept.core.verdict import Side, Verdict, VerdictCode, View
from kept.gates._common import MIN_COVERAGE, broken_constraint, not_comparable
from kept.gates._pairs import draws, missing_asks, pair_gains, shuffled
from kept.gates._statistics import (
    SURE,
    Spread,
    bounds,
    cases_needed,
    chance,
    chance_above,
    detectable,
    evidence,
    noise_of,
    passes_needed,
    reach,
    share_at_most,
    variance,
    variance_at_most,
)

PURPOSE: Purpose = "measure"

SPENT = 0.1
"""Of what is left of the risk, what a look spends; the last one spends all."""

FIRST = 100
"""Cases after which a large set is first looked at."""

PROBE = 20
"""Cases whose repeats must agree for an evaluator to pass for one without noise."""

FEW = 10
"""Cases that differ, below which those that differ and were not drawn are counted with."""

NARROWER = 0.95
"""Twice the passes must narrow the interval to this part of it, or repeats are not worth it."""

HOPE = 0.1
"""The chance that going on ends in an answer, below which it is not gone on."""

LEAST = 0.05
"""The least gain worth knowing of, by default: this part of the scale, or of the seed's score."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Measurements at one look, in the metric's own units; a gain is above zero."""

    gains: tuple[float, ...]
    """Of every case that both sides answered."""
    passes: int
    """Whole ones; 1 for a part of the first as well."""
    spread: Spread
    split: bool
    """True if noise and effect are known apart, which takes repeats."""
    level: float
    last: bool
    low: float
    high: float
    least: float | None

    @property
    def mean(self) -> float:
        """The measured gain."""
        return sum(self.gains) / len(self.gains)

    @property
    def few(self) -> bool:
        """True if so few cases differ that cases not drawn may change the answer."""
        return sum(gain != 0 for gain in self.gains) < FEW

    @property
    def steady(self) -> bool:
        """True if repeats always agree, so that only cases differ."""
        return self.split and self.spread.noise == 0

    @property
    def answer(self) -> VerdictCode | None:
        """The answer, or None while more rollouts may help."""
        if self.low > 0:
            return "better"
        if self.high < 0:
            return "worse"
        if self.least is not None and self.high <= self.least:
            return "not better"
        return "cannot tell" if self.last else None


@dataclass(frozen=True, slots=True)
class Compare:
    """Better, not better, worse, or cannot tell."""

    challengers: int = 1
    """Among whom the risk is shared."""
    least: float | None = None
    """A gain up to this is none, in the metric's own units; None for the default."""
    most: int = 16
    """Passes over the cases, at most."""
    alpha: float = 0.05
    """Chance that any challenger is called better that is not."""
    name: str = "compare"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Look, and look again with twice the draws, until there is an answer."""
        cases = shuffled(view.holdout)
        sizes = looks(len(cases), self.most)
        for at, size in enumerate(sizes):
            pairs = draws(cases, size, 0)
            sides = ((view.incumbent, pairs), (view.challenger, pairs))
            if asks := missing_asks(sides, PURPOSE):
                return asks
            if at + 1 < len(sizes) and view.challenger.known[PURPOSE].asked >= sizes[at + 1]:
                continue  # looked at before
            if told := self._look(view, at, pairs):
                return told
            if size == len(cases):
                steady = _steady(view, cases)
                if not isinstance(steady, bool):
                    return steady
                if steady and (told := self._look(view, at, pairs, steady=True)):
                    return told
        raise AssertionError("the last look decides")

    def left(self, at: int) -> float:
        """Risk that one challenger has left at the look of this number."""
        return self.alpha / self.challengers * (1 - SPENT) ** at

    def final(self, cases: int, passes: int) -> float:
        """Risk that the last look may spend, if it comes after so many passes."""
        return self.left(len(looks(cases, passes)) - 1)

    def most_asked(self, train: int, holdout: int) -> int:
        """Rollouts of both sides that one step comes to at most."""
        return 2 * self.most * holdout

    def _look(
        self, view: View, at: int, pairs: tuple[Pair, ...], *, steady: bool = False
    ) -> Verdict | None:
        """An answer after these draws; None when more are needed."""
        old, new = view.incumbent.known[PURPOSE], view.challenger.known[PURPOSE]
        if verdict := not_comparable(new, old, "seed"):
            return verdict
        if not _losses(view.incumbent, pairs):
            return _told(view, "better", "the seed fails on every case, and this runs", {})
        seen = self._read(view, at, pairs, steady)
        answer = seen.answer
        if answer is None and self._hopeless(seen, len(view.holdout)):
            answer = "cannot tell"
        if answer is None:
            return None
        numbers = self._numbers(view, seen)
        if answer == "cannot tell":
            numbers |= self._needed(view, seen)
        ends = f"{_shown(seen.low)} … {_shown(seen.high)}"
        over = f"{len(seen.gains)} cases × {seen.passes}"
        return _told(view, answer, f"gain {_shown(seen.mean)} ({ends}) over {over}", numbers)

    def _read(self, view: View, at: int, pairs: tuple[Pair, ...], steady: bool) -> Reading:
        mine, theirs = (_losses(side, pairs) for side in (view.challenger, view.incumbent))
        old, new = theirs.by_case, mine.by_case
        found = tuple(old[case] - loss for case, loss in new.items() if case in old)
        passes = max(1, len(pairs) // len(view.holdout))
        noises = noise_of(mine), noise_of(theirs)
        whole = variance([*found])
        split = steady or None not in noises
        noise = sum(one or 0.0 for one in noises)
        # not told apart, all of it is taken for noise: more draws are then given every chance
        spread = Spread(noise, max(0.0, whole - noise / passes)) if split else Spread(whole, 0.0)
        error = spread.error(len(found), passes)
        slow = split and spread.error(len(found), 2 * passes) >= NARROWER * error
        last = steady or slow or len(pairs) >= self.most * len(view.holdout)
        level = self.left(at) * (1.0 if last else SPENT)
        least = self._least(view, sum(old.values()) / len(old))
        low, high = bounds(found, level)
        seen = Reading(found, passes, spread, split, level, last, low, high, least)
        worse, better = _unseen(view, seen, -1), _unseen(view, seen, 1)
        return replace(
            seen,
            low=low if low > 0 else min(low, -worse),
            high=high if high < 0 else max(high, better),
        )

    def _least(self, view: View, seed_loss: float) -> float | None:
        if self.least is not None:
            return self.least
        scale = view.objective.scale
        return LEAST * (abs(seed_loss) if scale is None else scale) or None

    def _hopeless(self, seen: Reading, cases: int) -> bool:
        """True if the rollouts that are left would hardly lead to an answer."""
        end = seen.spread.error(cases, self.most)
        now = seen.spread.error(len(seen.gains), seen.passes)
        wide = reach(cases, self.final(cases, self.most)) * end
        drift = max(0.0, now**2 - end**2) ** 0.5
        # of few cases it is never said that they are not better, only that they are worse
        none = (seen.least or 0.0 if cases >= FEW else 0.0) - wide
        hope = chance_above(wide, seen.mean, drift) + 1 - chance_above(none, seen.mean, drift)
        return hope < HOPE

    def _needed(self, view: View, seen: Reading) -> dict[str, float]:
        """Cases and passes that settle it in four of five runs, if the gain is as measured."""
        cases, none = len(seen.gains), (seen.least or 0.0) - seen.mean
        gain, better = max(seen.mean, none), seen.mean > none
        level = self.final(cases, seen.passes)
        wanted = cases_needed(seen.spread, gain, seen.passes, level)
        if wanted is not None and not better:
            wanted = max(wanted, _enough(view, seen, level))
        found = {"wanted_cases": None if wanted is None else max(wanted, cases + 1)}
        if seen.split and cases >= FEW:
            again = passes_needed(seen.spread, gain, cases, level)
            found["wanted_passes"] = None if again is None else max(again, seen.passes + 1)
        numbers = {name: float(n) for name, n in found.items() if n is not None}
        return {"wanted_better": float(better), **numbers}

    def _numbers(self, view: View, seen: Reading) -> dict[str, float]:
        value = view.objective.value
        old, new = view.incumbent.known[PURPOSE], view.challenger.known[PURPOSE]
        numbers = {
            "gain": seen.mean,
            "low": seen.low,
            "high": seen.high,
            "p": chance(seen.gains),
            "risk": seen.level,
            "least": seen.least or 0.0,
            "seed_value": value(old.loss) if old.loss is not None else float("nan"),
            "value": value(new.loss) if new.loss is not None else float("nan"),
            "cases": float(len(seen.gains)),
            "passes": float(seen.passes),
            "here": self._here(view, seen),
            "seed_rollouts": float(old.asked),
            "rollouts": float(new.asked),
        }
        if seen.split:
            numbers |= {"noise": seen.spread.noise, "effect": seen.spread.effect}
        # where so few cases cannot bound it there is no number, and JSON has no word for that
        return {name: number for name, number in numbers.items() if isfinite(number)}

    def _here(self, view: View, seen: Reading) -> float:
        """1 if it is better on these very cases, -1 if worse, else 0; says nothing of new cases."""
        if seen.low > 0 or seen.high < 0:
            # what holds for new cases, whose differences count as well, holds here the more
            return 1.0 if seen.low > 0 else -1.0
        if seen.steady:
            return float((seen.mean > 0) - (seen.mean < 0))
        if len(seen.gains) < len(view.holdout):
            return 0.0
        bar = log(self.challengers / self.alpha)
        pairs = pair_gains(view, PURPOSE)
        up, down = evidence(pairs), evidence(-gain for gain in pairs)
        return float((up >= bar and seen.mean > 0) - (down >= bar and seen.mean < 0))

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Measure with two passes how far repeats of one case differ and how far cases differ."""
        seed = view.challenger
        pairs = draws(shuffled(view.holdout), 2 * len(view.holdout), 0)
        if asks := missing_asks(((seed, pairs),), PURPOSE):
            return asks
        known, losses = seed.known[PURPOSE], _losses(seed, pairs)
        if known.coverage < MIN_COVERAGE:
            words = f"cannot tell: {known.missing} of {known.asked} rollouts have no answer"
            return Verdict("skip", words, "indecisive", private=known.first_failure)
        noise = noise_of(losses)
        if noise is None or known.failed == known.asked:
            return Verdict("crash", "every rollout failed", private=known.first_failure)
        means = [*losses.by_case.values()]
        value = view.objective.value(sum(means) / len(means))
        between = max(0.0, variance(means) - noise / 2)
        widest = max(between, variance_at_most(means, SURE) - noise / 2)
        if view.objective.bounds is not None:
            low, high = view.objective.bounds
            # no scores between two ends, with such a mean, are further apart
            widest = min(widest, (value - low) * (high - value))
        numbers = {
            "noise": noise,
            "between": between,
            "widest": widest,
            "cases": float(len(means)),
            "seed_value": value,
            "least": self._least(view, sum(means) / len(means)) or 0.0,
        }
        words = f"answers to one case differ by {noise**0.5:.3g}, cases by {between**0.5:.3g}"
        return Verdict("skip", words, "measured", numbers=numbers)


def looks(cases: int, most: int) -> list[int]:
    """After how many draws it looks: parts of a large set, then passes, each time twice as many."""
    sizes: list[int] = []
    size = FIRST
    while 2 * size <= cases:
        sizes.append(size)
        size *= 2
    passes = 1
    while passes < most:
        sizes.append(passes * cases)
        passes *= 2
    return [*sizes, most * cases]


def _steady(view: View, cases: tuple[str, ...]) -> bool | tuple[Ask, ...]:
    """True if second answers repeat the first ones on both sides; Asks if more must be known."""
    pairs = draws(cases, len(cases) + min(PROBE, len(cases)), 0)
    for side in (view.incumbent, view.challenger):
        if asks := missing_asks(((side, pairs),), PURPOSE):
            return asks
        if noise_of(_losses(side, pairs)) != 0:
            return False
    return True


def _unseen(view: View, seen: Reading, sign: int) -> float:
    """Gain that cases not drawn may still hide from one side; 0 unless few cases differ."""
    if not seen.few:
        return 0.0
    scale = view.objective.scale or max(map(abs, seen.gains))
    there = sum(gain * sign > 0 for gain in seen.gains)
    return share_at_most(there, len(seen.gains), seen.level) * scale


def _enough(view: View, seen: Reading, level: float) -> int:
    """Cases without which some that differ may well not have been drawn."""
    scale = view.objective.scale
    if not seen.few or scale is None or not seen.least or seen.least >= scale:
        return 0
    return ceil(log(level) / log(1 - seen.least / scale))


def _losses(side: Side, pairs: tuple[Pair, ...]) -> Answers:
    """Of these draws alone, in their order: a look does not see what was asked for later."""
    known = side.losses.get(PURPOSE, {})
    return Answers({pair: known[pair] for pair in pairs if pair in known})


def _told(view: View, answer: VerdictCode, words: str, numbers: dict[str, float]) -> Verdict:
    verdict = Verdict("skip", words, answer, numbers=numbers)
    if answer != "better":
        return verdict
    if broken := broken_constraint(view.challenger.known[PURPOSE], view.objective):
        return replace(verdict, reason=f"constraint broken: {broken}; {words}", code="not better")
    return verdict


def _shown(gain: float) -> str:
    if not isfinite(gain):
        return "?"
    return f"{gain:+,.0f}" if abs(gain) >= 1000 else f"{gain:+.3g}"


class Forecast(NamedTuple):
    """Power of a number of passes."""

    passes: int
    rollouts: int
    alike: float
    """The gain that is found four times out of five, where it is the same on every case."""
    worst: float
    """The same where a challenger's scores have nothing to do with the seed's."""


def forecasts(gate: Compare, cases: int, noise: float, widest: float) -> list[Forecast]:
    """One for each number of passes after which it looks; one alone where there is no noise."""
    whole = [size // cases for size in looks(cases, gate.most) if size >= cases]
    found: list[Forecast] = []
    for passes in whole if noise else whole[:1]:
        level = gate.final(cases, passes)
        alike, worst = (
            detectable(Spread(2 * noise, effect), cases, passes, level)
            for effect in (0.0, 2 * widest)
        )
        found.append(Forecast(passes, (1 + gate.challengers) * passes * cases, alike, worst))
    return found
