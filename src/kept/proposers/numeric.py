"""Search over the numbers and choices of config files: random at first, then by Optuna's TPE.

It is told losses on train cases, never on those that decide (docs/decisions/0008). No point is
tried twice, and every draw is seeded by the brief: run seed, phase and step.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TYPE_CHECKING

from kept.core.case import IMPLICIT_CASE, Case
from kept.core.objective import Objective
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, ClosedStep, Proposal, ProposerReply, Skip
from kept.core.rollout import Pair
from kept.core.score import Outcome, check_constraints, summarize
from kept.core.values import NoSpan
from kept.proposers.space import Point, Space

if TYPE_CHECKING:
    from kept.proposers.tpe import Estimator, Told

STARTUP = 5
"""Points that are drawn at random before the estimator has something to go by."""

DRAWS = 4
"""Draws of the estimator before another way is tried to find a point that is new."""

TRIES = 1000
"""Random draws before a space with no size counts as used up for now."""

MANY = 10_000
"""Points of a space that are still looked at one by one."""

_UNTRIED = ("stale", "indecisive")
"""Verdicts that say nothing of a point, so that it may be tried again."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """A candidate whose point is known."""

    point: Point
    candidate: str
    loss: float | None = None
    """On the deciding cases; None where there is none, or the candidate failed."""
    failed: bool = False
    """By its own fault, or it broke a constraint."""


@dataclass(slots=True, eq=False)
class Numeric:
    """Implements `kept.core.ports.Proposer`. What it holds are copies of what the journal knows."""

    space: Space
    start: Point
    """Where the seed stands."""
    name: str = "numeric"
    startup: int = STARTUP
    train_sample: int | None = None
    """Train cases that a point is measured on; None for all."""
    serial: bool = True
    _losses: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Train losses by candidate, of those that are fully known; None where it failed."""
    _estimator: "Estimator | None" = None

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """The next point, or the rollouts that must be known to choose it."""
        here = self.space.read(brief.incumbent.texts)
        if isinstance(here, NoSpan):
            return Skip(f"the values to tune are not all there: {here.detail}")
        measured = list(self._measured(brief))
        told: Sequence[Told] = ()
        if len(measured) >= self.startup:
            answer = self._told(measured, brief)
            if isinstance(answer, Ask):
                return answer
            told = answer
        seen = self._seen(brief, here)
        point = self._choose(told, seen, brief.seed)
        if point is None:
            size = self.space.size
            # an open one may yet go stale, and then its point is free again
            used_up = size is not None and not any(self.space.meant(p) for p in brief.open)
            return Skip(f"all {size or TRIES} points drawn were tried before", exhausted=used_up)
        return Proposal(self.space.edits(point), why=self.space.words(point, here))

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Rollouts of one candidate that it learns from, besides those that decide."""
        return 0 if _is_implicit(train) else len(self._pairs(train))

    def _steps(self, brief: Brief) -> Iterator[tuple[ClosedStep, Point]]:
        """What this proposer tried in this phase, oldest first."""
        for step in brief.closed:
            if step.turn.proposer == self.name and step.turn.phase == brief.turn.phase:
                point = self.space.meant(step.proposal)
                if point is not None and step.verdict.code not in _UNTRIED:
                    yield step, point

    def _measured(self, brief: Brief) -> Iterator[_Measured]:
        """Where the phase began, then everything that was tried since and came to something."""
        objective, implicit = brief.objective, _implicit(brief)
        first = True
        for step, point in self._steps(brief):
            if first:
                first = False
                before = step.verdict.numbers.get("incumbent")
                loss = None if before is None else objective.loss({objective.metric: before})
                yield _Measured(self._began(brief), step.incumbent, loss)
            if step.candidate is not None:
                # with cases of its own, a constraint is looked at on train, as the loss is
                broke = implicit and step.verdict.code == "constraint"
                failed = broke or step.verdict.outcome == "crash"
                if failed or step.loss is not None:
                    yield _Measured(point, step.candidate, step.loss, failed)

    def _began(self, brief: Brief) -> Point:
        """Where the incumbent stood when the phase began."""
        point = self.start
        for step in brief.closed:
            if step.turn.phase == brief.turn.phase:
                break
            if step.turn.proposer == self.name and step.verdict.outcome == "keep":
                point = self.space.meant(step.proposal) or point
        return point

    def _seen(self, brief: Brief, here: Point) -> set[Point]:
        tried = (point for _, point in self._steps(brief))
        opened = (self.space.meant(proposal) for proposal in brief.open)
        return {here, self._began(brief), *tried, *(p for p in opened if p is not None)}

    def _told(self, measured: Iterable[_Measured], brief: Brief) -> "list[Told] | Ask":
        """Points with losses for the estimator, or what must be rolled out to have them."""
        from kept.proposers.tpe import Told

        answers = {answer.ask.candidate: answer.outcomes for answer in brief.answers}
        told: list[Told] = []
        for row in measured:
            loss = row.loss
            if not (row.failed or _implicit(brief)):
                if row.candidate not in self._losses and row.candidate not in answers:
                    return Ask(row.candidate, self._pairs(brief.train), "feedback")
                loss = self._train_loss(row.candidate, answers.get(row.candidate), brief.objective)
            if row.failed or loss is None:
                # the worst that is known so far: bad enough to be avoided, and of this scale
                worst = brief.objective.worst_loss
                loss = max((old.loss for old in told), default=None) if worst is None else worst
            if loss is not None:
                told.append(Told(row.point, loss))
        return told

    def _train_loss(
        self, candidate: str, outcomes: Mapping[Pair, Outcome] | None, objective: Objective
    ) -> float | None:
        """The loss that rollouts brought; None when the candidate fails there."""
        if outcomes is None:
            return self._losses[candidate]
        found = summarize(candidate, "feedback", outcomes.items(), objective)
        holds = all(checked.holds for checked in check_constraints(found, objective))
        loss = found.loss if holds and not found.unscored else None
        if not found.missing:
            self._losses[candidate] = loss
        return loss

    def _pairs(self, train: tuple[Case, ...]) -> tuple[Pair, ...]:
        size = min(len(train), self.train_sample or len(train))
        # the same ones throughout the run, and not the first: files are often sorted
        chosen = sorted(random.Random(0).sample(range(len(train)), size))
        return tuple(Pair(train[at].id, 0) for at in chosen)

    def _choose(self, told: "Sequence[Told]", seen: set[Point], seed: int) -> Point | None:
        """A point that was not seen: the estimator's, or one near it, or any."""
        chance = random.Random(seed)
        draws = self._estimate(told, seed) if told else _forever(self.space, chance)
        first = next(draws)
        new = next((p for p in chain([first], islice(draws, DRAWS - 1)) if p not in seen), None)
        if new is not None:
            return new
        size = self.space.size
        if size is not None and size <= MANY:
            left = [point for point in self.space.all() if point not in seen]
            return min(left, key=lambda p: self.space.distance(p, first), default=None)
        others = islice(_forever(self.space, chance), TRIES)
        return next((point for point in others if point not in seen), None)

    def _estimate(self, told: "Sequence[Told]", seed: int) -> Iterator[Point]:
        from kept.proposers.tpe import Estimator

        if self._estimator is None:
            self._estimator = Estimator(self.space, self.startup)
        return self._estimator.draw(told, seed)


def _implicit(brief: Brief) -> bool:
    """Whether the run has no cases of its own: the one case feeds and decides."""
    return _is_implicit(brief.train)


def _is_implicit(train: tuple[Case, ...]) -> bool:
    return train == (IMPLICIT_CASE,)


def _forever(space: Space, chance: random.Random) -> Iterator[Point]:
    while True:
        yield space.draw(chance)
