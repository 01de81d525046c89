"""Search over numbers and choices of config files: random first, then Optuna's TPE.

It sees losses on train cases only, never on deciding cases (docs/decisions/0008). No point is
tried twice, and the brief seeds every draw: run seed, phase and step.

Each phase has its own study. It starts from the incumbent of that time and sees only its own
steps, because texts beside the numbers may have changed since. Points are read from closed steps.
Pure.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import sqrt
from typing import TYPE_CHECKING

from kept.core.artifact import NoSpan, Value
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.edit import SetValue, Write
from kept.core.objective import Objective
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, ClosedStep, Proposal, ProposerReply, Skip
from kept.core.rollout import Pair
from kept.core.schedules.coordinate import cycle_of
from kept.core.score import Outcome, check_constraints, summarize
from kept.proposers.numeric.space import Axis, Point, Space
from kept.spec.locate.tree import read_value

if TYPE_CHECKING:
    from kept.proposers.numeric.tpe import Estimator, Told


UNTRIED = ("stale", "indecisive")
"""Verdict codes that say nothing about a point, so that it may be tried again."""

SCREENED = ("judged", "near miss")
"""Verdict codes of candidates that ran, even if on train cases alone."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate with its known point."""

    point: Point
    candidate: str
    loss: float | None = None
    """Loss on the deciding cases; None if there is none, or the candidate failed."""
    train: float | None = None
    """Loss on the train cases, if the verdict came from them."""
    noise: float | None = None
    """Standard error of `train`, if measured more than once."""
    failed: bool = False
    """True if it failed by its own fault, or broke a constraint."""


@dataclass(frozen=True, slots=True)
class Past:
    """The closed steps of a brief, as one proposer sees them."""

    space: Space
    start: Point
    """Point of the seed."""
    name: str
    brief: Brief

    def tried(self) -> Iterator[tuple[ClosedStep, Point]]:
        """Yield steps and points that this proposer tried in this phase, oldest first."""
        for step in self.brief.history.of(self.name):
            if step.turn.phase == self.brief.turn.phase:
                point = self._own(step)
                if point is not None:
                    yield step, point

    def measured(self) -> Iterator[Measured]:
        """Yield the start of the phase, then every point tried since that has a result."""
        objective, implicit = self.brief.objective, is_implicit(self.brief.train)
        first = True
        for step, point in self.tried():
            numbers = step.verdict.numbers
            train = numbers.get("train")
            if first:
                first = False
                before = numbers.get("incumbent")
                loss = None if before is None else objective.loss({objective.metric: before})
                was = numbers.get("train_before", self._train_of(step.incumbent))
                yield Measured(self.began(), step.incumbent, loss, was)
            if step.candidate is not None:
                unknown = step.loss is None and train is None
                # with separate train cases, a constraint is checked on them, like the loss
                broke = step.verdict.code == "constraint" and (implicit or unknown)
                failed = broke or step.verdict.outcome == "crash"
                # a candidate dropped by the screen has no deciding loss, but a valid train loss
                dropped = not implicit and step.verdict.code in SCREENED
                if failed or dropped or not unknown:
                    spread = numbers.get("train_std")
                    noise = None if spread is None else spread / sqrt(numbers.get("repeats", 1.0))
                    yield Measured(point, step.candidate, step.loss, train, noise, failed)

    def began(self) -> Point:
        """Point of the incumbent when this proposer first tried something in this phase."""
        point = self.start
        first = next((step.step for step, _ in self.tried()), None)
        for step in self.brief.history:
            if step.step == first:
                break
            if step.verdict.outcome == "keep" and step.proposal is not None:
                point = self._moved(point, step.proposal)
        return point

    def seen(self, here: Point) -> set[Point]:
        """Points not to try again; earlier phases count too while no text has changed."""
        opened = (self.space.meant(proposal) for proposal in self.brief.open)
        points = {here, self.began(), *(p for p in opened if p is not None)}
        same = True
        for step in reversed(self.brief.history):
            if same or step.turn.phase == self.brief.turn.phase:
                point = self._own(step)
                points |= set() if point is None else {point}
            # a change kept from another proposer is more than numbers
            same = same and (step.verdict.outcome != "keep" or step.turn.proposer == self.name)
        return points | {self.start} if same else points

    def _own(self, step: ClosedStep) -> Point | None:
        if step.turn.proposer != self.name or step.verdict.code in UNTRIED:
            return None
        return self.space.meant(step.proposal)

    def _train_of(self, candidate: str) -> float | None:
        """Train loss of the incumbent, from the verdict that kept it."""
        for step in reversed(self.brief.history):
            if step.candidate == candidate and "train" in step.verdict.numbers:
                return step.verdict.numbers["train"]
        return None

    def _moved(self, point: Point, proposal: Proposal) -> Point:
        """Point of the texts after a proposal, from any proposer."""
        pairs = zip(self.space.axes, point, strict=True)
        return tuple(_value_after(axis, value, proposal) for axis, value in pairs)


def is_implicit(train: tuple[Case, ...]) -> bool:
    """True if a run has no cases of its own: its one case is train and deciding case."""
    return train == (IMPLICIT_CASE,)


def _value_after(axis: Axis, value: Value, proposal: Proposal) -> Value:
    for edit in proposal.edits:
        if isinstance(edit, SetValue) and (edit.path, edit.key) == (axis.file, axis.path):
            value = edit.value
        elif isinstance(edit, Write) and edit.path == axis.file:
            written = read_value(axis.file, edit.text, axis.path)
            value = value if isinstance(written, NoSpan) else written
    return value


STARTUP = 5
"""Number of random points before the estimator is used."""

