"""Proposer interface (brief, `Ask`, proposal), and the pool of promising proposals.

A proposer is a function of its brief and remembers nothing between calls. When it needs rollouts
it returns an `Ask`, and is called again with the same brief plus the answers. Gates ask in the
same way; answers to one dialogue accumulate Ask by Ask.

The pool holds near misses: proposals that look good but are too small to be proven one by one.
Together they may be large enough, and a large gain is cheap to prove. The pool records their
steps and estimated gains, in standard deviations of one rollout.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, overload

from kept.core.artifact import Candidate, Rules
from kept.core.case import Case, Labels
from kept.core.containers import Log
from kept.core.edit import Edit, EditReport
from kept.core.objective import Objective
from kept.core.rollout import Failure, Pair, Purpose, TraceItem
from kept.core.score import Outcome
from kept.core.verdict import Verdict

S = TypeVar("S")

MERGE = "merge"
"""The proposer that puts the pool together."""


MORE = 0.05
"""By which what builds on another must be better, in standard deviations of one draw: what that is
worth carries it through the screen, and half of what adds nothing would look better by chance."""


class NearMiss(NamedTuple):
    """A step whose proposal is worth a race together with others."""

    step: int
    estimate: float
    losses: tuple[tuple[str, float], ...] = ()
    """Its mean loss on each train case that it was screened on."""
    alone: bool = False
    """True if it is raced by itself, because it came to nothing together with others."""


Pool = tuple[NearMiss, ...]


def strongest(pool: Pool) -> dict[str, NearMiss]:
    """Of every train case, the near miss that does best on it, the earliest of equals."""
    found: dict[str, tuple[float, NearMiss]] = {}
    for miss in pool:
        for case, loss in miss.losses:
            if case not in found or loss < found[case][0]:
                found[case] = (loss, miss)
    return {case: miss for case, (_, miss) in found.items()}


def joined(pool: Pool, miss: NearMiss, parent: tuple[int, float] | None) -> Pool:
    """The pool with one more; of what builds on another step, with that step's estimate.

    The better one takes the place of what it builds on, of which it has all edits; one that is no
    better is left out. Where what it builds on is with another by now, its own part counts.
    """
    if parent is None:
        return (*pool, miss)
    step, estimate = parent
    more = miss.estimate - estimate
    if more < MORE:
        return pool
    before = next((one.estimate for one in pool if one.step == step), 0.0)
    others = tuple(one for one in pool if one.step != step)
    return (*others, miss._replace(estimate=before + more))


def ripe(pool: Pool, goal: float, most: int) -> bool:
    """True if the pool is worth a race: enough in sum, enough of them, or one by itself."""
    return (
        any(miss.alone for miss in pool)
        or sum(miss.estimate for miss in pool) >= goal
        or len(pool) >= most
    )


def raced(pool: Pool, members: tuple[int, ...], kept: bool, gain: float) -> Pool:
    """The pool after some of it were raced as one.

    Where they fell short of proof and yet gained, the better half gets another chance. Where they
    did not gain, one may undo the other: the best of them is tried alone.
    """
    mine = [miss for miss in pool if miss.step in members]
    others = tuple(miss for miss in pool if miss.step not in members)
    if kept or len(mine) < 2:
        return others
    mine.sort(key=lambda miss: (-miss.estimate, miss.step))
    if gain <= 0:
        return (*others, mine[0]._replace(alone=True))
    return (*others, *mine[: len(mine) // 2])


@dataclass(frozen=True, slots=True)
class Turn:
    """The next step, as the schedule wants it."""

    proposer: str
    phase: str = "main"
    number: int = 0
    """Turns that this proposer had before, in the whole run; or the number of its text."""
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    races: bool = True
    """True if the step may end in a keep by itself; else it can only become a near miss."""
    still: bool = False
    """True if repeats have always agreed so far: the evaluator seems to have no noise."""
    proves: bool = False
    """True if a keep must hold for new cases at once: nothing leads, and this is the end."""
    passes: int | None = None
    """Over its cases, as many as a measurement at the end has money for; None for all it wants."""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the turns, by proposer, where this one was drawn by what each has brought."""
    parent: int | None = None
    """The step of the near miss that is to be built on; None for the incumbent."""
    alone: bool = False
    """True if it is judged before the next begins, which may reuse its unused level."""
    takes: bool = False
    """True if a proposal may be taken without a comparison."""

    def setting(self, name: str, kind: type[S]) -> S | None:
        """A setting of this type; None where there is none."""
        value = self.settings.get(name)
        return value if isinstance(value, kind) else None


