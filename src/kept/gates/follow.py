"""The rule of refinement: always go on from the newest result, keep the best apart.

An iteration that ran becomes the incumbent whether it is better or not; the best moves only when
the loss is strictly lower than any before.
"""

from dataclasses import dataclass

from kept.core.proposal import Ask
from kept.core.verdict import Verdict, View
from kept.gates.common import asks_for, losses, not_comparable, say_coverage


@dataclass(frozen=True, slots=True)
class Follow:
    """Advance on every result; promote only gains."""

    name: str = "follow"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Measure the challenger once and compare it with the best."""
        sides = (view.incumbent, view.best, view.challenger)
        if asks := asks_for(sides, view.holdout, 1, "decide"):
            return asks
        new, top = view.challenger.known["decide"], view.best.known["decide"]
        if verdict := not_comparable(new, top, "best"):
            return verdict
        now, best = losses(new, top)
        assert now is not None, "a challenger without a loss is not comparable"
        if best is None or now < best:
            was = "" if best is None else f", down from {best:.6g}"
            verdict = Verdict("keep", f"a new best: loss {now:.6g}{was}", best=True)
        else:
            why = f"followed, not a gain: loss {now:.6g}, the best is {best:.6g}"
            verdict = Verdict("keep", why)
        return say_coverage(verdict, view, view.best)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds: the challenger's, as the others' are known."""
        return holdout