DRAWS = 4
"""Samples from the estimator before another way is used to find a new point."""

TRIES = 1000
"""Random samples before a continuous space counts as used up for now."""

MANY = 10_000
"""Largest number of points that is still enumerated."""


@dataclass(slots=True, eq=False)
class Numeric:
    """Implements `kept.core.ports.Proposer`. Its state is a cache of what the journal holds."""

    space: Space
    start: Point
    """Point of the seed."""
    name: str = "numeric"
    startup: int = STARTUP
    train_sample: int | None = None
    """Number of train cases that a point is measured on; None for all."""
    eps: float | None = None
    """Smallest expected gain worth another trial in a phase; None for no limit."""
    serial: bool = True
    _losses: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """Train losses by candidate, if fully known; None for a failed candidate."""
    _estimator: "Estimator | None" = None

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose the next point, or request the rollouts needed to choose it."""
        here = self.space.read(brief.incumbent.texts)
        if isinstance(here, NoSpan):
            return Skip(f"the values to tune are not all there: {here.detail}")
        past = Past(self.space, self.start, self.name, brief)
        measured = list(past.measured())
        told: Sequence[Told] = ()
        about: dict[str, object] = {}
        # a run without phases has no separate studies
        if cycle := cycle_of(brief.turn.phase):
            about = {"kind": "numeric", "numeric_study_id": f"numeric-phase-{cycle}"}
        # TPE needs enough points; before that, points are random
        if len(measured) >= self.startup:
            answer = self._told(measured, brief)
            if isinstance(answer, Ask):
                return answer
            told = answer
            about |= self._foreseen(told, here, brief.seed)
            gain = about.get("expected_gain")
            if self.eps is not None and isinstance(gain, float) and gain < self.eps:
                words = f"converged: the best expected gain is {gain:.3g}, below {self.eps:g}"
                return Skip(words, ends="converged", about=about)
        point = self._choose(told, past.seen(here), brief.seed)
        if point is None:
            return self._used_up(brief)
        if about:
            values = zip(self.space.axes, point, strict=True)
            params = {axis.path: value for axis, value in values}
            about |= {"params": params, **self._explained(told, point)}
            about |= {"observations": len(measured)}
        return Proposal(self.space.edits(point), why=self.space.words(point, here), about=about)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Number of train rollouts per candidate that it learns from."""
        return 0 if is_implicit(train) else len(self._pairs(train))

    def _used_up(self, brief: Brief) -> Skip:
        size = self.space.size
        # an open proposal may go stale, and then its point may be tried again
        over = size is not None and not any(self.space.meant(p) for p in brief.open)
        words = f"all {size or TRIES} points drawn were tried before"
        # between the phases of a cycle texts change, and with them the results of points
        if over and cycle_of(brief.turn.phase):
            return Skip(words, ends="exhausted")
        return Skip(words, exhausted=over)

    def _foreseen(self, told: "Sequence[Told]", here: Point, seed: int) -> dict[str, object]:
        """Expected gain of another point; empty if no limit (`eps`) is set."""
        if self.eps is None:
            return {}
        from kept.proposers.numeric.expected_gain import NAME, expected_gain

        return {"surrogate": NAME, "expected_gain": expected_gain(self.space, told, here, seed)}

    def _explained(self, told: "Sequence[Told]", point: Point) -> dict[str, object]:
        """Densities behind the choice of this point; all None in warm-up."""
        shown = self._estimator.explain(told, point) if self._estimator and told else None
        return {
            "tpe_quantile": shown.quantile if shown else None,
            "candidates_evaluated": shown.candidates if shown else None,
            "selected_candidate_score": shown.score if shown else None,
            "axis_marginals": shown.marginals if shown else None,
        }

    def _told(self, measured: Iterable[Measured], brief: Brief) -> "list[Told] | Ask":
        """Points with losses for the estimator, or a request for the missing rollouts."""
        from kept.proposers.numeric.tpe import Told

        answers = {answer.ask.candidate: answer.outcomes for answer in brief.answers}
        told: list[Told] = []
        for row in measured:
            loss = row.loss if row.train is None else row.train
            if not (row.failed or row.train is not None or is_implicit(brief.train)):
                if row.candidate not in self._losses and row.candidate not in answers:
                    return Ask(row.candidate, self._pairs(brief.train), "feedback")
                loss = self._train_loss(row.candidate, answers.get(row.candidate), brief.objective)
            if row.failed or loss is None:
                # use the worst known loss: bad enough to be avoided, and on this scale
                worst = brief.objective.worst_loss
                loss = max((old.loss for old in told), default=None) if worst is None else worst
            if loss is not None:
                told.append(Told(row.point, loss, row.noise))
        return told

    def _train_loss(
        self, candidate: str, outcomes: Mapping[Pair, Outcome] | None, objective: Objective
    ) -> float | None:
        """Train loss from rollouts; None if the candidate failed there."""
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
        # the same sample throughout the run; not the first ones, as files are often sorted
        chosen = sorted(random.Random(0).sample(range(len(train)), size))
        return tuple(Pair(train[at].id, 0) for at in chosen)

    def _choose(self, told: "Sequence[Told]", seen: set[Point], seed: int) -> Point | None:
        """Choose a new point: the estimator's, else the nearest one, else a random one."""
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
        from kept.proposers.numeric.tpe import Estimator

        if self._estimator is None:
            self._estimator = Estimator(self.space, self.startup)
        return self._estimator.draw(told, seed)


def _forever(space: Space, chance: random.Random) -> Iterator[Point]:
    while True:
        yield space.draw(chance)
