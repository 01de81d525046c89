"""The screen: is a proposal worth paying for?

On train cases, which its proposer has seen, so it may look good without being good: the screen can
only drop. It looks at the cases that the proposal cites, then at a few draws of all, against the
incumbent's, which are shared. All figures are in standard deviations of one draw.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kept.core.proposal import Ask
from kept.core.rollout import Pair
from kept.core.score import Answers
from kept.core.text import count
from kept.core.verdict import Verdict, View
from kept.gates._common import not_comparable
from kept.gates._pairs import (
    alike,
    answers,
    by_case,
    draws,
    gains,
    missing_asks,
    never_varies,
    shuffled,
    tenure_of,
)

GLANCE = 4
"""Cases that a proposal meets first where there is no noise."""

CHECKED = 3
"""Cases that are still asked twice then: it may have been luck that no repeat differed."""

LEAST = 0.04
"""Least estimate of any proposal that passed: it may fix what few cases show."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Thresholds of the screen by number of rollouts."""

    cited: int = 3
    """Draws of each case that it cites."""
    most_cited: int = 2
    steps: tuple[tuple[int, float], ...] = ((8, 0.1), (16, 0.12), (28, 0.15), (60, 0.15))
    """Draws, and the gain they must show. Two of them to begin with, one more for every race
    without a keep since the last one: where much is good, a light screen and a large pool find it
    for the least; where little is, the pool must be purer."""
    together: tuple[tuple[int, float], ...] = ((8, -0.2), (16, 0.08))
    """The same of several together: they may undo one another."""
    alone: tuple[tuple[int, float], ...] = ((28, 0.25), (60, 0.25))
    """The same of one from the pool after a race without a keep: alone it must be large."""
    fixes: float = 0.8
    """A gain on the cited cases that earns trust: then less is asked of the others."""
    breaks: float = -0.2
    """A gain on the cited cases below which nothing else is looked at."""
    trust: float = 0.3
    """By how much less."""
    passes: int = 4
    """Over the incumbent: what is off in its draws is off for every proposal that meets them."""
    cases: int = 30
    """Of train that are looked at."""
    typical: float = 0.16
    """Standard deviation of true gains, for the estimate of one."""

    def look(self, view: View) -> Verdict | tuple[Ask, ...] | None:
        """A verdict, what must be known first, or None: worth a race."""
        tenure = tenure_of(view)
        cites = tuple([case for case in dict.fromkeys(view.cites) if case in view.train])
        cites = cites[: self.most_cited]
        cases = _cited_first(view.train, cites, self.cases)
        twice = len(cases) if not view.still else min(CHECKED, len(cases))
        few = draws(cases, len(cases) + (twice if self.passes > 1 else 0), tenure)
        if asks := missing_asks(((view.incumbent, few),), "screen"):
            return asks
        sure = (
            alike(view.incumbent, "screen")
            if view.still
            else never_varies(view.incumbent, "screen")
        )
        if sure and alike(view.challenger, "screen"):
            return self._once(view, few[: len(cases)])
        bar = draws(cases, self.passes * len(cases), tenure)
        cited = draws(cites, self.cited * len(cites), tenure)
        for mine, floor in self._stages(cites, cases, view):
            sides = ((view.incumbent, bar), (view.challenger, mine))
            if asks := missing_asks(sides, "screen"):
                return asks
            if view.challenger.known["screen"].asked > len(mine):
                continue  # looked at before
            told = self._look(view, cited, floor, len(mine))
            if told is not None or not view.incumbent.losses.get("screen"):
                return told
        return self._passed(view)

    def _passed(self, view: View) -> Verdict | None:
        """Send a promising proposal to the pool, unless there is none or it came from there."""
        return self._near_miss(view) if view.pools and not view.merged else None

    def _stages(
        self, cites: tuple[str, ...], cases: tuple[str, ...], view: View
    ) -> Iterator[tuple[tuple[Pair, ...], float | None]]:
        """Draws so far, and the gain they must show; None where it is the cited cases' alone."""
        tenure, cited = tenure_of(view), self.cited * len(cites)
        if cited:
            yield draws(cites, cited, tenure), None
        for size, floor in self._steps_for(view):
            yield _both(cites, cited, cases, size, tenure), floor

    def _steps_for(self, view: View) -> tuple[tuple[int, float], ...]:
        if view.merged:
            return self.together if view.merged > 1 else self.alone
        return self.steps[: 2 + view.ledger.lost]

    def _look(
        self, view: View, cited: tuple[Pair, ...], floor: float | None, size: int
    ) -> Verdict | None:
        """Reason to drop a proposal after so many rollouts; None while it may be worth more."""
        if verdict := not_comparable(
            view.challenger.known["screen"], view.incumbent.known["screen"]
        ):
            return verdict
        fixed, shown = self._fixed(view, cited), gains(view, "screen")
        if not shown.answers[1]:
            return None  # the incumbent fails: there is nothing to be worse than
        if floor is None:
            broken = fixed < self.breaks * shown.spread
            return _drop(fixed, size, "that it cites") if broken else None
        trusted = fixed >= self.fixes * shown.spread > 0
        enough = shown.mean >= (floor - trusted * self.trust) * shown.spread
        return None if enough else _drop(shown.mean, size, "to learn from")

    def _once(self, view: View, pairs: tuple[Pair, ...]) -> Verdict | tuple[Ask, ...] | None:
        """Of an evaluator that never varies: every case once, and any gain will do.

        What loses on the first few is not looked at further.
        """
        for size in (min(GLANCE, len(pairs)), len(pairs)):
            if asks := missing_asks(((view.challenger, pairs[:size]),), "screen"):
                return asks
            if view.challenger.known["screen"].asked > size:
                continue  # looked at before
            if verdict := not_comparable(
                view.challenger.known["screen"], view.incumbent.known["screen"]
            ):
                return verdict
            mean = gains(view, "screen").mean
            if mean < 0 or (mean == 0 and size == len(pairs)):
                return _drop(mean, size, "to learn from")
        return self._passed(view)

    def most_asked(self, train: int) -> int:
        """Rollouts of both sides that a screen comes to at most."""
        if not train:
            return 0
        bar = self.passes * min(self.cases, train)
        looks = (*self.steps, *self.together, *self.alone)
        return bar + self.most_cited * self.cited + max(size for size, _ in looks)

    def _fixed(self, view: View, cited: tuple[Pair, ...]) -> float:
        """The gain on the cited cases, each for itself."""
        if not cited:
            return 0.0
        new, old = answers(view.challenger, "screen"), answers(view.incumbent, "screen")
        mine = Answers({pair: new[pair] for pair in cited if pair in new})
        mine, bar = (by_case(side, view.objective.scale) for side in (mine, old))
        found = [bar[case] - loss for case, loss in mine.items() if case in bar]
        return sum(found) / len(found) if found else 0.0

    def worth(self, gain: float, mine: int, bar: int) -> float:
        """Estimate of a gain from so many rollouts of each side."""
        prior = self.typical**2
        return max(LEAST, gain * prior / (prior + 1 / mine + 1 / bar))

    def _near_miss(self, view: View) -> Verdict:
        """Worth a race together with others, by what train cases show."""
        shown = gains(view, "screen")
        estimate = self.worth(shown.mean / (shown.spread or 1.0), *shown.answers)
        reason = f"a near miss: {shown.mean:+.3f} on train cases; it waits in the pool for a race"
        numbers = {"screen_gain": shown.mean, "estimate": estimate}
        return Verdict("discard", reason, code="near miss", numbers=numbers)


def _drop(gain: float, size: int, what: str) -> Verdict:
    reason = f"screened out: {gain:+.3f} on {count(size, 'draw')} of the cases {what}"
    return Verdict("discard", reason, numbers={"screen_gain": gain})


@lru_cache(maxsize=1024)
def _cited_first(train: tuple[str, ...], cites: tuple[str, ...], most: int) -> tuple[str, ...]:
    """The train cases in the order in which they are looked at."""
    cases = (*cites, *(case for case in shuffled(train) if case not in cites))
    return cases[: max(most, len(cites))]


@lru_cache(maxsize=1024)
def _both(
    cites: tuple[str, ...], cited: int, cases: tuple[str, ...], size: int, tenure: int
) -> tuple[Pair, ...]:
    """The draws of the cited cases, then those of all of them that are not among these."""
    first, then = draws(cites, cited, tenure), draws(cases, size, tenure)
    return tuple(dict.fromkeys((*first, *then)))
