"""Environment base class, its config, its seed skills, and the roles of trace items.

Derive from `Environment` and define `name`, `read`, `pose` and `grade`; the rest has defaults.
The constructor arguments are the options that a config may set in `env`. Each built-in
environment has a seed skill, one Markdown file.

The trace of a rollout, which analysts see, consists of these items, in order:

* `system`: the system prompt of the student, the skill in it. At most one, the first.
* `user`: the student's input: the first is the prompt of the case, later ones are further
  turns of a conversation.
* `assistant`: its reply; `data["tool_calls"]` are the tool calls that it requested.
* `tool`: one use of a tool: `data["name"]`, `data["arguments"]`, and the text that came back.
  An action of an agent CLI is one, too: `data["command"]` is the action, the text its result.
  Its steps are numbered by `data["step"]`.
* `step`: one step of a simulator: `data["step"]` is its number from 1, `data["action"]` the
  action, `data["reasoning"]` the thought before it; the text is the simulator's answer.
* `info`: what was cut, and the cost of an agent CLI; `data["summary"]` sums its trace up.
* `failure`: why the student has no answer, where that is its own fault.
* `verification`: the scorer's comment on the outcome. It may hold the expected answer
  (`data["reference"]`), and so is shown only as far as the gold answers are.
* `session`: the verbatim output of an agent CLI (`data["raw"]`), and its packed state to
  continue from; never shown, only passed to `probe`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

from kept.core.case import Case, Cases
from kept.core.llm import Image, ModelRequest
from kept.core.ports import Runner, Scope, Scorer, Tool
from kept.core.rollout import NO_FILES, Failure, Job, Rollout, TraceItem
from kept.errors import Problem, SpecError
from kept.models.providers import ModelConfig

SKILL = "SKILL.md"
"""The artifact that every skill has; the others of a skill folder have their paths in it."""

HARD = "hard"
"""The metric that says how much of a case was solved; only 1, all of it, is a success."""

SOFT = "soft"
"""The metric that gives credit for parts, from 0 to 1."""

VERIFICATION = "verification"
SESSION = "session"
STEP = "step"


@dataclass(frozen=True, slots=True)
class About:
    """What an analyst is told of a case besides the trace of its rollout."""

    task: str
    type: str = ""
    reference: str = ""
    """What is expected; for the optimizer only where the config says so."""
    preview: str = ""
    """What the files of the case look like."""
    golds: tuple[str, ...] = ()
    """All answers that are right, each by itself: none may come into a skill. The lines of the
    reference, unless an environment says so."""

    def __post_init__(self) -> None:
        if not self.golds:
            lines = (line.strip() for line in self.reference.splitlines())
            object.__setattr__(self, "golds", tuple(line for line in lines if line))


class Probe(Protocol):
    """Makes the texts of a candidate that is rolled out with a diagnostic instruction."""

    def __call__(
        self,
        texts: Mapping[str, str],
        instruction: str,
        trace: Sequence[TraceItem] = (),
        after_step: int | None = None,
    ) -> Mapping[str, str]:
        """The texts of a candidate to be asked for with the purpose `probe`.

        Without a trace the case is run from its start with the instruction behind its prompt. With
        the trace of an earlier rollout of the same case and the number of a step, it goes on from
        behind that step: an agent CLI that can resumes its own session, all others are told again
        what was said and done up to there. Such a candidate is for one case, and is never judged.
        """
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """An environment, ready to be trained in."""

    name: str
    cases: Cases
    """`train`, `holdout` (the selection split) and `test`."""
    runner: Runner
    """Runs `candidate["SKILL.md"]`, with the further files of a skill folder, on a case."""
    scorer: Scorer
    """Gives the metrics `hard` and `soft`, from 0 to 1; its findings say why a case failed."""
    about: Callable[[Case], About]
    prompts: Mapping[str, str]
    """Prompts of the environment by name: analyst_error, analyst_success …"""
    skill: Mapping[str, str]
    """The initial skill: path to text; its first is SKILL.md."""
    probe: Probe
    materialise: Callable[[Path], Path | None]
    """Writes a split that was made by ratio, below the outputs of a run or where the config says;
    the folder, or None where the split was read."""
    pictures: Callable[[Case], Sequence[Image]] | None = None
    """Pictures of a case, for analysts that may see them."""
    scripts: object = None
    """The environment, where it can write the files of a standalone script
    (`kept.evaluators.environments.standalone`)."""
    judge: ModelConfig | None = None
    """The model that decides what the rules of the environment cannot."""
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """What holds for measuring as well, in words: a file that is no text and is not used, a key of
    another way, cases with a known defect."""
    inputs: Mapping[str, str] | None = None
    """Hashes of what the environment was made from, by name, for the plan."""


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


SplitMode = Literal["ratio", "split_dir"]

RATIO = (2, 1, 7)
SPLIT_SEED = 42

NO_SKILL = "none"
"""Said in place of the path of a skill."""


def _nowhere(key: str) -> str:
    return "the settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSettings:
    """The section `env` of a config, with the sizes that other sections give."""

    name: str
    """Of a built-in environment or an entry point, or `module:Class`."""
    folder: Path = field(default_factory=Path.cwd)
    """Where paths begin, and where `module:Class` is looked for."""
    split_mode: SplitMode = "ratio"
    data_path: str = ""
    split_dir: str = ""
    split_ratio: tuple[int, int, int] = RATIO
    """Train, selection, test."""
    split_seed: int = SPLIT_SEED
    split_output_dir: str = ""
    """Where a split by ratio is written; by default below the outputs of a run."""
    train_size: int = 0
    """As many cases as `train` must have; 0 for any."""
    sel_env_num: int = 0
    """The first so many of the selection split; 0 for all."""
    test_env_num: int = 0
    """The first so many of the test split; 0 for all."""
    limit: int = 0
    """The first so many cases of the data, or of each part of a split; 0 for all."""
    skill_init: str = ""
    """A file or a folder to begin with, or `none`; by default the environment's own."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """What only this environment knows."""
    keys: tuple[str, ...] = ()
    """What the section may have besides, for whoever misspelt one of them."""
    where: Callable[[str], str] = _nowhere
    """`file:line` of a key of the section."""

    def path(self, given: str) -> Path:
        """A path of the config."""
        return self.folder / Path(given).expanduser()

    @property
    def no_skill(self) -> bool:
        """True where the student is to work without any skill."""
        return self.skill_init == NO_SKILL and not self.path(NO_SKILL).exists()

    def problem(self, key: str, message: str, hint: str | None = None) -> Problem:
        """What is wrong with a key."""
        return Problem(self.where(key), f"env.{key}" if key else "env", message, hint)


