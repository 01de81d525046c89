"""The schedule of skill training: epochs of steps, and what is done at the end of each epoch.

Every step has a batch of train cases: an epoch goes through all of them once, in an order of its
own. How many edits a step may keep is told by a curve over all steps. All of it is a function of
the closed steps, so that a run that was cut goes on with the turn that was next.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, cos, pi
from typing import ClassVar, Literal, NamedTuple

from kept.core.budget import StopReason
from kept.core.proposal import ClosedStep, Turn
from kept.core.schedules.round_robin import CLAIM
from kept.core.state import State
from kept.core.text import count
from kept.core.turns import AGAIN, STEP, epoch_of

Curve = Literal["constant", "linear", "cosine", "autonomous"]

_WAIT = StopReason("iterations", "what is open has to end first")
"""With steps open this is no end: it is asked again when the next of them closes."""


class At(NamedTuple):
    """An epoch and a turn in it, both from 1."""

    epoch: int
    step: int
    """0 for what is done at the end of the epoch."""
    name: str = STEP

    @property
    def phase(self) -> str:
        """As turns spell it."""
        return f"e{self.epoch}/{self.name}"


def edit_cap(curve: Curve, most: int, least: int, step: int, total: int) -> int | None:
    """Most edits that a step may keep; steps count from 1; None for any number."""
    if curve == "autonomous":
        return None
    if total <= 1 or curve == "constant":
        return most
    t = min(step, total) / total
    if curve == "linear":
        return max(min(least, most), round(most + (least - most) * t))
    return max(min(least, most), round(least + 0.5 * (most - least) * (1 + cos(pi * t))))


def epoch_order(ids: Sequence[str], seed: int, epoch: int) -> list[str]:
    """All of them, in the order of one epoch: each id has its place by chance, but for good."""
    return sorted(
        ids,
        key=lambda one: hashlib.sha256(
            f"{seed}\0{epoch}\0{one}".encode("utf-8", "surrogatepass")
        ).digest(),
    )


def batches(ids: Sequence[str], at: At, size: int, parts: int, seed: int) -> list[list[str]]:
    """The cases of a step, by the parts that are looked at apart; no case twice in an epoch."""
    order = epoch_order(ids, seed, at.epoch)
    start = (at.step - 1) * size * parts
    mine = order[start : start + size * parts]
    return [mine[n : n + size] for n in range(0, len(mine), size)]


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """A proposer that has its turn when the steps of an epoch are done."""

    proposer: str
    first: int = 1
    """The epoch that it begins with: who compares epochs needs two of them."""
    races: bool = True
    """True if it may change the skill, and so shares the risk of error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """Implements `kept.core.ports.Schedule`."""

    cases: int
    """Number of train cases."""
    epochs: int
    batch: int
    accumulation: int = 1
    """Batches that make a step."""
    curve: Curve = "constant"
    max_edits: int = 8
    min_edits: int = 1
    proposer: str = STEP
    after: tuple[str, ...] = ()
    """Proposers that have a turn after every step, race in none, and may have what they propose
    taken as it is."""
    ends: tuple[EpochEnd, ...] = ()
    sealed: bool = False
    """True if there are test cases, and this schedule has to ask for the claim."""
    allows_pool: ClassVar[bool] = False

    @property
    def steps(self) -> int:
        """Steps of one epoch."""
        return max(1, ceil(self.cases / (self.batch * self.accumulation)))

    @property
    def total(self) -> int:
        """Steps of all epochs."""
        return self.epochs * self.steps

    def most_steps(self) -> int:
        """Most steps that it opens: each turn may be lost to an outage and given again."""
        return (1 + AGAIN) * sum(1 for _ in self._behind(None))

    def next(self, state: State) -> Turn | StopReason:
        """The turn behind the furthest one; before it, what an outage kept from its end."""
        last = self._furthest(state)
        lost = _lost(state)
        if lost is not None:
            if state.open and not self._may_overlap(last, self._at(lost)):
                return _WAIT
            return lost
        away = _away(state)
        if away is not None:
            return away
        at = None if last is None else self._at(last)
        for one in self._behind(at):
            if self._who(one) in state.exhausted:
                continue
            if state.open and not self._may_overlap(last, one):
                return _WAIT
            return self._turn(one, state)
        return StopReason("iterations", f"{count(self.epochs, 'epoch')} done, all that was asked")

    def last(self, state: State) -> Turn | None:
        """The claim, where nobody else sees to it; what was kept is the best."""
        if self.sealed and state.best not in (state.seed, state.claimed):
            return Turn(CLAIM, "claim", state.turns.get(CLAIM, 0), races=False)
        return None

    def _furthest(self, state: State) -> Turn | None:
        """The turn that no other comes behind; one that was given again is not the latest."""
        met = _of_last_epoch(state)
        if not met:
            return None
        order = {at: n for n, at in enumerate(self._epoch(epoch_of(met[0].phase)))}
        return max(met, key=lambda turn: order.get(self._at(turn), len(order)))

    def _at(self, turn: Turn) -> At:
        step = turn.settings["step"]
        assert isinstance(step, int), "as `_turn` wrote it"
        return At(epoch_of(turn.phase), step, turn.phase.partition("/")[2])

    def _behind(self, at: At | None) -> Iterator[At]:
        """All turns that come after one."""
        found = at is None
        first = 1 if at is None else at.epoch
        for epoch in range(first, self.epochs + 1):
            for one in self._epoch(epoch):
                if found:
                    yield one
                found = found or one == at

    def _epoch(self, epoch: int) -> Iterator[At]:
        for step in range(1, self.steps + 1):
            yield At(epoch, step)
            yield from (At(epoch, step, name) for name in self.after)
        yield from (At(epoch, 0, end.proposer) for end in self.ends if epoch >= end.first)

    def _may_overlap(self, last: Turn | None, one: At) -> bool:
        """True if a turn may begin while the latest is open: two steps of one epoch may."""
        both = last is not None and (self._at(last).name, one.name) == (STEP, STEP)
        return both and not self.after and last is not None and epoch_of(last.phase) == one.epoch

    def _who(self, at: At) -> str:
        return self.proposer if at.name == STEP else at.name

    def _turn(self, at: At, state: State) -> Turn:
        name = self._who(at)
        settings: dict[str, object] = {"epoch": at.epoch, "step": at.step}
        if at.name == STEP:
            number = (at.epoch - 1) * self.steps + at.step
            settings["number"] = number
            settings["max_edits"] = edit_cap(
                self.curve, self.max_edits, self.min_edits, number, self.total
            )
        number = state.turns.get(name, 0) - state.repeated.get(name, 0)
        quiet = {*self.after, *(end.proposer for end in self.ends if not end.races)}
        races, takes = name not in quiet, name in self.after
        return Turn(name, at.phase, number, settings, races=races, takes=takes)


