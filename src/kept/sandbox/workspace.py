"""Scratch folders: one for each rollout, removed when it is over.

    candidate/    the candidate's files
    case.json     the case, when the run has cases
    output/       what the command leaves behind, read back within a limit

Nothing is written outside the folder, and no link is followed when reading back. A command with a
view runs with the candidate laid over its tree: in a sandbox if one is available, else in a copy.
"""

import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.rollout import Failure
from kept.errors import RunError
from kept.sandbox.bwrap import INSIDE, Site
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Command, Exit
from kept.sandbox.execute import execute
from kept.sandbox.temp_dirs import PREFIX, own, remove_tree, sweep
from kept.sandbox.tree_copies import Copies
from kept.store.candidate_files import write_below, write_files

MAX_OUTPUT = 16 * 1024 * 1024
"""Maximum bytes that a command may leave in its output folder, names included."""


class Output(NamedTuple):
    """Files that a command left behind."""

    files: Mapping[str, bytes]
    skipped: tuple[str, ...]
    """Entries that are no plain files, each with the reason why it was skipped."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch folder of one rollout, or of one scoring of it."""

    folder: Path
    copies: Copies | None = None
    """Copies of trees, for commands without an overlay."""

    @property
    def candidate(self) -> Path:
        """Folder of the candidate's files."""
        return self.folder / "candidate"

    @property
    def case(self) -> Path:
        """The case as JSON; missing in a run without cases."""
        return self.folder / "case.json"

    @property
    def output(self) -> Path:
        """Folder for a command's results."""
        return self.folder / "output"

    def variables(self, inside: Path | None = None) -> dict[str, str]:
        """Environment variables with these paths, as seen below `inside` if it is given."""
        named = {"KEPT_CANDIDATE": self.candidate, "KEPT_OUTPUT": self.output}
        if self.case.exists():
            named["KEPT_CASE"] = self.case
        seen = inside or self.folder
        return {name: str(seen / path.name) for name, path in named.items()}

    async def run(self, command: Command) -> Exit | Failure:
        """Run a command in this folder; its stderr names no path of this machine.

        Models see stderr, and requests must be equal at any place and time. Output on stdout is
        data, and stays unchanged.
        """
        ended = await self._run(command)
        tree = {} if command.view is None else {command.view.tree: "."}
        return _renamed(ended, {self.folder: str(INSIDE), **tree})

    async def _run(self, command: Command) -> Exit | Failure:
        view = command.view
        if view is None:
            return await execute(command, self.variables())
        able = abilities()
        if view.bare:
            if view.walls and able.walls:
                return await execute(command, self.variables(INSIDE), Site(self.folder))
            return await self._run_unwalled(command)
        # overlayfs does not allow layers inside one another
        inside = self.folder.is_relative_to(view.tree)
        if view.walls and able.walls and able.overlay and not inside:
            (self.folder / "tree").symlink_to(view.tree)
            (self.folder / "layers").mkdir()
            return await execute(command, self.variables(INSIDE), Site(self.folder))
        if self.copies is None:
            raise RunError("a command with a view needs a scratch folder that can hold copies")
        walls = view.walls and able.walls
        # in the sandbox, writable paths are bound over the copy, and a link would lead nowhere
        lent = replace(view, writable=()) if walls else view
        with self.copies.lend(lent, self.candidate) as copy:
            if walls:
                return await execute(command, self.variables(INSIDE), Site(self.folder, copy))
            cwd = command.cwd
            if cwd.is_relative_to(view.tree):
                cwd = copy / cwd.relative_to(view.tree)
            ended = await self._run_unwalled(replace(command, cwd=cwd))
            return _renamed(ended, {copy: "."})

    async def _run_unwalled(self, command: Command) -> Exit | Failure:
        (self.folder / "home").mkdir(exist_ok=True)
        return await execute(command, {**self.variables(), "HOME": str(self.folder / "home")})

    def read_output(self, limit: int = MAX_OUTPUT) -> Output | Failure:
        """Return the files of the output folder, or a failure if they are too much."""
        files: dict[str, bytes] = {}
        skipped: list[str] = []
        size = 0
        if self.output.is_symlink():
            return Failure("limit", "candidate", "the output folder was replaced by a link")
        if not self.output.is_dir():
            return Output(files, ())
        # by descriptor and never by path: a left-over process might replace a folder by a link
        # during the walk
        for folder, subfolders, names, fd in os.fwalk(self.output):
            subfolders.sort()
            below = Path(folder).relative_to(self.output)
            links: list[str] = []
            for name in subfolders:
                with suppress(FileNotFoundError):
                    if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                        links.append(name)
            for name in sorted({*names, *links}):
                path = (below / name).as_posix()
                size += len(os.fsencode(path))
                if _leaves(path, name, fd):
                    message = f"`{path}` in the output folder is a link that leaves it"
                    return Failure("limit", "candidate", message)
                data = _read(path, name, fd, limit - size)
                if isinstance(data, str):
                    skipped.append(data)
                    continue
                size += len(data)
                if size > limit:
                    message = f"the output folder holds more than {limit / 2**20:g} MiB (at {path})"
                    return Failure("limit", "candidate", message)
                files[path] = data
        return Output(files, tuple(skipped))


