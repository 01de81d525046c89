"""Agent CLI definitions, requests to an agent, and location of the program.

A definition is data: start command, file locations, meaning of events. Each CLI has one table in
its own module, and the code that runs it knows only this table. Locating the program also gives
the paths that it must see to run.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from kept.core.llm import Effort
from kept.core.rollout import TraceItem
from kept.core.text import shortened
from kept.models.protocol import Taken
from kept.settings import child_environment

MOST_STEP = 4000
"""Characters of one step that a trace has; what a CLI said in full is kept beside it."""

TRIES = 4
"""How often a CLI asks again by itself when its provider fails."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model that a CLI is to use, and the way to it."""

    provider: str
    model: str
    base_url: str
    effort: Effort | None = None


@dataclass(slots=True)
class Told:
    """What the events of a CLI come to."""

    steps: list[TraceItem] = field(default_factory=list[TraceItem])
    final: str = ""
    """The last message: the answer."""
    session: str = ""
    taken: Taken | None = field(default_factory=Taken)
    """None where the counts that it told cannot be true."""
    error: str = ""
    """Why it gave up, in its own words."""
    status: int | None = None
    """Of HTTP, where it says so."""
    retried: bool = False
    """Whether it has asked its provider more than once for the same."""
    waiting: str = ""
    """What it was about to try again when it was last heard; empty where it was at work."""
    stop: str = ""
    """A limit of its own that it stopped at, or that the model would not answer."""

    @property
    def numbered(self) -> list[TraceItem]:
        """What the model said and used: the steps that one could go on from."""
        return [item for item in self.steps if "step" in item.data]

    def wait(self, why: str) -> None:
        """It is about to ask its provider once more."""
        self.waiting, self.retried = why, True

    def say(self, text: str) -> None:
        """A message of the model."""
        if text.strip():
            self.final, self.waiting = text.strip(), ""
            self._step("assistant", text.strip())

    def think(self, text: str) -> None:
        """What a model tells of its thoughts; no step that one could go on from."""
        if text.strip():
            self.steps.append(TraceItem("thought", shortened(text.strip(), MOST_STEP)))

    def use(self, what: str, output: str = "", failed: str = "") -> None:
        """A tool that was used, what it gave back, and how it failed."""
        self.waiting = ""
        lines = [what, *(f"  {line}" for line in output.rstrip("\n").splitlines())]
        self._step("tool", "\n".join([*lines, *([f"  [{failed}]"] if failed else [])]))

    def note(self, text: str) -> None:
        """Something that a reader should know, and the model did not say."""
        if text.strip():
            self.steps.append(TraceItem("info", shortened(text.strip(), MOST_STEP)))

    def _step(self, role: str, text: str) -> None:
        number = len(self.numbered) + 1
        self.steps.append(TraceItem(role, shortened(text, MOST_STEP), {"step": number}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """One agent CLI."""

    name: str
    """As a spec spells it."""
    program: str
    package: str
    """Of npm."""
    providers: tuple[str, ...]
    """Whose models it can be pointed at."""
    efforts: tuple[Effort, ...]
    """How long its models can be told to think."""
    key: str
    """The variable that it reads its key from."""
    shell: str
    """The variable that names a script to run before what its tools run; empty where the tools do
    not get the key anyway."""
    short: str
    """What the names of its files begin with."""
    instructions: str
    """The file of the workspace that it always reads."""
    skills: str
    """The folder of the workspace that it looks for skills in."""
    sessions: str
    """The folder of its home that it keeps its sessions in; empty where they are no files."""
    home: Callable[[Target], Mapping[str, str]]
    """Files of its home."""
    environment: Callable[[Target], Mapping[str, str]]
    """Variables besides the key."""
    words: Callable[[Target, str], list[str]]
    """The command line, which reads the prompt from stdin: for a target, and with the session that
    it is to go on with, or none."""
    listen: Callable[[Iterable[Event]], Told]
    session_file: Callable[[str, str], str] = lambda session, cwd: session
    """Where below that folder it looks for a session, by its id and the folder it works in."""
    ends_step: Callable[[Event], bool] | None = None
    """Whether a line of a session ends a step; None where it cannot go on from one."""

    @property
    def install(self) -> str:
        """What to type to have it."""
        return f"npm install -g {self.package}"

    @property
    def raw(self) -> str:
        """The file that holds all that it said."""
        return f"{self.short}_raw.txt"

    @property
    def session(self) -> str:
        """The file by which it can go on."""
        return f"{self.short}_session.jsonl.gz"

    @property
    def summary(self) -> str:
        """The file that tells its steps in short."""
        return f"{self.short}_trace_summary.txt"


SKILL = "SKILL.md"
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"^name:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)
_HEAD = """\
---
name: {name}
description: How the tasks of this folder are done. Read it before you begin with one.
---

"""


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation of an agent that can be gone on with."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One task for an agent."""

    prompt: str
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """What it finds in its workspace."""
    folders: tuple[str, ...] = ()
    """Folders that it finds there, also where they are empty."""
    instructions: str = ""
    """What it always reads; empty for none."""
    skill: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of a skill by path: the first is its SKILL.md, the others lie beside that."""
    session: Session | None = None
    """What was said before, if this is to go on from there."""


def rendered(cli: Cli, errand: Errand) -> tuple[str, dict[str, bytes]]:
    """The prompt, and the files by which a CLI finds skill and instructions."""
    files: dict[str, str] = {}
    prompt = errand.prompt
    if errand.instructions.strip():
        files[cli.instructions] = errand.instructions
    if errand.skill:
        first, text = next(iter(errand.skill.items()))
        name = skill_name(first, text)
        folder, beside = f"{cli.skills}/{name}", PurePosixPath(first).parent
        files[f"{folder}/{SKILL}"] = text if _FRONT.match(text) else _HEAD.format(name=name) + text
        for path, other in list(errand.skill.items())[1:]:
            place = PurePosixPath(path)
            below = place.relative_to(beside) if place.is_relative_to(beside) else place
            files[f"{folder}/{below}"] = other
        # a skill that a model may leave unread would make no difference
        prompt = f"Use the skill `{name}`: read {folder}/{SKILL} first.\n\n{prompt}"
    return prompt, {path: text.encode("utf-8", "surrogateescape") for path, text in files.items()}


def skill_name(path: str, text: str) -> str:
    """What a skill is called: by itself, else by its file or the folder that it is in."""
    front = _FRONT.match(text)
    named = _NAME.search(front[1]) if front else None
    place = PurePosixPath(path)
    plain = place.parent.name if place.name.lower() == SKILL.lower() else place.stem
    return re.sub(r"[^a-z0-9]+", "-", (named[1] if named else plain).lower()).strip("-") or "skill"


_MODULES = "node_modules"


@dataclass(frozen=True, slots=True)
class Program:
    """A program, as a command will find it."""

    path: Path
    """The file itself, links followed."""
    folders: tuple[Path, ...]
    """Where it is looked for and what it is made of; also where that lies below /tmp, which is
    private between walls, as the home of a container or of a test may."""


def program_of(cli: Cli) -> Program | None:
    """The program of a CLI; None for nowhere."""
    found = _which(cli.program)
    if found is None:
        return None
    program = found.resolve()
    # the folder of npm's that it was installed with, its neighbours included; or its own
    outer = (folder for folder in reversed(program.parents) if folder.name == _MODULES)
    folders = [found.parent, next(outer, program.parent)]
    if node := _which("node"):
        folders += [node.parent, node.resolve().parent]
    return Program(program, tuple(dict.fromkeys(folders)))


def _which(name: str) -> Path | None:
    found = shutil.which(name, path=child_environment({})["PATH"])
    return Path(found) if found else None
