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
** `failure`: reason why the student has no answer, if that is its own fault.
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
"""Metric of how much of a case was solved; only 1, all of it, is a success."""

SOFT = "soft"
"""Metric with partial credit, from 0 to 1."""

VERIFICATION = "verification"
SESSION = "session"
STEP = "step"


@dataclass(frozen=True, slots=True)
class About:
    """Description of a case for analysts, besides the trace of its rollout."""

    task: str
    type: str = ""
    reference: str = ""
    """Expected answer; shown to the optimizer only if the config says so."""
    preview: str = ""
    """Preview of the files of the case."""
    golds: tuple[str, ...] = ()
    """All right answers, one by one: none may get into a skill. By default the lines of
    `reference`."""

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

        Without a trace the case runs from its start with the instruction after its prompt. With
        the trace of an earlier rollout of the same case and the number of a step, it continues
        after that step. An agent CLI resumes its own session if it can. All other students get
        what was said and done up to there. Such a candidate is for one case and never judged.
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
    """Writes a split by ratio below the outputs of a run, or to the folder of the config. Returns
    the folder; None if the split was read."""
    pictures: Callable[[Case], Sequence[Image]] | None = None
    """Pictures of a case, for analysts that may see them."""
    scripts: object = None
    """The environment, if it can write the files of a standalone script
    (`kept.evaluators.environments.standalone`)."""
    judge: ModelConfig | None = None
    """Judge model for what the rules of the environment cannot decide."""
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """Warnings that hold for a measurement as well: an unused file that is no text, a key of
    another way, cases with a known defect."""
    inputs: Mapping[str, str] | None = None
    """Hashes of what the environment was made from, by name, for the plan."""


MAX_REPLIES = 30
"""Maximum number of replies with tool calls before the model must answer."""

EXEC_SECONDS = 600.0
"""Time limit for one execution of an agent CLI; over it, the student has failed."""


class Item(NamedTuple):
    """One case and its place in the data."""

    case: Case
    where: str
    """`file:line`."""


class Defect(NamedTuple):
    """A case that measures nothing, or not what it seems to."""

    case_id: str
    why: str
    """Description, the same for all such cases: one warning lists them all."""
    left_out: bool = False
    """True if the case is not used; False if it is used all the same."""


@dataclass(frozen=True, slots=True)
class Posed:
    """Prompt of a case for the student; nothing in it may give the answer away."""

    prompt: str
    system: str = ""
    """System prompt that all cases share; the skill follows it."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files for a student that works in a workspace."""
    images: tuple[Image, ...] = ()
    """Pictures; `Posed.of` gives each its place in the prompt."""
    notes: tuple[str, ...] = ()
    """Notes on what was left out, for the trace."""

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
    """Environment's response to one reply of the student."""

    text: str = ""
    """Next message to the student; empty when the case is over."""
    over: bool = True
    item: TraceItem | None = None
    """Item for the trace, in place of both messages."""
    output: str | None = None
    """Output of the case, if it is not the last reply of the student."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Metrics of the case when it is over."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that the case ended with; `grade` finds them in `rollout.files`."""


@dataclass(frozen=True, slots=True)
class Graded:
    """Grade of the outcome of a case."""

    hard: float
    """1 if the case is solved; anything less is not solved."""
    soft: float
    """Score with partial credit, from 0 to 1."""
    why: str = ""
    """Reason for a low grade, without the expected answer; empty if nothing is wrong."""
    told: str = ""
    """Note for analysts on the grading, without the expected answer."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    """Further measures."""


@dataclass(frozen=True, slots=True)
class JudgeQuestion:
    """Question to a judge model whose reply decides the grade."""

    request: ModelRequest
    """The question to the judge; `judge_max_completion_tokens` sets its length limit."""
    read: Callable[[str], Graded | Failure]
    """Turns a reply of the judge into a grade; a reply without a verdict is no success."""
    fallback: Graded | Failure
    """Grade if the config has no judge."""


class Episode(Protocol):
    """One run of a case; the same replies of the student must give the same outcome."""

    async def pose(self) -> Posed | Failure:
        """The first question to the student."""
        ...

    def tools(self) -> Sequence[Tool]:
        """Tools of this run of the case, which may keep state; asked for once, after `pose`."""
        return ()

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Respond to a reply; `files` are those that an agent CLI made or changed."""
        ...

    async def close(self) -> None:
        """Close what was opened."""
        ...


