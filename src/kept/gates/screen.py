"""The screen: is a proposal worth paying for?

On train cases, which its proposer has seen, so it may look good without being good: the screen can
only drop. It looks at the cases that the proposal cites, then at a few draws of all, against the
incumbent's, which are shared. All figures are in standard deviations of one draw.
"""

from dataclasses import dataclass

from kept.core.proposal import Ask
from kept.core.rollout import Pair
from kept.core.verdict import Verdict, View
from kept.core.words import count
from kept.gates.common import not_comparable
from kept.gates.pairing import TENURE, Gains, by_case, draws, gains, missing_asks, shuffled

LEAST = 0.04
"""What anything that passed is taken to be worth: it may fix what few cases show."""


@dataclass(frozen=True, slots=True)
class Screen:
    """How much a proposal has to show, and how soon."""

    cited: int = 6
    """Draws of each case that it cites."""
    most_cited: int = 2
    steps: tuple[tuple[int, float], ...] = ((10, 0.0), (25, 0.06), (60, 0.12))
    """Draws, and the gain they must show."""
    fixes: float = 0.8
    """A gain on the cited cases that earns trust: then less is asked of the others."""
    breaks: float = -0.2
    """A gain on the cited cases below which nothing else is looked at."""
    trust: float = 0.3
    """By how much less."""
    passes: int = 8
    """Over the incumbent: what is off in its draws is off for every proposal that meets them."""
    cases: int = 30
    """Of train that are looked at."""
    typical: float = 0.16
    """Standard deviation of true gains, for the estimate of one."""

    def look(self, view: View) -> Verdict | tuple[Ask, ...] | None:
        """A verdict, what must be known first, or None: worth a race."""
        tenure = len(view.ledger.keeps)
        cites = tuple(case for case in dict.fromkeys(view.cites) if case in view.train)[
            : self.most_cited
        ]
        cases = (*cites, *(case for case in shuffled(view.train) if case not in cites))
        cases = cases[: max(self.cases, len(cites))]
        bar = draws(cases, self.passes * len(cases), tenure)
        cited = tuple(Pair(c, tenure * TENURE + n) for n in range(self.cited) for c in cites)
        stages: list[tuple[tuple[Pair, ...], float | None]] = [(cited, None)] if cited else []
        for size, floor in self.steps:
            stages.append((_both(cited, draws(cases, size, tenure)), floor))
        for mine, floor in stages:
            sides = ((view.incumbent, bar), (view.challenger, mine))
            if asks := missing_asks(sides, "screen"):
                return asks
            new, old = view.challenger.known["screen"], view.incumbent.known["screen"]
            if new.asked > len(mine):
                continue  # looked at before
            if verdict := not_comparable(new, old):
                return verdict
            fixed, shown = self._fixed(view, cited), gains(view, "screen")
            if not shown.answers[1]:
                return None  # the incumbent fails: there is nothing to be worse than
            if floor is None:
                if fixed < self.breaks * shown.spread:
                    return _drop(fixed, len(mine), "that it cites")
            else:
                trusted = fixed >= self.fixes * shown.spread > 0
                if shown.mean < (floor - trusted * self.trust) * shown.spread:
                    return _drop(shown.mean, len(mine), "to learn from")
        return self._passed(view, gains(view, "screen"))

    def most_asked(self, train: int) -> int:
        """Rollouts of both sides that a screen comes to at most."""
        if not train:
            return 0
        bar = self.passes * min(self.cases, train)
        return bar + self.most_cited * self.cited + max(size for size, _ in self.steps)

    def _fixed(self, view: View, cited: tuple[Pair, ...]) -> float:
        """The gain on the cited cases, each for itself."""
        new = view.challenger.losses.get("screen", {})
        mine = by_case({pair: new[pair] for pair in cited if pair in new}, view.objective.scale)
        bar = by_case(view.incumbent.losses.get("screen", {}), view.objective.scale)
        found = [bar[case] - loss for case, loss in mine.items() if case in bar]
        return sum(found) / len(found) if found else 0.0

    def _passed(self, view: View, shown: Gains) -> Verdict | None:
        noise = 1 / shown.answers[0] + 1 / shown.answers[1]
        prior = self.typical**2
        estimate = shown.mean / (shown.spread or 1.0) * prior / (prior + noise)
        if not view.pools:
            return None
        reason = f"a near miss: {shown.mean:+.3f} on train cases; it waits in the pool for a race"
        numbers = {"screen_gain": shown.mean, "estimate": max(LEAST, estimate)}
        return Verdict("discard", reason, code="near miss", numbers=numbers)


def _drop(gain: float, size: int, what: str) -> Verdict:
    reason = f"screened out: {gain:+.3f} on {count(size, 'draw')} of the cases {what}"
    return Verdict("discard", reason, numbers={"screen_gain": gain})


def _both(first: tuple[Pair, ...], then: tuple[Pair, ...]) -> tuple[Pair, ...]:
    seen = set(first)
    return (*first, *(pair for pair in then if pair not in seen))
