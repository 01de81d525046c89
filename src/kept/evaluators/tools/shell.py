"""A shell in a workspace that lives as long as an episode.

Each command runs in the sandbox, without the network, on the files that earlier ones left. What a
command changed is journalled with what it printed: a resume makes the same changes again, and runs
nothing twice.
"""

import asyncio
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.evaluators.tools.journalled_call import journalled
from kept.evaluators.tools.python_code import exit_text
from kept.models.structured_output import problem_with
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import MAX_TEXT, Command, Exit, Limits, View
from kept.sandbox.temp_dirs import remove_tree
from kept.sandbox.workspace import Scratch, Workspace
from kept.store.candidate_files import write_below

SECONDS = 120.0
"""For one command."""

MOST_CHANGED_BYTES = 32 * 1024 * 1024
"""Bytes that one command may change: they are journalled."""

UNTRACKED = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Folders that tools fill by themselves: a resume does without what is in them."""

_NO_CANDIDATE = Candidate({})
_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "one command line of bash"}},
    "required": ["command"],
    "additionalProperties": False,
}
_ABOUT = (
    "Run a bash command. Every call starts in the workspace, in a new shell: files stay, variables "
    "and folders that were changed into do not. There is no network."
)

_KEPT_KINDS = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)
"""Kinds of files that a resume makes again: no sockets, pipes and devices."""

_USUAL_MODE = stat.S_IFREG | 0o644

Marks = dict[str, tuple[int, ...]]
"""By path, what changes whenever a file does; mode and size first, of a folder the mode alone."""


class Changes(NamedTuple):
    """What a command changed, as the journal has it."""

    files: Mapping[str, bytes | None]
    """By path the content, of a link its target; None for what is gone."""
    modes: Mapping[str, int] = {}
    """Modes that are not those of a plain file: programs, links, folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """What a command may see and use."""

    hidden: tuple[Path, ...] = ()
    """What no command may read: data with the answers."""
    seen: tuple[Path, ...] = ()
    """Folders that a command needs: programs, an environment of Python."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class ShellAnswer(ToolAnswer):
    """What came of a command, with all that a resume needs to do without it."""

    modes: Mapping[str, int] = field(default_factory=dict[str, int])
    """As `Changes` has them."""


class EpisodeWorkspace:
    """A folder with files, open until it is closed, in which commands run."""

    def __init__(self, scratch: Scratch, settings: ShellSettings) -> None:
        self.settings = settings
        self._scratch = scratch
        self._open = ExitStack()
        self._workspace: Workspace | None = None
        self._marks: Marks = {}

    @property
    def folder(self) -> Path:
        """Where its files are."""
        assert self._workspace is not None, "it is open"
        return self._workspace.output

    async def open(self, source: Path | Mapping[str, bytes]) -> None:
        """Make it, with a copy of a folder or with some files; a `SetupError` without a sandbox."""
        self.check()
        files = None if isinstance(source, Path) else source
        made = self._scratch.workspace(_NO_CANDIDATE, IMPLICIT_CASE, files)
        self._workspace = self._open.enter_context(made)
        if isinstance(source, Path):
            await asyncio.to_thread(
                shutil.copytree, source, self.folder, symlinks=True, dirs_exist_ok=True
            )
        self._marks = _marks_of(self.folder)

    def check(self) -> None:
        """Raise a `SetupError` where nothing would hold a command."""
        if not (able := abilities()).walls:
            hint = "install bubblewrap"
            raise SetupError(
                f"there is no sandbox for commands of a model: {able.why_not}", hint=hint
            )

    async def run(
        self, line: str, seconds: float | None = None, most_text: int = MAX_TEXT
    ) -> Exit | Failure:
        """Run a line of bash in it; of what it prints, the last `most_text` bytes are kept."""
        assert self._workspace is not None, "it is open"
        settings = self.settings
        view = View(Path("/"), hidden=settings.hidden, seen=settings.seen, bare=True)
        command = Command(
            'cd "$KEPT_OUTPUT" && unset KEPT_CANDIDATE && exec bash -c "$KEPT_LINE"',
            Path("/"),
            settings.seconds if seconds is None else seconds,
            env={**settings.env, "KEPT_LINE": line},
            limits=settings.limits,
            view=view,
            most_text=most_text,
        )
        return await self._workspace.run(command)

    def changes(self, most: int) -> Changes | None:
        """What changed since the last look; None where its files have more than `most` bytes."""
        before, self._marks = self._marks, _marks_of(self.folder)
        now = {path: mark for path, mark in self._marks.items() if before.get(path) != mark}
        if sum(mark[1] for mark in now.values() if stat.S_ISREG(mark[0])) > most:
            return None
        gone = dict.fromkeys(before.keys() - self._marks.keys())
        there = {path: _content(self.folder / path, mark[0]) for path, mark in now.items()}
        modes = {path: mark[0] for path, mark in now.items() if mark[0] != _USUAL_MODE}
        return Changes({**gone, **there}, modes)

    def apply(self, changes: Changes) -> None:
        """Make changes that were journalled."""
        files = dict(sorted(changes.files.items()))
        modes = {path: changes.modes.get(path, _USUAL_MODE) for path in files}
        # a folder before what is in it: a link that was there must not be followed
        for path, data in files.items():
            _remove_other(self.folder / path, None if data is None else modes[path])
        for path, data in files.items():
            if data is None:
                continue
            if stat.S_ISLNK(modes[path]):
                (self.folder / path).symlink_to(os.fsdecode(data))
            elif stat.S_ISDIR(modes[path]):
                (self.folder / path).mkdir(exist_ok=True)
            else:
                write_below(self.folder, {path: data})
        # last, and inner ones first: they may forbid to write
        for path, data in reversed(files.items()):
            if data is not None and not stat.S_ISLNK(modes[path]):
                (self.folder / path).chmod(stat.S_IMODE(modes[path]))
        self._marks = _marks_of(self.folder)

    def close(self) -> None:
        """Remove it."""
        self._open.close()
        self._workspace = None


@dataclass(slots=True)
class ShellTool:
    """The shell of one episode."""

    workspace: EpisodeWorkspace
    about: str = ""
    """What a model is told of it; empty for the usual."""
    keeps_state: bool = True
    """True for a tool whose uses build on one another."""

    @property
    def offer(self) -> ToolOffer:
        """What a model is told of it."""
        return ToolOffer("bash", self.about or _ABOUT, _SCHEMA)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Run a command once; in a resume, make the changes that it made."""
        ran = False

        async def do() -> ShellAnswer | Failure:
            nonlocal ran
            ran = True
            return await self._run(arguments)

        request = {"tool": self.offer.name, "arguments": dict(arguments)}
        answer = await journalled(scope, request, do, ShellAnswer)
        if isinstance(answer, ShellAnswer) and not ran:
            self.workspace.apply(Changes(answer.changes, answer.modes))
        return answer

    async def _run(self, arguments: Mapping[str, object]) -> ShellAnswer | Failure:
        if wrong := problem_with(dict(arguments), _SCHEMA):
            return ShellAnswer(f"the arguments are wrong, {wrong}", wrong=True)
        ended = await self.workspace.run(str(arguments["command"]))
        if isinstance(ended, Failure):
            return ended
        try:
            changes = self.workspace.changes(MOST_CHANGED_BYTES)
        except OSError as error:
            # it took the rights to a file away, say
            message = f"a command left `{error.filename}`, which cannot be read: {error.strerror}"
            return Failure("harness", "candidate", message)
        if changes is None:
            most = MOST_CHANGED_BYTES // 2**20
            return Failure("limit", "candidate", f"a command changed more than {most} MiB of files")
        text = exit_text(ended, self.workspace.settings.seconds)
        return ShellAnswer(text, wrong=not ended.ok, changes=changes.files, modes=changes.modes)


def _content(path: Path, mode: int) -> bytes:
    """What a file holds, or where a link leads; nothing for a folder or a pipe."""
    if stat.S_ISLNK(mode):
        return os.fsencode(path.readlink())
    return path.read_bytes() if stat.S_ISREG(mode) else b""


def _remove_other(path: Path, mode: int | None) -> None:
    """Remove a link, and what is not of the kind of a mode; anything for None."""
    try:
        there = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    if mode is not None and stat.S_IFMT(there) == stat.S_IFMT(mode) != stat.S_IFLNK:
        return
    if stat.S_ISDIR(there):
        remove_tree(path)
    else:
        path.unlink()


def _marks_of(folder: Path) -> Marks:
    found: Marks = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in UNTRACKED]
        for name in (*folders, *names):
            path = Path(place, name)
            told = path.lstat()
            # the time of the last change of anything: a program can set that of the content
            mark = (told.st_mode, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino)
            # a folder changes with all that is in it, of which each has its own mark
            mark = (told.st_mode,) if stat.S_ISDIR(told.st_mode) else mark
            if stat.S_IFMT(told.st_mode) in _KEPT_KINDS:
                found[path.relative_to(folder).as_posix()] = mark
    return found
