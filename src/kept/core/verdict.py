"""What a gate is shown and what it may say.

A gate is a pure decision over tallies so far: a verdict, or the Asks it needs answered first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kept.core.objective import Objective
from kept.core.rollout import Purpose
from kept.core.score import Evaluation

VerdictKind = Literal["keep", "discard", "crash", "skip"]

VerdictCode = Literal[
    "judged",
    "no edits",
    "no change",
    "duplicate",
    "stale",
    "over limit",
    "guard",
    "constraint",
    "indecisive",
    "unscored",
    "proposer failed",
    "note",
    "nothing proposed",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a step, in words and numbers."""

    outcome: VerdictKind
    reason: str
    """One sentence a person can read."""
    code: VerdictCode = "judged"
    """Why, for machines."""
    best: bool = False
    """Whether `best/` moves to this candidate."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    private: str = ""
    """What failed on a deciding case, for people: no proposer gets to see it."""

    @property
    def words(self) -> str:
        """The reason with all that a person may know."""
        return f"{self.reason}: {self.private}" if self.private else self.reason


@dataclass(frozen=True, slots=True)
class Side:
    """One candidate of a comparison and what is known of it, by purpose."""

    id: str
    known: Mapping[Purpose, Evaluation] = field(default_factory=dict[Purpose, Evaluation])


@dataclass(frozen=True, slots=True)
class View:
    """What a gate may look at."""

    challenger: Side
    incumbent: Side
    best: Side
    train: tuple[str, ...]
    holdout: tuple[str, ...]
    objective: Objective
    simplifies: bool = False
