"""What a numeric search knows of closed steps: which points were tried, and what they came to.

Pure. A phase has its own study: it begins where the incumbent stood then, and is told of its own
steps alone, because the texts beside the numbers may have changed since the phase before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt

from kept.core.case import IMPLICIT_CASE, Case
from kept.core.edit import SetValue, Write
from kept.core.proposal import Brief, ClosedStep, Proposal
from kept.core.values import NoSpan, Value
from kept.proposers.numeric.space import Axis, Point, Space
from kept.spec.locate.locate import read_value

UNTRIED = ("stale", "indecisive")
"""Verdicts that say nothing of a point, so that it may be tried again."""

SCREENED = ("judged", "near miss")
"""Verdicts on a candidate that ran, be it on train cases alone."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate whose point is known."""

    point: Point
    candidate: str
    loss: float | None = None
    """On the deciding cases; None where there is none, or the candidate failed."""
    train: float | None = None
    """On the train cases, where its verdict was made by them."""
    noise: float | None = None
    """The standard error of `train`, where it was measured more than once."""
    failed: bool = False
    """By its own fault, or it broke a constraint."""


@dataclass(frozen=True, slots=True)
class Past:
    """The closed steps of a brief, as one proposer sees them."""

    space: Space
    start: Point
    """Where the seed stands."""
    name: str
    brief: Brief

    def tried(self) -> Iterator[tuple[ClosedStep, Point]]:
        """What this proposer tried in this phase, oldest first."""
        for step in self.brief.closed:
            if step.turn.phase == self.brief.turn.phase:
                point = self._own(step)
                if point is not None:
                    yield step, point

    def measured(self) -> Iterator[Measured]:
        """Where the phase began, then everything that was tried since and came to something."""
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
                # with cases of its own, a constraint is looked at on train, as the loss is
                broke = step.verdict.code == "constraint" and (implicit or unknown)
                failed = broke or step.verdict.outcome == "crash"
                # what a screen dropped has no deciding loss, and a train loss like any other
                dropped = not implicit and step.verdict.code in SCREENED
                if failed or dropped or not unknown:
                    noise = _noise(numbers)
                    yield Measured(point, step.candidate, step.loss, train, noise, failed)

    def began(self) -> Point:
        """Where the incumbent stood when this proposer first tried something in this phase."""
        point = self.start
        first = next((step.step for step, _ in self.tried()), None)
        for step in self.brief.closed:
            if step.step == first:
                break
            if step.verdict.outcome == "keep" and step.proposal is not None:
                point = self._moved(point, step.proposal)
        return point

    def seen(self, here: Point) -> set[Point]:
        """Points that are not to be tried: also of earlier phases, while no text has changed."""
        opened = (self.space.meant(proposal) for proposal in self.brief.open)
        points = {here, self.began(), *(p for p in opened if p is not None)}
        same = True
        for step in reversed(self.brief.closed):
            if same or step.turn.phase == self.brief.turn.phase:
                point = self._own(step)
                points |= set() if point is None else {point}
            # whoever else was kept changed more than numbers
            same = same and (step.verdict.outcome != "keep" or step.turn.proposer == self.name)
        return points | {self.start} if same else points

    def _own(self, step: ClosedStep) -> Point | None:
        if step.turn.proposer != self.name or step.verdict.code in UNTRIED:
            return None
        return self.space.meant(step.proposal)

    def _train_of(self, candidate: str) -> float | None:
        """The train loss of what leads, from the verdict that it was kept by."""
        for step in reversed(self.brief.closed):
            if step.candidate == candidate and "train" in step.verdict.numbers:
                return step.verdict.numbers["train"]
        return None

    def _moved(self, point: Point, proposal: Proposal) -> Point:
        """The point at which texts stand after a proposal, whoever made it."""
        pairs = zip(self.space.axes, point, strict=True)
        return tuple(_value_after(axis, value, proposal) for axis, value in pairs)


def is_implicit(train: tuple[Case, ...]) -> bool:
    """Whether a run has no cases of its own: the one case feeds and decides."""
    return train == (IMPLICIT_CASE,)


def _noise(numbers: Mapping[str, float]) -> float | None:
    spread = numbers.get("train_std")
    return None if spread is None else spread / sqrt(numbers.get("repeats", 1.0))


def _value_after(axis: Axis, value: Value, proposal: Proposal) -> Value:
    for edit in proposal.edits:
        if isinstance(edit, SetValue) and (edit.path, edit.key) == (axis.file, axis.path):
            value = edit.value
        elif isinstance(edit, Write) and edit.path == axis.file:
            written = read_value(axis.file, edit.text, axis.path)
            value = value if isinstance(written, NoSpan) else written
    return value