class _Reply:
    """Base class of replies at run time; the type checker sees the union `Reply`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Proposal(_Reply):
    """Edits, and why."""

    edits: tuple[Edit, ...]
    why: str = ""
    cites: tuple[str, ...] = ()
    """Train cases that the edits mean to fix."""
    simplifies: bool = False
    """The point of the edits is less text at no loss."""
    merges: tuple[int, ...] = ()
    """Steps whose proposals it puts together."""
    unseen: str = ""
    """Parts of the brief that its author was not shown, for want of room; in words."""
    builds_on: tuple[int, ...] = ()
    """The step whose near miss its author was given to edit."""
    inherited: int = 0
    """Of the edits, so many of the first are that near miss's."""
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    """Details for the record: a diagnosis, the densities of a point."""
    ungated: bool = False
    """Taken as it is, without a comparison; only in a turn that takes such."""
    kind: Literal["proposal"] = "proposal"


@dataclass(frozen=True, slots=True)
class Note(_Reply):
    """Memory for later briefs; changes no artifact."""

    text: str
    topic: str = ""
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    """Details for the record."""
    kind: Literal["note"] = "note"


USELESS = "of_no_use"
"""Key in the record of a step for an author whose reply could not be used."""

DROPPED_CITATIONS = "citations_dropped"
"""Of a critic's diagnosis: how many of its citations name cases that do not exist."""


@dataclass(frozen=True, slots=True)
class Skip(_Reply):
    """Nothing to propose this time."""

    why: str
    exhausted: bool = False
    """Nor at any later time: this proposer has no more to give."""
    ends: str = ""
    """Nor in this phase: in a word, why it is over; empty while it is not."""
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    """Details for the record."""
    kind: Literal["skip"] = "skip"


@dataclass(frozen=True, slots=True)
class ProposerFailed(_Reply):
    """The proposer itself did not work."""

    failure: Failure
    kind: Literal["failed"] = "failed"


@dataclass(frozen=True, slots=True)
class Prove(_Reply):
    """Have what leads proven, for cases that nobody has seen."""

    kind: Literal["prove"] = "prove"


@dataclass(frozen=True, slots=True)
class Claim(_Reply):
    """Have the gain of the best measured on the sealed test."""

    kind: Literal["claim"] = "claim"


@dataclass(frozen=True, slots=True)
class Measure(_Reply):
    """Have the seed measured, against nothing."""

    kind: Literal["measure"] = "measure"


# as in edit.py: the union for the checker, one class for the journal's reader
if TYPE_CHECKING:
    Reply = Proposal | Note | Skip | ProposerFailed | Prove | Claim | Measure
else:
    Reply = _Reply


@dataclass(frozen=True, slots=True)
class Ask:
    """Rollouts that are needed before an answer can be given."""

    candidate: str
    pairs: tuple[Pair, ...]
    purpose: Purpose
    made: Candidate | None = None
    """The candidate itself, where a proposer made it to look at: for a `probe`, never judged."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcomes and traces of an Ask of a proposer."""

    ask: Ask
    outcomes: Mapping[Pair, Outcome]
    traces: Mapping[Pair, tuple[TraceItem, ...]]


@dataclass(frozen=True, slots=True)
class ClosedStep:
    """A step that has its verdict."""

    step: int
    turn: Turn
    incumbent: str
    candidate: str | None
    proposal: Proposal | None
    reports: tuple[EditReport, ...]
    verdict: Verdict
    loss: float | None = None
    """Of its candidate on the deciding cases."""
    rollouts: int = 0
    """Of its candidate, for its verdict."""
    usd: float = 0.0
    """Cost of these and of the calls of the proposal."""
    skip: Skip | None = None
    """Reply of a proposer that had nothing to propose."""


