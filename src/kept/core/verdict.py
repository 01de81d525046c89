"""Input and output of a gate: the view, and the verdict.

A gate is a pure decision over tallies so far: a verdict, or the Asks it needs answered first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from kept.core.alpha import Ledger
from kept.core.objective import Objective
from kept.core.rollout import Pair, Purpose
from kept.core.score import Evaluation

VerdictKind = Literal["keep", "discard", "crash", "skip"]

VerdictCode = Literal[
    "judged",
    "no edits",
    "no change",
    "duplicate",
    "stale",
    "protected",
    "over limit",
    "guard",
    "constraint",
    "near miss",
    "promoted",
    "not promoted",
    "claim",
    "followed",
    "unaffordable",
    "indecisive",
    "unscored",
    "proposer failed",
    "note",
    "taken",
    "nothing proposed",
    "measured",
    "better",
    "not better",
    "worse",
    "cannot tell",
]

ANSWERS: tuple[VerdictCode, ...] = ("better", "not better", "worse", "cannot tell")
"""Codes of a comparison, which changes nothing: they say how a challenger stands to the seed."""

IDLE: tuple[VerdictCode, ...] = (
    "nothing proposed",
    "note",
    "promoted",
    "not promoted",
    "claim",
    "measured",
)
"""Codes of steps without a proposal: they are turns or measurements, and not attempts."""

FOLLOWED: VerdictCode = "followed"
"""The code of a step whose result is gone on from although it is no gain: it is not kept."""

NOTHING_NEW: tuple[VerdictCode, ...] = (
    "nothing proposed",
    "duplicate",
    "no edits",
    "no change",
    "protected",
)

UNMEASURED: tuple[VerdictCode, ...] = (
    *NOTHING_NEW,
    "note",
    "taken",
    "stale",
    "over limit",
    "guard",
    "proposer failed",
)
"""Codes of steps that no rollout was made for."""

UNDECIDED: tuple[VerdictCode, ...] = ("indecisive", "unaffordable")
"""Codes of steps that were begun, and of which nobody can tell."""


def gain_in(numbers: Mapping[str, float]) -> float | None:
    """By how much the numbers of a verdict say that it is better: at least on train cases."""
    return numbers.get("gain", numbers.get("screen_gain"))


def word_for(outcome: VerdictKind, code: VerdictCode) -> str:
    """Word for an outcome; a step that changes nothing has an answer instead."""
    return code if code in (*ANSWERS, "measured", FOLLOWED) else outcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a step, in words and numbers."""

    outcome: VerdictKind
    reason: str
    """One sentence a person can read."""
    code: VerdictCode = "judged"
    """Reason as a code."""
    best: bool = False
    """True if `best/` moves to this candidate."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    private: str = ""
    """Failure on a deciding case, for people only: no proposer sees it."""

    @property
    def idle(self) -> bool:
        """True if nothing was proposed: an exhausted proposer, or a note."""
        return self.code in IDLE

    @property
    def gain(self) -> float | None:
        """By how much it is better where that was measured: at least on train cases."""
        return gain_in(self.numbers)

    @property
    def word(self) -> str:
        """Word for the outcome."""
        return word_for(self.outcome, self.code)

    @property
    def words(self) -> str:
        """The reason with all that a person may know."""
        return f"{self.reason}: {self.private}" if self.private else self.reason


_NOTHING: Mapping[Purpose, Any] = MappingProxyType({})


class Side(NamedTuple):
    """One candidate of a comparison and what is known of it, by purpose; a tuple, as `View` is."""

    id: str
    known: Mapping[Purpose, Evaluation] = _NOTHING
    losses: Mapping[Purpose, Mapping[Pair, float]] = _NOTHING
    """Of every pair that has an answer; a candidate's own failure stands at the worst value."""
    ties: Mapping[Purpose, tuple[Mapping[Pair, float], ...]] = _NOTHING
    """Values of each tie-breaker on every pair that ran."""


class View(NamedTuple):
    """Input of a gate; a tuple, because one is made for every look of every step."""

    challenger: Side
    incumbent: Side
    best: Side
    train: tuple[str, ...]
    holdout: tuple[str, ...]
    objective: Objective
    simplifies: bool = False
    """True if it aims at less text at no loss; for a proof, if all that leads does."""
    shorter: bool = True
    """Of a proof of what is no more than that, whether it has less text than the best."""
    bars: tuple[Side, ...] = ()
    """Rivals of a simplification: the best, and what was kept as better since."""
    finalists: tuple[Side, ...] = ()
    """All who entered the final that the challenger is in, itself included."""
    cites: tuple[str, ...] = ()
    """Train cases that the proposal means to fix."""
    merged: int = 0
    """Of how many other steps it puts together what they proposed."""
    pools: bool = False
    """True if near misses are merged later, so that a promising one need not be tested alone."""
    still: bool = False
    """True if repeats have always agreed so far: then one rollout a case is enough."""
    proves: bool = False
    """True if a keep needs a proof for new cases at once: there will be no later proof."""
    passes: int | None = None
    """Over the cases of a proof or a claim, as many as can be paid; None for all it wants."""
    least: float | None = None
    """The lowest loss of any incumbent so far, on the deciding cases."""
    ledger: Ledger = Ledger()
    test: tuple[str, ...] = ()
    """Sealed: asked for by `claim` alone."""
