"""Shell tool in a workspace that lives as long as an episode.

Each command runs in the sandbox, without the network, on the files that earlier ones left. Its
changes are journalled with its output: a resume applies the changes again and runs nothing twice.
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
"""Time limit for one command."""

MOST_CHANGED_BYTES = 32 * 1024 * 1024
"""Maximum size of the files that one command changes: they are journalled."""

UNTRACKED = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
"""Cache folders of tools, which are not journalled."""

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
"""Kinds of files that a resume restores: no sockets, pipes and devices."""

_USUAL_MODE = stat.S_IFREG | 0o644

Marks = dict[str, tuple[int, ...]]
"""Fingerprint of each path: mode, size, times and inode; of a folder only the mode."""


class Changes(NamedTuple):
    """Journalled changes of a command."""

    files: Mapping[str, bytes | None]
    """Content by path, the target of a link; None for a deleted path."""
    modes: Mapping[str, int] = {}
    """Modes other than that of a plain file: programs, links, folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellSettings:
    """View and limits of commands."""

    hidden: tuple[Path, ...] = ()
    """Paths that no command may read: data with the answers."""
    seen: tuple[Path, ...] = ()
    """Folders that commands need: programs, a Python environment."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Limits = field(default_factory=Limits)
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True)
class ShellAnswer(ToolAnswer):
    """Answer of a command, with all that a resume needs to restore its changes."""

    modes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Modes as in `Changes`."""


class EpisodeWorkspace:
    """Workspace folder in which the commands of an episode run."""

    def __init__(self, scratch: Scratch, settings: ShellSettings) -> None:
        self.settings = settings
        self._scratch = scratch
        self._open = ExitStack()
        self._workspace: Workspace | None = None
        self._marks: Marks = {}

    @property
    def folder(self) -> Path:
        """Path of its files."""
        assert self._workspace is not None, "it is open"
        return self._workspace.output

    async def open(self, source: Path | Mapping[str, bytes]) -> None:
        """Create it from a folder or from files; raises `SetupError` without a sandbox."""
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
        """Raise `SetupError` if there is no sandbox."""
        if not (able := abilities()).walls:
            hint = "install bubblewrap"
            raise SetupError(
                f"there is no sandbox for commands of a model: {able.why_not}", hint=hint
            )

    async def run(
        self, line: str, seconds: float | None = None, most_text: int = MAX_TEXT
    ) -> Exit | Failure:
        """Run a line of bash in it; the last `most_text` bytes of its output are kept."""
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
        """Changes since the last call; None if the changed files have more than `most` bytes."""
        before, self._marks = self._marks, _marks_of(self.folder)
        now = {path: mark for path, mark in self._marks.items() if before.get(path) != mark}
        if sum(mark[1] for mark in now.values() if stat.S_ISREG(mark[0])) > most:
            return None
        gone = dict.fromkeys(before.keys() - self._marks.keys())
        there = {path: _content(self.folder / path, mark[0]) for path, mark in now.items()}
        modes = {path: mark[0] for path, mark in now.items() if mark[0] != _USUAL_MODE}
        return Changes({**gone, **there}, modes)

    def apply(self, changes: Changes) -> None:
        """Apply journalled changes."""
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
        # modes last, inner paths first: a mode may forbid writing
        for path, data in reversed(files.items()):
            if data is not None and not stat.S_ISLNK(modes[path]):
                (self.folder / path).chmod(stat.S_IMODE(modes[path]))
        self._marks = _marks_of(self.folder)

    def close(self) -> None:
        """Remove the workspace."""
        self._open.close()
        self._workspace = None


@dataclass(slots=True)
class ShellTool:
    """The shell of one episode."""

    workspace: EpisodeWorkspace
    about: str = ""
    """Description for the model; empty for the default."""
    keeps_state: bool = True
    """True for a tool whose calls build on each other."""

    @property
    def offer(self) -> ToolOffer:
        """Offer of the tool to a model."""
        return ToolOffer("bash", self.about or _ABOUT, _SCHEMA)

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Run a command once; a resume applies its journalled changes."""
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
            # it removed the read permission of a file, for example
            message = f"a command left `{error.filename}`, which cannot be read: {error.strerror}"
            return Failure("harness", "candidate", message)
        if changes is None:
            most = MOST_CHANGED_BYTES // 2**20
            return Failure("limit", "candidate", f"a command changed more than {most} MiB of files")
        text = exit_text(ended, self.workspace.settings.seconds)
        return ShellAnswer(text, wrong=not ended.ok, changes=changes.files, modes=changes.modes)


def _content(path: Path, mode: int) -> bytes:
    """Content of a file or target of a link; empty for a folder."""
    if stat.S_ISLNK(mode):
        return os.fsencode(path.readlink())
    return path.read_bytes() if stat.S_ISREG(mode) else b""


def _remove_other(path: Path, mode: int | None) -> None:
    """Remove a path that is a link or of another kind than the mode; any path for None."""
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
            # ctime as well: a program can set mtime but not ctime
            mark = (told.st_mode, told.st_size, told.st_mtime_ns, told.st_ctime_ns, told.st_ino)
            # only the mode of a folder: its entries have marks of their own
            mark = (told.st_mode,) if stat.S_ISDIR(told.st_mode) else mark
            if stat.S_IFMT(told.st_mode) in _KEPT_KINDS:
                found[path.relative_to(folder).as_posix()] = mark
    return found
