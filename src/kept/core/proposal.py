"""What a proposer is given and what it may answer.

A proposer is a function of its brief: it remembers nothing between calls. When it needs rollouts it
answers with an `Ask`, and is called again with the same brief and the answers added.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kept.core.artifact import Candidate, Rules
from kept.core.case import Case
from kept.core.edit import Edit, EditReport
from kept.core.grow import Log
from kept.core.labels import Labels
from kept.core.objective import Objective
from kept.core.pool import Pool
from kept.core.rollout import Failure, Pair, Purpose, TraceItem
from kept.core.score import Outcome
from kept.core.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Turn:
    """What the schedule wants the next step to be."""

    proposer: str
    phase: str = "main"
    number: int = 0
    """How many turns this proposer had before, in the whole run; or which of its texts is meant."""
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    races: bool = True
    """Whether the step may end in a keep by itself; else it can only become a near miss."""
    still: bool = False
    """Whether no repeat has told anything new so far: the evaluator seems to have no noise."""
    proves: bool = False
    """Whether a keep must hold for new cases at once: nothing leads, and this is the end."""
    passes: int | None = None
    """Over its cases, as many as a measurement at the end has money for; None for all it wants."""
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    """Of the turns, by proposer, where this one was drawn by what each has brought."""
    parent: int | None = None
    """The step of the near miss that is to be built on; None for the incumbent."""
    alone: bool = False
    """Whether it is judged before the next begins, which then has a level that it did not use."""
    takes: bool = False
    """Whether what is proposed may be taken as it is, without a comparison."""


class _Reply:
    """What all replies have in common at run time; the type checker sees the union `Reply`."""

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
    """What of the brief its author was not shown, for want of room; in words."""
    builds_on: tuple[int, ...] = ()
    """The step whose near miss its author was given to edit."""
    inherited: int = 0
    """Of the edits, so many of the first are that near miss's."""
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    """How it came about, for the record: a diagnosis, the densities of a point."""
    ungated: bool = False
    """Taken as it is, without a comparison; only in a turn that takes such."""
    kind: Literal["proposal"] = "proposal"


@dataclass(frozen=True, slots=True)
class Note(_Reply):
    """Memory for later briefs; changes no artifact."""

    text: str
    topic: str = ""
    about: Mapping[str, object] = field(default_factory=dict[str, object])
    """How it came about, for the record."""
    kind: Literal["note"] = "note"


USELESS = "of_no_use"
"""What the record of a step calls the one whose reply could not be used."""

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
    """How it came about, for the record."""
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
    """What an Ask of a proposer brought."""

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
    """What these cost, and the calls of the proposal."""
    skip: Skip | None = None
    """Where nothing was proposed: what was said instead."""


@dataclass(frozen=True, slots=True)
class Parent:
    """A near miss that is given to a proposer to build on."""

    step: ClosedStep
    incumbent: Candidate
    """What its edits were made for, and the proposal will be judged against."""


@dataclass(frozen=True, slots=True)
class Brief:
    """Everything a proposer may know.

    `incumbent` is the candidate to improve on (`.text`, or `["name"]` where it has several texts):
    what leads, or with a `parent` the near miss that is to be built on;
    `train` are the cases it may look at (`.id`, `.data`), `closed` the steps before this one with
    their proposals and verdicts, oldest first. `seed` is for random draws. `answers` hold what a
    proposer asked for by returning an `Ask`: outcomes, and traces with what `evaluate` returned as
    information. `memory` are notes that proposers took, `rules` what an edit may touch.
    """

    step: int
    turn: Turn
    seed: int
    """For random draws: fixed by the run's seed, the phase and the step."""
    incumbent: Candidate
    closed: Log[ClosedStep]
    """Oldest first."""
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
    """What somebody wrote for the proposer: `instruction`, `rubric`."""
    answers: tuple[Answer, ...] = ()
    labels: Labels = field(default_factory=Labels)
    """Where train cases have their expected output, to be shown beside what was got."""
    parent: Parent | None = None
    """What `incumbent` is, where it is a near miss; the proposal holds what is changed in that."""

    @property
    def ground(self) -> Candidate:
        """What the proposal will be judged against."""
        return self.incumbent if self.parent is None else self.parent.incumbent


ProposerReply = Proposal | Note | Skip | Prove | Claim | Measure | Ask | Failure


def proposal_scope(step: int) -> str:
    """The path under which the calls of a proposal are journalled."""
    return f"propose/{step}"


def derive_seed(run_seed: int, phase: str, step: int) -> int:
    """A seed of its own for every step, so that no two steps repeat the same draws."""
    digest = hashlib.sha256(f"{run_seed}\0{phase}\0{step}".encode()).digest()
    return int.from_bytes(digest[:6], "big")