@dataclass(slots=True)
class OneReply(Episode):
    """Episode that is over after the first reply."""

    posed: Posed

    async def pose(self) -> Posed | Failure:
        """The question."""
        return self.posed

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """End the case with the answer, and with the files that an agent CLI left."""
        return Turn(files=files)

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


class LookAgain(OneReply):
    """Episode that asks the student to look again; earlier messages stay."""

    def __init__(self, posed: Posed, turns: int, words: str) -> None:
        """Allow `turns` replies in all; `words` is the message that asks for each further one."""
        super().__init__(posed)
        self._left = turns
        self._words = words

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Ask the student to look again while turns are left."""
        self._left -= 1
        return Turn(self._words, over=False, files=files) if self._left else Turn(files=files)


@runtime_checkable
class Environment(Protocol):
    """Benchmark or dataset: derive from it for the defaults, or implement all of it."""

    name: ClassVar[str]
    """Name in a config."""
    simulates: ClassVar[bool] = False
    """True if a case is played turn by turn, which an agent CLI cannot do."""
    played: ClassVar[str] = "is played turn by turn"
    """Text for the error message if the student is an agent CLI."""
    strata: ClassVar[str] = ""
    """Field of a case to stratify a split by ratio by."""
    data: ClassVar[str] = ""
    """Source, format and place of the data; the hint of an error for missing data."""

    def read(self, path: Path) -> Iterable[Item]:
        """Read the cases of a file or folder; a `SpecError` lists all problems at once."""
        ...

    def split(self, cases: Sequence[Case], ratio: Sequence[int], seed: int) -> Cases | None:
        """Split by ratio by a rule of its own; None for the default rule."""
        return None

    def twin(self, case: Case) -> str:
        """Name shared by cases that give each other away; empty for a case without twins.

        Twins share a split, as copies do.
        """
        return ""

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Cases with a known defect: solved without any work, or never to be solved."""
        return ()

    def pose(self, case: Case) -> Posed:
        """Prompt of a case for the student; raises `SetupError` if its data is gone."""
        ...

    def grade(self, case: Case, rollout: Rollout) -> Graded | JudgeQuestion | Failure:
        """Grade the outcome; an answer that cannot be read is the candidate's failure."""
        ...

    def about(self, case: Case) -> About:
        """Description of a case for analysts; `reference` is the expected answer."""
        return About(self.pose(case).prompt)

    def pictures(self, case: Case) -> Sequence[Image]:
        """Pictures for analysts, shown if the config allows it."""
        return self.pose(case).images

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """Episode of a case; a simulator has many turns.

        `job` says for which purpose and which repeat; calls and programs of the episode are
        journalled in `scope`.
        """
        return OneReply(self.pose(case))

    def turns(self) -> int:
        """Maximum number of turns of a student, tool calls apart."""
        return 1

    def replies(self) -> int:
        """Maximum number of replies with tool calls to one question."""
        return MAX_REPLIES

    def most_usd(self) -> float | None:
        """Cost limit in USD of the replies to one question; None for no limit."""
        return None

    def exec_seconds(self) -> float:
        """Time for one execution of an agent CLI, in seconds."""
        return EXEC_SECONDS

    def tools(self, case: Case) -> Sequence[Tool]:
        """Stateless tools of a case; tools with state belong to its episode."""
        return ()

    def scorer(self) -> Scorer | None:
        """Scorer of its own, if the outcome alone is not enough; None to use `grade`."""
        return None

    def prompts(self) -> Mapping[str, str]:
        """Prompts of its own by name, as `analyst_error`; Kept's are used for the rest."""
        return {}

    def skill(self) -> Mapping[str, str]:
        """Initial skill: path to text."""
        return {SKILL: ""}

    def needs(self) -> str:
        """Text that says what is missing to run here; empty if nothing is."""
        return ""

    async def close(self) -> None:
        """Close what was opened for all cases."""
        return


@dataclass(frozen=True, kw_only=True)
class Options(Environment):
    """Base of option classes that environments share; each checks its own options."""

    def __post_init__(self) -> None:
        """End the chain of checks: there are no options here."""


