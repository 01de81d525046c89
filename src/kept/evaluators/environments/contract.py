"""What an environment is: where cases come from, what is asked of a student, how it is graded.

Derive from `Environment` and say four things: `name`, `read`, `pose` and `grade`. What else there
is has a default. The arguments of the class are the options that a config may set in `env`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from kept.core.case import Case, Cases
from kept.core.model import Image, ModelRequest
from kept.core.ports import Scope, Scorer, Tool
from kept.core.rollout import NO_FILES, Failure, Job, Rollout, TraceItem
from kept.evaluators.environments.opened import SKILL, About

MAX_REPLIES = 30
"""Replies of a model that wants tools used, before it has to answer."""

EXEC_SECONDS = 600.0
"""For one execution of an agent CLI, after which it is the student's failure."""


class Item(NamedTuple):
    """One case and its place in the data."""

    case: Case
    where: str
    """`file:line`."""


class Defect(NamedTuple):
    """A case that measures nothing, or not what it seems to."""

    case_id: str
    why: str
    """In words that are the same for all such cases: one warning names all of them."""
    left_out: bool = False
    """True for a case that is not used; else it is used all the same."""


@dataclass(frozen=True, slots=True)
class Posed:
    """What a student is asked about a case; nothing in it may give the answer away."""

    prompt: str
    system: str = ""
    """What every case has in common; the skill is put behind it."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """What a student that works in a workspace finds there."""
    images: tuple[Image, ...] = ()
    """Pictures; `Posed.of` gives each its place in the prompt."""
    notes: tuple[str, ...] = ()
    """What was left out, in words; for the trace."""

    @classmethod
    def of(cls, parts: Iterable[str | Image], system: str = "") -> "Posed":
        """A prompt of texts and pictures in order."""
        text = ""
        images: list[Image] = []
        for part in parts:
            if isinstance(part, str):
                text += part
            else:
                images.append(replace(part, at=len(text)))
        return cls(text, system, images=tuple(images))


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
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that the case ended with; `grade` finds them in `rollout.files`."""


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


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """A grade that a model has to decide."""

    request: ModelRequest
    """The question to the judge; `judge_max_completion_tokens` sets its length limit."""
    read: Callable[[str], Graded | Failure]
    """The grade that a reply of the judge means; a reply without a verdict is no success."""
    fallback: Graded | Failure
    """The grade where the config has no judge."""


class Episode(Protocol):
    """One case, being run. It must come out alike whenever the student says the same."""

    async def pose(self) -> Posed | Failure:
        """The first question to the student."""
        ...

    def tools(self) -> Sequence[Tool]:
        """Tools of this run of the case, which may keep state; asked for once, after `pose`."""
        return ()

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """What becomes of an answer; `files` are what an agent CLI made or changed."""
        ...

    async def close(self) -> None:
        """Let go of what was opened."""
        ...


@dataclass(slots=True)
class OneReply(Episode):
    """A case that is over with the first thing said."""

    posed: Posed

    async def pose(self) -> Posed | Failure:
        """The question."""
        return self.posed

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """End the case with the answer, and with the files that an agent CLI left."""
        return Turn(files=files)

    async def close(self) -> None:
        """Nothing was opened."""


class LookAgain(OneReply):
    """A case with second thoughts: all that was said before stays said."""

    def __init__(self, posed: Posed, turns: int, words: str) -> None:
        """`turns` replies in all; `words` ask for each further one."""
        super().__init__(posed)
        self._left = turns
        self._words = words

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Ask to look again, as long as there are turns."""
        self._left -= 1
        return Turn(self._words, over=False, files=files) if self._left else Turn(files=files)


@runtime_checkable
class Environment(Protocol):
    """Derive from it for the defaults, or implement all of it."""

    name: ClassVar[str]
    """As a config spells it."""
    simulates: ClassVar[bool] = False
    """Whether a case is played turn by turn, which an agent CLI cannot."""
    played: ClassVar[str] = "is played turn by turn"
    """How, for the error that an agent CLI as student is."""
    strata: ClassVar[str] = ""
    """The field of a case of which every part of a split by ratio gets its share."""
    data: ClassVar[str] = ""
    """What to get, in which format and where it goes: the hint of an error for missing data."""

    def read(self, path: Path) -> Iterable[Item]:
        """The cases of a file or a folder; what is wrong with it is a `SpecError`, all at once."""
        ...

    def split(self, cases: Sequence[Case], ratio: Sequence[int], seed: int) -> Cases | None:
        """The split by ratio, where an environment has a rule of its own for it."""
        return None

    def twin(self, case: Case) -> str:
        """A name that cases share where one gives another away; empty for a case without twins.

        Twins share a split, as copies do.
        """
        return ""

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Cases with a known defect: solved without any work, or never to be solved."""
        return ()

    def pose(self, case: Case) -> Posed:
        """The question to a student about a case; a `SetupError` where its data is gone."""
        ...

    def grade(self, case: Case, rollout: Rollout) -> Graded | JudgeQuestion | Failure:
        """How good what it came to is; an answer that cannot be read is the candidate's failure."""
        ...

    def about(self, case: Case) -> About:
        """What an analyst is told of a case; `reference` is what is expected."""
        return About(self.pose(case).prompt)

    def pictures(self, case: Case) -> Sequence[Image]:
        """Pictures that an analyst is shown where the config allows it."""
        return self.pose(case).images

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """A case about to be run; a simulator has many turns.

        `job` says for which purpose and which repeat; calls and programs of the episode are
        journalled in `scope`.
        """
        return OneReply(self.pose(case))

    def turns(self) -> int:
        """How often a student is asked at most, tools apart."""
        return 1

    def replies(self) -> int:
        """Replies to one question, at most, in which a student uses tools."""
        return MAX_REPLIES

    def most_usd(self) -> float | None:
        """Cost of the replies to one question from which on none is asked for; None for any."""
        return None

    def exec_seconds(self) -> float:
        """Time for one execution of an agent CLI, in seconds."""
        return EXEC_SECONDS

    def tools(self, case: Case) -> Sequence[Tool]:
        """Tools of a case that keep nothing between uses; others belong to its episode."""
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


@dataclass(frozen=True, kw_only=True)
class Options(Environment):
    """Base of classes with options of several environments, each of which checks its own."""

    def __post_init__(self) -> None:
        """Nothing is left to be checked."""


@dataclass(frozen=True, kw_only=True)
class TurnOptions(Options):
    """The option of an environment that gives a student more than one turn."""

    max_turns: int = 1
    """Replies of a student: with more than one it is asked to look again."""

    again: ClassVar[str] = ""
    """Words that ask it to."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_turns < 1:
            raise ValueError("`max_turns` is less than 1")

    def turns(self) -> int:
        """As the config says."""
        return self.max_turns

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """One reply, or some second thoughts."""
        return LookAgain(self.pose(case), self.max_turns, self.again)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(Options):
    """The options of an environment whose `grade` may ask a model."""

    judge_model: str | dict[str, Any] = ""
    """`provider/model`, a block, or a name at the teacher's provider; by default the teacher.
    `none` is for no judge."""
    judge_max_completion_tokens: int = 256
    """Length of a verdict."""
    judge_retries: int = 5
    """Times that a question is sent at most while its provider fails."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("judge_max_completion_tokens", "judge_retries"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is less than 1")