def closed_in(closed: Sequence[ClosedStep], epoch: int) -> list[ClosedStep]:
    """The closed steps of an epoch that reflected on a batch, oldest first.

    Between them may be one of an earlier epoch, which an outage kept from its end.
    """
    mine = At(epoch, 0).phase
    return [step for step in closed if step.turn.phase == mine]


def _met(state: State) -> Iterator[Turn]:
    """The turns of epochs that were given, the newest first."""
    for steps in (reversed(state.open), reversed(state.history)):
        yield from (step.turn for step in steps if epoch_of(step.turn.phase))


def _of_last_epoch(state: State) -> list[Turn]:
    """The turns of the latest epoch that has any, the newest first."""
    found: list[Turn] = []
    latest = 0
    for turn in _met(state):
        epoch = epoch_of(turn.phase)
        if epoch > latest:
            found, latest = [], epoch
        if epoch == latest:
            found.append(turn)
        elif not state.repeated:
            break  # else it may be a turn of an earlier epoch that was given again
    return found


def _lost(state: State) -> Turn | None:
    """The oldest turn that is due once more, of whichever epoch."""
    waiting = {one[:2] for one in state.lost if one.due}
    if not waiting:
        return None
    found = [turn for turn in _met(state) if (turn.proposer, turn.number) in waiting]
    return found[-1] if found else None


def _away(state: State) -> StopReason | None:
    """Reason to begin no turn: the retry of one had no answer either.

    What comes behind it builds on it, and would have none as well. A run that is taken up again
    begins with it.
    """
    given_up = {one[:2] for one in state.lost if not one.open and not one.due}
    for step in reversed(state.history) if given_up else ():
        mine = (step.turn.proposer, step.turn.number)
        if mine not in given_up or not epoch_of(step.turn.phase):
            continue
        if step.verdict.code == "proposer failed":
            words = f"{AGAIN + 1} times, {step.verdict.reason}"
            return StopReason("error", words)
        given_up.discard(mine)  # it was proposed, and could not be measured
    return None
