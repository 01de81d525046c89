"""Decision rules of the source methods: refinement, skill training, artifact loop.

Refinement: a lower loss is a gain and moves the best. The incumbent, from which the next
iteration starts, is the best so far. With `advances` it is the newest result, better or not. A
step is always judged against its own start.

Skill training: strictly better than the current skill on the selection split. The best of the run
is tracked apart, so a run may continue from one that is not its best.

Artifact loop: strictly better on one pass over the deciding cases. The order is crash,
constraints, primary metric, tie-breakers. A tie is a keep only if a tie-breaker is strictly
better. There is one evaluation a side, so noise can pass for a gain.
"""

from dataclasses import dataclass

from kept.core.objective import Objective
from kept.core.proposal import Ask
from kept.core.score import Evaluation
from kept.core.verdict import FOLLOWED, Verdict, View
from kept.gates._common import asks_for, claimed, forbidden, losses, not_comparable, say_coverage


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
