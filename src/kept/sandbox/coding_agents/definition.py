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
"""Maximum characters of a step in a trace; the full output is stored beside it."""

TRIES = 4
"""Retries that a CLI makes by itself when its provider fails."""

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Model that a CLI is to use, and its address."""

    provider: str
    model: str
    base_url: str
    effort: Effort | None = None


@dataclass(slots=True)
class Told:
    """Result of a CLI's events."""

    steps: list[TraceItem] = field(default_factory=list[TraceItem])
    final: str = ""
    """Last message: the answer."""
    session: str = ""
    taken: Taken | None = field(default_factory=Taken)
    """None if the reported counts are impossible."""
    error: str = ""
    """Reason why the CLI gave up, in its own words."""
    status: int | None = None
    """HTTP status of the error, if it was reported."""
    retried: bool = False
    """True if it has repeated a request to its provider."""
    waiting: str = ""
    """Reason of the retry that was pending at the end; empty if it was at work."""
    stop: str = ""
    """Own limit at which it stopped, or `refusal` if the model refused."""

    @property
    def numbered(self) -> list[TraceItem]:
        """Steps with a number: messages and tool uses, after which a session can continue."""
        return [item for item in self.steps if "step" in item.data]

    def wait(self, why: str) -> None:
        """Record that it is about to repeat a request to its provider."""
        self.waiting, self.retried = why, True

    def say(self, text: str) -> None:
        """Record a message of the model."""
        if text.strip():
            self.final, self.waiting = text.strip(), ""
            self._step("assistant", text.strip())

    def think(self, text: str) -> None:
        """Record reasoning of the model; a session cannot continue after it."""
        if text.strip():
            self.steps.append(TraceItem("thought", shortened(text.strip(), MOST_STEP)))

    def use(self, what: str, output: str = "", failed: str = "") -> None:
        """Record a tool use, its output, and how it failed."""
        self.waiting = ""
        lines = [what, *(f"  {line}" for line in output.rstrip("\n").splitlines())]
        self._step("tool", "\n".join([*lines, *([f"  [{failed}]"] if failed else [])]))

    def note(self, text: str) -> None:
        """Record a note for the reader that the model did not write."""
        if text.strip():
            self.steps.append(TraceItem("info", shortened(text.strip(), MOST_STEP)))

    def _step(self, role: str, text: str) -> None:
        number = len(self.numbered) + 1
        self.steps.append(TraceItem(role, shortened(text, MOST_STEP), {"step": number}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cli:
    """One agent CLI."""

    name: str
    """Name in a spec."""
    program: str
    package: str
    """Package at npm."""
    providers: tuple[str, ...]
    """Providers whose models it can use."""
    efforts: tuple[Effort, ...]
    """Reasoning efforts that its models support."""
    key: str
    """Environment variable from which it reads its key."""
    shell: str
    """Environment variable that names a script to run before its tools' commands.

    Empty if the tools do not get the key anyway.
    """
    short: str
    """Prefix of the names of its files."""
    instructions: str
    """File of the workspace that it always reads."""
    skills: str
    """Folder of the workspace in which it looks for skills."""
    sessions: str
    """Folder of its home in which it keeps its sessions; empty if they are no files."""
    home: Callable[[Target], Mapping[str, str]]
    """Files of its home."""
    environment: Callable[[Target], Mapping[str, str]]
    """Environment variables besides the key."""
    words: Callable[[Target, str], list[str]]
    """Command line, which reads the prompt from stdin.

    Arguments: the target, and the session to continue, or an empty text.
    """
    listen: Callable[[Iterable[Event]], Told]
    session_file: Callable[[str, str], str] = lambda session, cwd: session
    """Path below that folder where it looks for a session, by its id and working folder."""
    ends_step: Callable[[Event], bool] | None = None
    """True if a line of a session ends a step; None if the CLI cannot continue after a step."""

    @property
    def install(self) -> str:
        """Command that installs it."""
        return f"npm install -g {self.package}"

    @property
    def raw(self) -> str:
        """File that holds its whole output."""
        return f"{self.short}_raw.txt"

    @property
    def session(self) -> str:
        """File with which it can continue."""
        return f"{self.short}_session.jsonl.gz"

    @property
    def summary(self) -> str:
        """File with a summary of its steps."""
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
    """Conversation of an agent that can be continued."""

    id: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """One task for an agent."""

    prompt: str
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files in its workspace."""
    folders: tuple[str, ...] = ()
    """Folders in its workspace, created even if they are empty."""
    instructions: str = ""
    """Text that it always reads; empty for none."""
    skill: Mapping[str, str] = field(default_factory=dict[str, str])
    """Texts of a skill by path: the first is its SKILL.md, the others are beside it."""
    session: Session | None = None
    """Conversation to continue; None for a new one."""


def rendered(cli: Cli, errand: Errand) -> tuple[str, dict[str, bytes]]:
    """Return the prompt, and the files in which a CLI finds skill and instructions."""
    files: dict[str, str] = {}
    prompt = errand.prompt
    if errand.instructions.strip():
        files[cli.instructions] = errand.instructions
    if errand.skill:
        first, text = next(iter(errand.skill.items()))
        name = skill_name(first, text)
        folder, beside = f"{cli.skills}/{name}", PurePosixPath(first).parent
        # a skill without front matter gets a minimal one
        files[f"{folder}/{SKILL}"] = text if _FRONT.match(text) else _HEAD.format(name=name) + text
        for path, other in list(errand.skill.items())[1:]:
            place = PurePosixPath(path)
            below = place.relative_to(beside) if place.is_relative_to(beside) else place
            files[f"{folder}/{below}"] = other
        # the prompt names the skill: one that the model does not read would have no effect
        prompt = f"Use the skill `{name}`: read {folder}/{SKILL} first.\n\n{prompt}"
    return prompt, {path: text.encode("utf-8", "surrogateescape") for path, text in files.items()}


def skill_name(path: str, text: str) -> str:
    """Name of a skill: from its front matter, else from its file or folder."""
    front = _FRONT.match(text)
    named = _NAME.search(front[1]) if front else None
    place = PurePosixPath(path)
    plain = place.parent.name if place.name.lower() == SKILL.lower() else place.stem
    return re.sub(r"[^a-z0-9]+", "-", (named[1] if named else plain).lower()).strip("-") or "skill"


_MODULES = "node_modules"


@dataclass(frozen=True, slots=True)
class Program:
    """Program as a command will find it."""

    path: Path
    """The file itself, with links resolved."""
    folders: tuple[Path, ...]
    """Folders of its installation, which a command must see.

    They may be below /tmp, which is private in the sandbox, as the home of a container or of a
    test.
    """


def program_of(cli: Cli) -> Program | None:
    """Find the program of a CLI; None if it is not installed."""
    found = _which(cli.program)
    if found is None:
        return None
    program = found.resolve()
    # npm's folder with all its packages, if it was installed there; else its own folder
    outer = (folder for folder in reversed(program.parents) if folder.name == _MODULES)
    folders = [found.parent, next(outer, program.parent)]
    if node := _which("node"):
        folders += [node.parent, node.resolve().parent]
    return Program(program, tuple(dict.fromkeys(folders)))


def _which(name: str) -> Path | None:
    found = shutil.which(name, path=child_environment({})["PATH"])
    return Path(found) if found else None