class Scratch:
    """Folder that contains workspaces; created at first use, removed by `close`."""

    def __init__(self, modes: Mapping[str, int] | None = None) -> None:
        """`modes` are mode bits of artifacts by path; other files get default ones."""
        self._root: Path | None = None
        self._owned = -1
        self._modes = modes or {}
        self._copies: Copies | None = None

    def __reduce__(self) -> tuple[type["Scratch"], tuple[Mapping[str, int]]]:
        """Pickle as a new scratch folder of the other process."""
        return Scratch, (dict(self._modes),)

    @contextmanager
    def workspace(
        self,
        candidate: Candidate,
        case: Case,
        output: Mapping[str, bytes] | None = None,
        folders: Collection[str] = (),
    ) -> Generator[Workspace]:
        """Create a workspace; remove it at the end of the block, however it ends.

        The output folder gets these files, and these folders, even if they are empty. Raises
        `OSError` for errors of the disk.
        """
        if self._root is None:
            # resolved, so that a command sees the same path by name and by `pwd -P`
            self._root = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
            self._owned = own(self._root)
            self._copies = Copies(self._root / "copies")
            sweep()
        folder = Path(tempfile.mkdtemp(dir=self._root))
        try:
            workspace = Workspace(folder / "w", self._copies)
            write_files(workspace.candidate, candidate, self._modes)
            if case != IMPLICIT_CASE:
                text = json.dumps(case.data, ensure_ascii=False, default=str)
                workspace.case.write_text(text, encoding="utf-8", errors="surrogatepass")
            write_below(workspace.output, output or {})
            for name in folders:
                if not (workspace.output / name).exists():
                    (workspace.output / name).mkdir()
            yield workspace
        finally:
            remove_tree(folder)

    def close(self) -> None:
        """Remove the folder and everything in it."""
        if self._root is not None:
            remove_tree(self._root)
            os.close(self._owned)
            self._root = self._copies = None


def _renamed(ended: Exit | Failure, places: Mapping[Path, str]) -> Exit | Failure:
    """Replace folders by other names in a command's stderr."""
    if isinstance(ended, Failure):
        return ended
    stderr = ended.stderr
    for path, name in places.items():
        if path.name and str(path) in stderr:
            # not as part of a longer name
            stderr = re.sub(rf"{re.escape(str(path))}(?![\w.-])", name, stderr)
    return replace(ended, stderr=stderr)


def _leaves(path: str, name: str, folder: int) -> bool:
    """True for a link to outside the folder that its path is relative to."""
    try:
        target = os.readlink(name, dir_fd=folder)
    except OSError:
        return False
    parts = os.path.normpath(os.path.join(os.path.dirname(path), target)).split("/")  # noqa: PTH118, PTH120 # pathlib does not take `..` out
    return target.startswith("/") or parts[0] == ".."


def _read(path: str, name: str, folder: int, limit: int) -> bytes | str:
    """Bytes of a plain file, at most one more than the limit; or the reason why it was skipped."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"{path!r}: the name is not UTF-8"
    try:
        # without O_NONBLOCK, opening a pipe would wait for a writer
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        # O_NOFOLLOW fails with ELOOP for a link
        why = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
        return f"`{path}`: {why}"
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return f"`{path}`: not a plain file"
        return file.read(max(0, limit) + 1)
