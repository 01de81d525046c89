"""What an environment is: where cases come from, what is asked of a student, how it is graded.

Derive from `Environment` and say four things: `name`, `read`, `pose` and `grade`. What else there
is has a default. The arguments of the class are the options that a config may set in `env`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from kept.core.case import Case
from kept.core.model import Image
from kept.core.ports import Scorer, Tool
from kept.core.rollout import Failure, Rollout, TraceItem
from kept.envs.opened import SKILL, About


class Item(NamedTuple):
    """One case, and where it stands."""

    case: Case
    where: str
    """`file:line`."""


@dataclass(frozen=True, slots=True)
class Posed:
    """What a student is asked about a case; nothing in it may give the answer away."""

    prompt: str
    system: str = ""
    """What every case has in common; the skill is put behind it."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """What a student that works in a workspace finds there."""
    images: tuple[Image, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out, in words; for the trace."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What becomes of one thing that a student said."""

    text: str = ""
    """What it is told next; nothing where it is over."""
    over: bool = True
    item: TraceItem | None = None
    """How the trace tells of it, in place of what both said."""
    output: str | None = None
    """What the case came to, where that is not what the student said last."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """What was measured by the time it is over."""


@dataclass(frozen=True, slots=True)
class Graded:
    """How good the outcome of a case is."""

    hard: float
    """1 where the case is solved; less is not solved, however near it may be."""
    soft: float
    """With credit for parts, from 0 to 1."""
    why: str = ""
    """What is wrong, without what is expected; empty where nothing is."""
    told: str = ""
    """How it was looked at, for analysts, without what is expected."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further measures."""


class Episode(Protocol):
    """One case, being run. It must come out alike whenever the student says the same."""

    async def pose(self) -> Posed | Failure:
        """What the student is asked first."""
        ...

    async def answer(self, said: str) -> Turn | Failure:
        """What becomes of what it said."""
        ...

    async def close(self) -> None:
        """Let go of what was opened."""
        ...


_OVER = Turn()


@dataclass(slots=True)
class OneReply:
    """A case that is over with the first thing said."""

    posed: Posed

    async def pose(self) -> Posed | Failure:
        """What the student is asked."""
        return self.posed

    async def answer(self, said: str) -> Turn | Failure:
        """That was it."""
        return _OVER

    async def close(self) -> None:
        """Nothing was opened."""


@runtime_checkable
class Environment(Protocol):
    """Derive from it for the defaults, or implement all of it."""

    name: ClassVar[str]
    """As a config spells it."""
    simulates: ClassVar[bool] = False
    """Whether a case is played turn by turn, which an agent CLI cannot."""

    def read(self, path: Path) -> Iterable[Item]:
        """The cases of a file or a folder; what is wrong with it is a `SpecError`, all at once."""
        ...

    def pose(self, case: Case) -> Posed:
        """What a student is asked about a case."""
        ...

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """How good what it came to is; an answer that cannot be read is the candidate's failure."""
        ...

    def about(self, case: Case) -> About:
        """What an analyst is told of a case; `reference` is what is expected."""
        return About(self.pose(case).prompt)

    def begin(self, case: Case) -> Episode:
        """A case about to be run; a simulator has many turns."""
        return OneReply(self.pose(case))

    def turns(self) -> int:
        """How often a student is asked at most, tools apart."""
        return 1

    def tools(self, case: Case) -> Sequence[Tool]:
        """What a student may use."""
        return ()

    def scorer(self) -> Scorer | None:
        """A scorer of its own, where a look at the outcome will not do; else `grade` is asked."""
        return None

    def prompts(self) -> Mapping[str, str]:
        """Prompts of its own by name, as `analyst_error`; those of Kept stand for the rest."""
        return {}

    def skill(self) -> Mapping[str, str]:
        """The skill to begin with: path to text."""
        return {SKILL: ""}

    def needs(self) -> str:
        """What is missing for it to run here, in words; empty where nothing is."""
        return ""

    async def close(self) -> None:
        """Let go of what was opened for all cases."""
        return
