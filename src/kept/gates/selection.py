"""The rule of skill training: strictly better than the current one on the selection split.

The best of the whole run is tracked apart, so a run may go on from one that is not its best.
"""

from dataclasses import dataclass

from kept.core.proposal import Ask
from kept.core.verdict import Verdict, View
from kept.gates.claiming import claimed
from kept.gates.common import asks_for, forbidden, losses, not_comparable, say_coverage


@dataclass(frozen=True, slots=True)
class Selection:
    """Keep what beats the incumbent; move the best only when it beats that too."""

    name: str = "selection"
    claim_passes: int = 1

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Compare one pass of each side over the selection split."""
        sides = (view.incumbent, view.best, view.challenger)
        if asks := asks_for(sides, view.holdout, 1, "decide"):
            return asks
        old, new = view.incumbent.known["decide"], view.challenger.known["decide"]
        top = view.best.known["decide"]
        if verdict := not_comparable(new, old) or not_comparable(new, top, "best"):
            return verdict
        if verdict := forbidden(new, view.objective):
            return verdict
        now, was = losses(new, old)
        assert now is not None, "a challenger without a loss is not comparable"
        value = view.objective.value
        metric = view.objective.metric
        if was is not None and now >= was:
            how = "tied" if now == was else "worse"
            reason = f"{how} on the selection split: `{metric}` {value(was):.6g} → {value(now):.6g}"
            return say_coverage(Verdict("discard", reason, numbers={"gain": was - now}), view)
        against_best = losses(new, top)
        assert against_best.challenger is not None
        new_best = against_best.other is None or against_best.challenger < against_best.other
        reason = f"better on the selection split: `{metric}` is now {value(now):.6g}"
        if was is not None:
            reason += f", was {value(was):.6g}"
        numbers = {} if was is None else {"gain": was - now}
        reason += "; a new best" if new_best else ""
        return say_coverage(Verdict("keep", reason, best=new_best, numbers=numbers), view)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds: the challenger's, as the others' are known."""
        return holdout

    def most_at_end(self, cases: tuple[int, int, int], pooled: int) -> int:
        """Most rollouts of the claim, of both sides."""
        return 2 * self.claim_passes * cases[2]

    def claim(self, view: View) -> Verdict | tuple[Ask, ...]:
        """By how much the best (here the challenger) beats the seed (the incumbent)."""
        return claimed(view, self.claim_passes)
