"""The rule of refinement: a lower loss is a gain, and moves the best.

What the next iteration starts from is the incumbent. It is the best so far, or with `advances` the
newest result, better or not. So a step is always judged against what it started from.
"""

from dataclasses import dataclass

from kept.core.proposal import Ask
from kept.core.verdict import FOLLOWED, Verdict, View
from kept.gates.common import asks_for, losses, not_comparable, say_coverage


@dataclass(frozen=True, slots=True)
class Follow:
    """Promote only gains; with `advances`, go on from every result."""

    advances: bool = True
    """True where a result that is no gain becomes the incumbent all the same."""
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
            why = f"no gain: loss {now:.6g}, the best is {best:.6g}"
            verdict = Verdict("keep", why, code=FOLLOWED) if self.advances else None
            verdict = verdict or Verdict("discard", why)
        return say_coverage(verdict, view, view.best)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds: the challenger's, as the others' are known."""
        return holdout
