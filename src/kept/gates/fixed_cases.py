"""Race on a fixed set of cases that is the whole target, and the measure-only gate.

A kept candidate is better on these cases, beyond the noise of rollouts; nothing is claimed about
others. So there is no screening and no confirmation, and a keep is the best at once
(docs/decisions/0062).

The measure-only gate runs every case a number of times, and compares or decides nothing.
"""

from dataclasses import dataclass, fields
from math import ceil
from typing import ClassVar

from kept.core.alpha import level
from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.text import count
from kept.core.verdict import Verdict, View
from kept.gates._common import MIN_COVERAGE, forbidden
from kept.gates._pairs import answers, looks, missing_asks
from kept.gates._statistics import LATE, agreeing, case_gains, risk_of, sign_test
from kept.gates.race import Race


@dataclass(frozen=True, slots=True)
class FixedRace(Race):
    """The race, without its questions about other cases."""

    odd: float = 0.1
    """Share of deviating runs that must not be missed: with less risk than a step may take, so many
    agreeing rollouts exclude it."""
    fixed: ClassVar[bool] = True

    @classmethod
    def of(cls, race: Race) -> "FixedRace":
        """With the figures of a race."""
        return cls(**{one.name: getattr(race, one.name) for one in fields(Race)})

    def most_asked(self, train: int, holdout: int) -> int:
        """Rollouts of both sides that one step comes to at most."""
        sure = 2 * holdout * self._passes(level(LATE, self.alpha), holdout)
        return max(Race.most_asked(self, train, holdout), sure)

    def _passes(self, risk: float, cases: int) -> int:
        """Passes at most: with those that outages may take, enough to be sure."""
        return max(self.most, ceil(agreeing(risk, self.odd) / MIN_COVERAGE / cases)) if cases else 0

    def _looks(self, view: View) -> list[int]:
        """Also as soon as there are enough draws to be sure."""
        cases, risk = len(view.holdout), level(view.ledger, self.alpha)
        sure = ceil(agreeing(risk, self.odd) / cases) * cases
        return sorted({*looks(cases, self._passes(risk, cases)), sure})

    def _too_few(self, view: View, risk: float) -> bool:
        """True if a challenger without a differing rollout may still be erratic."""
        drawn = answers(view.challenger, "decide")
        return drawn.alike and len(drawn) < agreeing(risk, self.odd)

    def _holds(self, view: View, risk: float) -> bool:
        """True if the mean is better too; checked where the bets are on signs.

        Signs say nothing of a rare great loss. While none was seen, there must be enough draws; of
        what was seen, Student's t says whether the rest makes up for it.
        """
        if view.objective.scale is not None:
            return True
        mine, theirs = (answers(s, "decide") for s in (view.challenger, view.incumbent))
        found = [theirs[pair] - loss for pair, loss in mine.items() if pair in theirs]
        return not self._too_few(view, risk) and risk_of(found) <= risk

    def _ends(self, view: View, size: int, risk: float) -> bool:
        """Not while all draws agree, and are too few."""
        return size >= self.most * len(view.holdout) and not self._too_few(view, risk)

    def _without_noise(self, view: View, numbers: dict[str, float]) -> Verdict | None:
        """Verdict on a result that every repeat agrees on; None until there are enough repeats."""
        gain = numbers["gain"]
        if gain > 0 and self._too_few(view, numbers["alpha"]):
            return None
        better, worse, _ = sign_test(case_gains(view, "decide", view.incumbent))
        words = f"gain {gain:+.3f}, {better} cases better, {worse} worse"
        words += f", no noise in {count(len(answers(view.challenger, 'decide')), 'draw')}"
        if gain <= 0:
            return Verdict("discard", f"not better: {words}", numbers=numbers)
        kept = Verdict("keep", f"better: {words}", best=True, numbers=numbers)
        return forbidden(view.challenger.known["decide"], view.objective, numbers) or kept


PURPOSE: Purpose = "measure"


@dataclass(frozen=True, slots=True)
class Sweep:
    """Has the seed measured on every case of the holdout."""

    repeats: int = 1
    name: str = "sweep"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """There is nothing to decide: a challenger would be measured as the seed is."""
        return self.measure(view)

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """All cases once, then all of them again."""
        pairs = tuple(Pair(case, repeat) for repeat in range(self.repeats) for case in view.holdout)
        if asks := missing_asks(((view.challenger, pairs),), PURPOSE):
            return asks
        known = view.challenger.known[PURPOSE]
        numbers: dict[str, float] = {
            "asked": known.asked,
            "missing": known.missing,
            "failed": known.failed,
        }
        if known.loss is not None:
            numbers["value"] = view.objective.value(known.loss)
        words = f"{known.asked - known.missing - known.failed} of {known.asked} rollouts scored"
        return Verdict("skip", words, "measured", numbers=numbers, private=known.first_failure)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds."""
        return self.repeats * holdout