@dataclass(frozen=True, kw_only=True)
class TurnOptions(Options):
    """Option of environments that give a student more than one turn."""

    max_turns: int = 1
    """Replies of a student; with more than one it is asked to look again."""

    again: ClassVar[str] = ""
    """Message that asks for it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_turns < 1:
            raise ValueError("`max_turns` is less than 1")

    def turns(self) -> int:
        """Return `max_turns`."""
        return self.max_turns

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """Return an episode of one reply, or of several with requests to look again."""
        return LookAgain(self.pose(case), self.max_turns, self.again)


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(Options):
    """Options of an environment whose `grade` may ask a judge model."""

    judge_model: str | dict[str, Any] = ""
    """`provider/model`, a block, or a model name at the teacher's provider; by default the
    teacher. `none` means no judge."""
    judge_max_completion_tokens: int = 256
    """Maximum length of a verdict, in tokens."""
    judge_retries: int = 5
    """Maximum number of attempts while the provider fails."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("judge_max_completion_tokens", "judge_retries"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is less than 1")


SplitMode = Literal["ratio", "split_dir"]

RATIO = (2, 1, 7)
SPLIT_SEED = 42

NO_SKILL = "none"
"""Value in place of the path of a skill."""


def _nowhere(key: str) -> str:
    return "the settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSettings:
    """Section `env` of a config, with the sizes that other sections give."""

    name: str
    """Name of a built-in environment or an entry point, or `module:Class`."""
    folder: Path = field(default_factory=Path.cwd)
    """Base folder of relative paths, and module path of `module:Class`."""
    split_mode: SplitMode = "ratio"
    data_path: str = ""
    split_dir: str = ""
    split_ratio: tuple[int, int, int] = RATIO
    """Train, selection, test."""
    split_seed: int = SPLIT_SEED
    split_output_dir: str = ""
    """Folder that a split by ratio is written to; by default below the outputs of a run."""
    train_size: int = 0
    """Required number of train cases; 0 for any."""
    sel_env_num: int = 0
    """Number of selection cases to use, from the first; 0 for all."""
    test_env_num: int = 0
    """Number of test cases to use, from the first; 0 for all."""
    limit: int = 0
    """Number of cases to use of the data, or of each part of a split; 0 for all."""
    skill_init: str = ""
    """File or folder of the initial skill, or `none`; by default the environment's own."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Options of this environment only."""
    keys: tuple[str, ...] = ()
    """Other keys of the section, for hints about misspelt ones."""
    where: Callable[[str], str] = _nowhere
    """`file:line` of a key of the section."""

    def path(self, given: str) -> Path:
        """Resolve a path of the config."""
        return self.folder / Path(given).expanduser()

    @property
    def no_skill(self) -> bool:
        """True if the student works without any skill."""
        return self.skill_init == NO_SKILL and not self.path(NO_SKILL).exists()

    def problem(self, key: str, message: str, hint: str | None = None) -> Problem:
        """Return the problem of a key, with its place."""
        return Problem(self.where(key), f"env.{key}" if key else "env", message, hint)


def ratio_of(text: str) -> tuple[int, int, int]:
    """Parse a ratio like `2:1:7` into three parts; raises `ValueError`."""
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
"""Folder that Python leaves beside a script."""

_SKILLS = files("kept.evaluators.environments").joinpath("skills")


class Read(NamedTuple):
    """Skill read from a user's file or folder."""

    texts: Mapping[str, str]
    left_out: tuple[str, ...] = ()
    """Files of its folder that are not text: pictures, documents to fill in."""


def initial(name: str) -> Mapping[str, str]:
    """The skill of a built-in environment."""
    return {SKILL: _SKILLS.joinpath(f"{name}.md").read_text(encoding="utf-8")}


def skill_at(path: Path, settings: EnvSettings) -> Read:
    """Read a user's skill: a file, or a folder with a SKILL.md."""
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
        return False  # reading it as text reports the error
    return False


def _text(path: Path, settings: EnvSettings) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is no UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror
        problem = settings.problem("skill_init", f"cannot read {path}: {why}")
        raise SpecError([problem]) from error
