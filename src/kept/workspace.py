"""Scratch folders: one for each rollout, gone when it is over.

    candidate/    the candidate's files
    case.json     the case, when the run has cases
    output/       what the command leaves behind, read back within a limit

Writes nothing outside the folder and follows no link when it reads back. A command that has a view
is run with the candidate laid over its tree: between walls where they can be had, else in a copy.
"""

import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.rollout import Failure
from kept.errors import RunError
from kept.sandbox import Command, Exit, View, abilities, execute
from kept.sandbox.copies import Copies
from kept.sandbox.fill import remove
from kept.sandbox.guard import Guard
from kept.sandbox.walls import INSIDE, Site
from kept.store.files import write_below, write_files

MAX_OUTPUT = 16 * 1024 * 1024
"""Bytes that a command may leave in its output folder, names included."""


PREFIX = "kept-"

OWNER = ".kept-scratch"
"""A file in the folder of all workspaces, locked by the process that they belong to."""


class Output(NamedTuple):
    """What a command left behind."""

    files: Mapping[str, bytes]
    skipped: tuple[str, ...]
    """What is there but is no plain file, each with the reason why it was left alone."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The scratch folder of one rollout, or of one scoring of it."""

    folder: Path
    copies: Copies | None = None
    """Of trees, for commands that cannot have an overlay of theirs."""

    @property
    def candidate(self) -> Path:
        """Where the candidate's files are."""
        return self.folder / "candidate"

    @property
    def case(self) -> Path:
        """The case as JSON; not there in a run without cases."""
        return self.folder / "case.json"

    @property
    def output(self) -> Path:
        """Where a command leaves what it made."""
        return self.folder / "output"

    def variables(self, inside: Path | None = None) -> dict[str, str]:
        """What a command finds in its environment, when it sees the folder at some other path."""
        named = {"KEPT_CANDIDATE": self.candidate, "KEPT_OUTPUT": self.output}
        if self.case.exists():
            named["KEPT_CASE"] = self.case
        seen = inside or self.folder
        return {name: str(seen / path.name) for name, path in named.items()}

    async def run(self, command: Command) -> Exit | Failure:
        """Run a command on what is in this folder."""
        view = command.view
        if view is None:
            return await execute(command, self.variables())
        able = abilities()
        if view.bare:
            if view.walls and able.walls:
                return await execute(command, self.variables(INSIDE), Site(self.folder))
            return await self._run_unwalled(command, view)
        # layers of an overlay cannot lie in one another
        inside = self.folder.is_relative_to(view.tree)
        if view.walls and able.walls and able.overlay and not inside:
            (self.folder / "tree").symlink_to(view.tree)
            (self.folder / "layers").mkdir()
            return await execute(command, self.variables(INSIDE), Site(self.folder))
        if self.copies is None:
            raise RunError("a command with a view needs a scratch folder that can hold copies")
        walls = view.walls and able.walls
        # between walls, what is writable is bound over the copy, and a link would lead nowhere
        lent = replace(view, writable=()) if walls else view
        with self.copies.lend(lent, self.candidate) as copy:
            if walls:
                return await execute(command, self.variables(INSIDE), Site(self.folder, copy))
            cwd = command.cwd
            if cwd.is_relative_to(view.tree):
                cwd = copy / cwd.relative_to(view.tree)
            return await self._run_unwalled(replace(command, cwd=cwd), view)

    async def _run_unwalled(self, command: Command, view: View) -> Exit | Failure:
        (self.folder / "home").mkdir(exist_ok=True)
        variables = {**self.variables(), "HOME": str(self.folder / "home")}
        guard = Guard(view.guarded)
        ended = await execute(command, variables)
        if changed := guard.changed():
            names = ", ".join(f"`{_below(path, view.tree)}`" for path in changed)
            message = f"changed while the command ran, which is none of its business: {names}"
            return Failure("limit", "candidate", message)
        return ended

    def read_output(self, limit: int = MAX_OUTPUT) -> Output | Failure:
        """The files of the output folder, or that they are too much."""
        files: dict[str, bytes] = {}
        skipped: list[str] = []
        size = 0
        if self.output.is_symlink():
            return Failure("limit", "candidate", "the output folder was replaced by a link")
        if not self.output.is_dir():
            return Output(files, ())
        # by descriptor and never by path: a folder that a left-over process swaps for a link while
        # we walk must not lead us elsewhere
        for folder, subfolders, names, fd in os.fwalk(self.output):
            subfolders.sort()
            below = Path(folder).relative_to(self.output)
            for name in sorted({*names, *(s for s in subfolders if _is_link(s, fd))}):
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
    """The folder that workspaces are made in; made at first use, removed by `close`."""

    def __init__(self, modes: Mapping[str, int] | None = None) -> None:
        """Artifacts may have mode bits, by path; else their files are plain ones."""
        self._root: Path | None = None
        self._owned = -1
        self._modes = modes or {}
        self._copies: Copies | None = None

    @contextmanager
    def workspace(
        self, candidate: Candidate, case: Case, output: Mapping[str, bytes] | None = None
    ) -> Generator[Workspace]:
        """A fresh workspace, removed at the end of the block whatever ends it.

        Raises `OSError` where the disk does not play along.
        """
        if self._root is None:
            # resolved, so that a command sees the same path by name and by `pwd -P`
            self._root = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
            self._owned = _own(self._root)
            self._copies = Copies(self._root / "copies")
            # apart, for a killed run may have left much
            threading.Thread(target=remove_abandoned, name="kept-sweep", daemon=True).start()
        folder = Path(tempfile.mkdtemp(dir=self._root))
        try:
            workspace = Workspace(folder / "w", self._copies)
            write_files(workspace.candidate, candidate, self._modes)
            if case != IMPLICIT_CASE:
                text = json.dumps(case.data, ensure_ascii=False, default=str)
                workspace.case.write_text(text, encoding="utf-8", errors="surrogatepass")
            write_below(workspace.output, output or {})
            yield workspace
        finally:
            remove_tree(folder)

    def close(self) -> None:
        """Remove everything."""
        if self._root is not None:
            remove_tree(self._root)
            os.close(self._owned)
            self._root = self._copies = None


