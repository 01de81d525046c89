"""Tie-breakers of a race: what is as good and costs less is kept for costing less.

Two texts are never seen to be equal, so that a tie is a loss of no more than a margin, as for a
simplification (`gates/simplify.py`). The tie-breaker is then compared case by case, and counts only
if the difference is more than chance. The first that differs decides.
"""

from typing import NamedTuple

from kept.core.answers import Answers
from kept.core.objective import TieBreaker
from kept.core.rollout import Purpose
from kept.core.verdict import Side, View
from kept.gates.case_level import Interval, interval, risk_of

SCREEN_RISK = 0.01
"""On train cases: a race for a tie costs as much as any, and few proposals are made for one."""


TIE = "tie"
"""Among the numbers of a verdict: it was raced for its tie-breakers."""


class Difference(NamedTuple):
    """A tie-breaker by which two sides differ beyond chance."""

    breaker: TieBreaker
    better: bool
    was: float
    now: float
    by: Interval
    """Of what is better, above 0."""

    def __str__(self) -> str:
        shown = f"`{self.breaker.metric}` {self.was:.4g} → {self.now:.4g}"
        if not self.by.ends:
            return shown
        low, high = sorted((-self.by.low, -self.by.high))
        if self.breaker.prefer == "higher":
            low, high = self.by.low, self.by.high
        return f"{shown} ({low:+.3g} … {high:+.3g})"


def difference(view: View, purpose: Purpose, other: Side, risk: float) -> Difference | None:
    """The first tie-breaker by which the challenger differs from another; None where none does.

    On the pairs that both sides measured: what failed is not a cheap answer.
    """
    mine, theirs = view.challenger.ties.get(purpose, ()), other.ties.get(purpose, ())
    for breaker, new, old in zip(view.objective.tie_breakers, mine, theirs, strict=False):
        both = new.keys() & old.keys()
        now = Answers({pair: value for pair, value in new.items() if pair in both}).by_case
        was = Answers({pair: value for pair, value in old.items() if pair in both}).by_case
        sign = 1.0 if breaker.prefer == "lower" else -1.0
        gains = [sign * (was[case] - value) for case, value in now.items()]
        for better in (True, False):
            if risk_of(gains if better else [-gain for gain in gains]) <= risk:
                before, after = (sum(side.values()) / len(side) for side in (was, now))
                return Difference(breaker, better, before, after, interval(gains, None))
    return None