class History(Sequence[ClosedStep]):
    """Closed steps of a run, oldest first; read-only.

    A step is found by its number: `history[n]` is step n. Iteration in both directions yields one
    step at a time. Versions share storage, so adding a step to the newest version costs O(1).
    """

    __slots__ = ("_by_proposer", "_steps")

    def __init__(self, steps: Iterable[ClosedStep] = ()) -> None:
        self._steps = Log(steps)
        places: dict[str, list[int]] = {}
        for place, step in enumerate(self._steps):
            places.setdefault(step.turn.proposer, []).append(place)
        self._by_proposer: Mapping[str, Log[int]] = {name: Log(own) for name, own in places.items()}

    def add(self, step: ClosedStep) -> "History":
        """The history with one more step at its end."""
        name = step.turn.proposer
        grown = History.__new__(History)
        grown._steps = self._steps.add(step)
        own = self._by_proposer.get(name, _NO_PLACES).add(len(self._steps))
        grown._by_proposer = {**self._by_proposer, name: own}
        return grown

    def last(self, n: int) -> list[ClosedStep]:
        """The newest `n` steps, oldest first; all of them if there are fewer."""
        return self._steps[max(0, len(self._steps) - n) :]

    def of(self, proposer: str) -> Sequence[ClosedStep]:
        """Steps of one proposer, oldest first; each is looked up when it is reached."""
        return _Selection(self._steps, self._by_proposer.get(proposer, _NO_PLACES))

    @overload
    def __getitem__(self, index: int) -> ClosedStep: ...
    @overload
    def __getitem__(self, index: slice) -> list[ClosedStep]: ...
    def __getitem__(self, index: int | slice) -> ClosedStep | list[ClosedStep]:
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[ClosedStep]:
        return iter(self._steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._steps == other._steps

    def __hash__(self) -> int:
        return hash(self._steps)

    def __repr__(self) -> str:
        return f"History({list(self)!r})"


class _Selection(Sequence[ClosedStep]):
    """Some steps of a history, by their places."""

    __slots__ = ("_places", "_steps")

    def __init__(self, steps: Sequence[ClosedStep], places: Sequence[int]) -> None:
        self._steps = steps
        self._places = places

    @overload
    def __getitem__(self, index: int) -> ClosedStep: ...
    @overload
    def __getitem__(self, index: slice) -> list[ClosedStep]: ...
    def __getitem__(self, index: int | slice) -> ClosedStep | list[ClosedStep]:
        if isinstance(index, slice):
            return [self._steps[place] for place in self._places[index]]
        return self._steps[self._places[index]]

    def __len__(self) -> int:
        return len(self._places)


_NO_PLACES = Log[int]()


@dataclass(frozen=True, slots=True)
class Parent:
    """A near miss that is given to a proposer to build on."""

    step: ClosedStep
    incumbent: Candidate
    """The incumbent that its edits were made for; the proposal will be judged against it."""


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything a proposer may know.

    `incumbent` is the candidate to improve on (`.text`, or `["name"]` where it has several texts):
    what leads, or with a `parent` the near miss that is to be built on;
    `train` are the cases it may look at (`.id`, `.data`), `history` the steps before this one with
    their proposals and verdicts, oldest first. `seed` is for random draws. `answers` hold what a
    proposer asked for by returning an `Ask`: outcomes, and traces with what `evaluate` returned as
    information. `memory` are notes that proposers took, `rules` what an edit may touch.
    """

    step: int
    turn: Turn
    seed: int
    """For random draws: fixed by the run's seed, the phase and the step."""
    incumbent: Candidate
    history: History
    open: Sequence[Proposal]
    """Proposals of earlier steps that are still being judged; only for proposers that are
    `serial`, because for others it would depend on timing."""
    train: tuple[Case, ...]
    memory: Sequence[Note]
    rules: Rules
    objective: Objective
    pool: Pool = ()
    """Near misses that wait to be put together."""
    guidance: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of the user for the proposer: `instruction`, `rubric`."""
    answers: tuple[Answer, ...] = ()
    labels: Labels = field(default_factory=Labels)
    """Fields in which train cases have their expected output, to show beside the actual one."""
    parent: Parent | None = None
    """Set if `incumbent` is a near miss; the proposal then holds changes to that."""

    @property
    def ground(self) -> Candidate:
        """The incumbent that the proposal will be judged against."""
        return self.incumbent if self.parent is None else self.parent.incumbent


ProposerReply = Proposal | Note | Skip | Prove | Claim | Measure | Ask | Failure


def proposal_scope(step: int) -> str:
    """The path under which the calls of a proposal are journalled."""
    return f"propose/{step}"


def derive_seed(run_seed: int, phase: str, step: int) -> int:
    """A seed of its own for every step, so that no two steps repeat the same draws."""
    digest = hashlib.sha256(f"{run_seed}\0{phase}\0{step}".encode()).digest()
    return int.from_bytes(digest[:6], "big")


Asked = dict[tuple[str, Purpose], tuple[Pair, ...]]
"""Pairs by candidate and purpose, in the order in which they were asked for."""


def note_asked(asked: Asked, asks: Iterable[Ask]) -> Asked:
    """Add Asks to what was asked before; the pairs among them that are new."""
    fresh: Asked = {}
    for ask in asks:
        key = (ask.candidate, ask.purpose)
        before = asked.get(key, ())
        more = tuple(dict.fromkeys(ask.pairs))
        if before:
            seen = set(before)
            more = tuple(pair for pair in more if pair not in seen)
        if more:
            asked[key] = before + more
            fresh[key] = fresh.get(key, ()) + more
    return fresh