def _own(folder: Path) -> int:
    """Hold a scratch folder as ours for as long as this process lives; what is to be closed."""
    fd = os.open(folder / f"{OWNER}.new", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    # by that name it is never to be seen without its lock
    (folder / f"{OWNER}.new").rename(folder / OWNER)
    return fd


def remove_abandoned(parent: Path | None = None) -> None:
    """Remove the scratch folders of processes that were killed, and no others."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    fd = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # raises while its owner lives, for the kernel lets go of a lock when its process is gone
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for inner in folder.iterdir():
            # the mark of what it is goes last, so that a removal may be cut off; links with it
            if inner.name != OWNER and not inner.is_symlink():
                remove_tree(inner)
        remove_tree(folder)
    finally:
        os.close(fd)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also where a command took away the permission to, or went very deep."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        remove(folder)
    if folder.exists():
        folder.chmod(0o700)
        for inner, subfolders, _ in os.walk(folder):
            for path in (Path(inner, name) for name in subfolders):
                if not path.is_symlink():
                    path.chmod(0o700)
        remove(folder)


def _below(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _leaves(path: str, name: str, folder: int) -> bool:
    """Whether something is a link to outside the folder that its path is relative to."""
    try:
        target = os.readlink(name, dir_fd=folder)
    except OSError:
        return False
    parts = os.path.normpath(os.path.join(os.path.dirname(path), target)).split("/")  # noqa: PTH118, PTH120 # pathlib does not take `..` out
    return target.startswith("/") or parts[0] == ".."


def _read(path: str, name: str, folder: int, limit: int) -> bytes | str:
    """The bytes of a plain file, one more than the limit at most; or why it was left alone."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"{path!r}: the name is not UTF-8"
    try:
        # without O_NONBLOCK, opening a pipe would wait for a writer
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        # what O_NOFOLLOW says of a link
        why = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
        return f"`{path}`: {why}"
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return f"`{path}`: not a plain file"
        return file.read(max(0, limit) + 1)
