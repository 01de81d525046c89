"""Scratch folders: one for each rollout, gone when it is over.

    candidate/    the candidate's files
    case.json     the case, when the run has cases
    output/       what the command leaves behind, read back within a limit

Writes nothing outside the folder and follows no link when it reads back.
"""

import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kept.core.artifact import Candidate, is_safe_path
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.rollout import Failure
from kept.errors import RunError

MAX_OUTPUT = 16 * 1024 * 1024
"""Bytes that a command may leave in its output folder, names included."""


class Output(NamedTuple):
    """What a command left behind."""

    files: Mapping[str, bytes]
    skipped: tuple[str, ...]
    """What is there but is no plain file, each with the reason why it was left alone."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The scratch folder of one rollout, or of one scoring of it."""

    folder: Path

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

    def variables(self) -> dict[str, str]:
        """What a command finds in its environment."""
        named = {"KEPT_CANDIDATE": self.candidate, "KEPT_OUTPUT": self.output}
        if self.case.exists():
            named["KEPT_CASE"] = self.case
        return {name: str(path) for name, path in named.items()}

    def read_output(self, limit: int = MAX_OUTPUT) -> Output | Failure:
        """The files of the output folder, or that they are too much."""
        files: dict[str, bytes] = {}
        skipped: list[str] = []
        size = 0
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

    def __init__(self) -> None:
        self._root: Path | None = None

    @contextmanager
    def workspace(
        self, candidate: Candidate, case: Case, output: Mapping[str, bytes] | None = None
    ) -> Generator[Workspace]:
        """A fresh workspace, removed at the end of the block whatever ends it.

        Raises `OSError` where the disk does not play along.
        """
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="kept-"))
        # resolved, so that a command sees the same path by name and by `pwd -P`
        folder = Path(tempfile.mkdtemp(dir=self._root)).resolve()
        try:
            workspace = Workspace(folder)
            write_files(workspace.candidate, candidate)
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
            self._root = None


def write_files(folder: Path, candidate: Candidate) -> None:
    """A candidate's texts as files below a folder."""
    # bytes, so that line endings stay as they are
    write_below(
        folder,
        {path: text.encode("utf-8", "surrogateescape") for path, text in candidate.texts.items()},
    )


def write_below(folder: Path, files: Mapping[str, bytes]) -> None:
    """Files below a folder, which is made; refuses a path that leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        if not is_safe_path(path):
            raise RunError(f"`{path}` is not a path below the folder it is to be written to")
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def remove_tree(folder: Path) -> None:
    """Remove a folder, also where a command took away the permission to."""
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        folder.chmod(0o700)
        for inner, subfolders, _ in os.walk(folder):
            for path in (Path(inner, name) for name in subfolders):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


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
