"""The rule of the artifact loop: strictly better on one pass over the deciding cases.

Crash, then constraints, then the primary metric, then tie-breakers. A tie is never a keep unless a
tie-breaker is strictly better. One evaluation a side, so noise can pass for a gain.
"""

from dataclasses import dataclass

from kept.core.objective import Objective
from kept.core.proposal import Ask
from kept.core.score import Evaluation
from kept.core.verdict import Verdict, View
from kept.gates.common import asks_for, forbidden, losses, not_comparable, say_coverage


@dataclass(frozen=True, slots=True)
class Strict:
    """Keep what is strictly better."""

    repeats: int = 1
    name: str = "strict"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Compare one pass of each side."""
        sides = (view.incumbent, view.challenger)
        if asks := asks_for(sides, view.holdout, self.repeats, "decide"):
            return asks
        old, new = view.incumbent.known["decide"], view.challenger.known["decide"]
        if verdict := not_comparable(new, old):
            return verdict
        return say_coverage(_compare(old, new, view.objective, view.least), view)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds: the challenger's, as the incumbent's are known."""
        return self.repeats * holdout


def _compare(
    old: Evaluation, new: Evaluation, objective: Objective, least: float | None = None
) -> Verdict:
    if verdict := forbidden(new, objective):
        return verdict
    new_loss, old_loss = losses(new, old)
    assert new_loss is not None, "a challenger without a loss is not comparable"
    measured = objective.value(new_loss)
    if old_loss is None:
        why = f"the incumbent fails; the challenger scores {measured:.6g}"
        return Verdict("keep", why, private=old.first_failure, best=True)
    gain = old_loss - new_loss
    numbers = {"incumbent": objective.value(old_loss), "challenger": measured, "gain": gain}
    change = f"`{objective.metric}` {objective.value(old_loss):.6g} → {measured:.6g}"
    if gain > objective.tie_tolerance:
        return Verdict("keep", f"strictly better: {change}", best=True, numbers=numbers)
    if gain < -objective.tie_tolerance:
        return Verdict("discard", f"worse: {change}", numbers=numbers)
    if least is not None and not new.missing and new_loss - least > objective.tie_tolerance:
        # else one tie after another could lead anywhere
        best = objective.value(least)
        reason = f"tied with the incumbent, but not with the best so far, {best:.6g}: {change}"
        return Verdict("discard", reason, numbers=numbers)
    broken_tie = _break_tie(old, new, objective)
    if broken_tie is None:
        return Verdict("discard", f"tied: {change}", numbers=numbers)
    return Verdict("keep", f"tied ({change}), but {broken_tie}", best=True, numbers=numbers)


def _break_tie(old: Evaluation, new: Evaluation, objective: Objective) -> str | None:
    """The first tie-breaker that differs, if it favours the challenger."""
    for breaker in objective.tie_breakers:
        was, now = old.metric(breaker.metric), new.metric(breaker.metric)
        if was == now:
            continue
        if was is None or now is None:
            return None  # what is not measured is not clearly better
        if any(side.metrics[breaker.metric].n < side.asked for side in (old, new)):
            # a rollout that failed is not a short or a cheap one, nor is one that is missing
            return None
        better = now < was if breaker.prefer == "lower" else now > was
        return f"{breaker.prefer} `{breaker.metric}`: {was:g} → {now:g}" if better else None
    return None
