"""Rules that are not Kept's: two peers' as their sources have them, and two that no one should use.

Each speaks a gate's language, so that the same driver drives it. They may remember: every run gets
one of its own.
"""

from dataclasses import dataclass, field
from math import sqrt
from random import Random

import numpy as np
from numpy.typing import NDArray

from bench.gates.chance import Floats, mixed
from kept.core.proposal import Ask
from kept.core.rollout import Pair
from kept.core.score import Evaluation
from kept.core.verdict import Verdict, View
from kept.gates._common import asks_for, not_comparable

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Always:
    """The same verdict for all, at the price of one pass."""

    keeps: bool
    name: str = "always"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Look, and do not care."""
        if asks := asks_for((view.incumbent, view.challenger), view.holdout, 1, "decide"):
            return asks
        return Verdict("keep" if self.keeps else "discard", "as always", best=self.keeps)


@dataclass(frozen=True, slots=True)
class OneStandardError:
    """cap-evolve's `paired` gate: the mean difference by case exceeds its standard error.

    Its factor of 1 is widened to Student's t at the same level, here by the first term of the
    expansion in 1/n, which is right to 0.001 at 25 cases. No spread at all: any gain will do.
    """

    k_se: float = 1.0
    name: str = "one standard error"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Compare one pass of each side, case by case."""
        if asks := asks_for((view.incumbent, view.challenger), view.holdout, 1, "decide"):
            return asks
        old, new = view.incumbent.known["decide"], view.challenger.known["decide"]
        if verdict := not_comparable(new, old):
            return verdict
        gains = [
            tally.mean - new.cases[case].mean
            for case, tally in old.cases.items()
            if case in new.cases
        ]
        n = len(gains)
        gain = sum(gains) / n
        error = sqrt(sum((g - gain) ** 2 for g in gains) / (n - 1) / n)
        bar = self.k_se * (1 + (self.k_se**2 + 1) / (4 * (n - 1))) * error
        if gain > bar:
            return Verdict("keep", f"gain {gain:.6g} exceeds {bar:.6g}", best=True)
        return Verdict("discard", f"gain {gain:.6g} within {bar:.6g}")


class Pool:
    """GEPA's candidates, and which of them are best on which deciding case."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._scores: list[Floats] = []
        """By case; below all scores where there is no answer."""
        self._means: list[float] = []
        self._tickets: list[str] = []

    def add(self, one: str, evaluation: Evaluation, cases: tuple[str, ...]) -> bool:
        """Whether the new one is the best of them all by its mean."""
        row = _scores(evaluation)
        mean = sum(row.values()) / len(row) if row else 0.0
        best = all(mean > other for other in self._means)
        self.ids.append(one)
        self._scores.append(np.array([row.get(case, -1.0) for case in cases]))
        self._means.append(mean)
        self._tickets = []
        return best

    def choose(self, chance: Random) -> str:
        """One of those that nobody replaces, as often as it is best on a case."""
        if not self._tickets:
            scores = np.stack(self._scores)
            leads = scores == scores.max(axis=0)
            leads &= undominated(leads, np.array(self._means))[:, None]
            often = zip(self.ids, leads.sum(axis=1).tolist(), strict=True)
            self._tickets = [one for one, times in often for _ in range(times)]
        return chance.choice(self._tickets)


def undominated(leads: Flags, means: Floats) -> Flags:
    """Who is left when those that others replace wherever they lead are struck out, worst first."""
    crowds = leads.sum(axis=0)
    left = leads.sum(axis=1) > 0
    for at in np.argsort(means, kind="stable").tolist():
        if left[at] and crowds[leads[at]].min() > 1:
            left[at] = False
            crowds -= leads[at]
    return left


@dataclass(slots=True)
class Minibatch:
    """GEPA's rule at its defaults.

    A parent is drawn from the candidates that are best on some deciding case, as often as they are.
    A proposal that beats its parent's sum on 3 train cases, fresh draws of both, joins the pool
    after a pass over the deciding cases; the best of the pool by their mean is what a run returns.
    """

    seed: int
    size: int = 3
    name: str = "gepa minibatch"
    _turn: int = 0
    _left: list[str] = field(default_factory=list[str])
    _batch: tuple[str, ...] = ()
    _open: str = ""
    _uses: dict[str, int] = field(default_factory=dict[str, int])
    _pool: Pool = field(default_factory=Pool)

    def parent(self) -> str | None:
        """Whom the next proposal is made for; None at first, for the seed."""
        if not self._pool.ids:
            return None
        return self._pool.choose(Random(mixed(self.seed, 1, self._turn)))

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """The minibatch first; the deciding cases only for what beats its parent there."""
        old, new = view.incumbent, view.challenger
        if not self._pool.ids:
            if "decide" not in old.known:
                return asks_for((old,), view.holdout, 1, "decide")
            self._pool.add(old.id, old.known["decide"], view.holdout)
        if self._open != new.id:
            self._open, self._batch = new.id, self._next_batch(view.train)
        if "screen" not in old.known:
            return (self._fresh(old.id),)
        before = _scores(old.known["screen"])
        if len(before) == self.size and all(score >= 1.0 for score in before.values()):
            return Verdict("discard", "nothing to improve on: the minibatch is perfect")
        if "screen" not in new.known:
            return (self._fresh(new.id),)
        if sum(_scores(new.known["screen"]).values()) <= sum(before.values()):
            return Verdict("discard", "not better on the minibatch")
        if "decide" not in new.known:
            return asks_for((new,), view.holdout, 1, "decide")
        best = self._pool.add(new.id, new.known["decide"], view.holdout)
        return Verdict("keep", "better on the minibatch", best=best)

    def _next_batch(self, train: tuple[str, ...]) -> tuple[str, ...]:
        """The next cases of a shuffled pass over train."""
        if len(self._left) < self.size:
            self._left = Random(mixed(self.seed, 2, self._turn)).sample(train, len(train))
        batch, self._left = self._left[: self.size], self._left[self.size :]
        self._turn += 1
        return tuple(batch)

    def _fresh(self, one: str) -> Ask:
        """The minibatch, drawn anew: a repeat that this candidate has not had."""
        repeat = self._uses.get(one, 0)
        self._uses[one] = repeat + 1
        return Ask(one, tuple(Pair(case, repeat) for case in self._batch), "screen")


def _scores(evaluation: Evaluation) -> dict[str, float]:
    """By case; what is missing is left out."""
    return {case: -tally.mean for case, tally in evaluation.cases.items()}