def ratio_of(text: str) -> tuple[int, int, int]:
    """The three parts of a text like `2:1:7`; a `ValueError` says what is wrong with it."""
    parts = text.split(":")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"`{text}` is no ratio; write train:selection:test, as in 2:1:7")
    train, selection, test = (int(part) for part in parts)
    if not selection:
        raise ValueError(f"`{text}` leaves no case to decide by")
    if not train:
        raise ValueError(f"`{text}` leaves no case to learn from")
    return train, selection, test


MAX_FILES = 200
"""Files of a skill; a folder with more is no skill."""

CACHE = "__pycache__"
"""What running a script leaves beside it."""

_SKILLS = files("kept.evaluators.environments").joinpath("skills")


class Read(NamedTuple):
    """A skill of a user's."""

    texts: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Files of its folder that are no texts: pictures, documents to fill in."""


def initial(name: str) -> Mapping[str, str]:
    """The skill of a built-in environment."""
    return {SKILL: _SKILLS.joinpath(f"{name}.md").read_text(encoding="utf-8")}


def skill_at(path: Path, settings: EnvSettings) -> Read:
    """A skill of a user's: a file, or a folder with a SKILL.md."""
    if path.is_file():
        return Read({SKILL: _text(path, settings)})
    if not (path / SKILL).is_file():
        message = f"there is no skill in {path}" if path.is_dir() else f"there is no {path}"
        hint = f"give a file, or a folder with a {SKILL}"
        raise SpecError([settings.problem("skill_init", message, hint)])
    # what is hidden, or was left by a run of its scripts, is no part of a skill
    files_there = (
        one
        for one in path.rglob("*")
        if one.is_file()
        and not any(part.startswith(".") or part == CACHE for part in one.relative_to(path).parts)
    )
    found = sorted(files_there, key=lambda one: (one != path / SKILL, one))
    if len(found) > MAX_FILES:
        message = f"{path} has {len(found)} files, over {MAX_FILES}"
        raise SpecError([settings.problem("skill_init", message)])
    names = {one: one.relative_to(path).as_posix() for one in found}
    binary = [one for one in found[1:] if _is_binary(one)]
    texts = {names[one]: _text(one, settings) for one in found if one not in binary}
    return Read(texts, tuple(names[one] for one in binary))


def _is_binary(path: Path) -> bool:
    try:
        path.read_bytes().decode()
    except UnicodeDecodeError:
        return True
    except OSError:
        return False  # which is told by whoever reads it
    return False


def _text(path: Path, settings: EnvSettings) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        problem = settings.problem("skill_init", f"cannot read {path}: {why}")
        raise SpecError([problem]) from error
