"""Digests of the files that a run writes outside its folder, so that `kept doctor` verifies them.

`exports.jsonl` has a line for each write of a file; the last line of a file counts:

    {"crc":"1a2b3c4d","at":4711,"path":"../../../out/r.jsonl","sha256":"...","shared":true}

Paths are relative to the folder of the run, so that a project may be moved.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from kept.core.event import SCHEMA
from kept.store import codec
from kept.store.jsonl import Appender, closed_sizes, line_number, stored_lines

FILE = "exports.jsonl"

_HEADER = b'"kind":"exports"'


class ExportLine(msgspec.Struct, omit_defaults=True):
    """Digest of one file, as it was written."""

    path: str
    sha256: str
    shared: bool = False
    """True for a file with lines of other runs too: the digest is of this run's lines."""


class ExportChange(NamedTuple):
    """A file that is not as the run wrote it, or a damaged line of `exports.jsonl`."""

    place: str
    kind: Literal["changed", "damaged line"]
    what: str


class Exports:
    """Writes the digests of a run; the file is made with the first digest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._file: Appender | None = None
        self._known: dict[str, str] = {}
        """Digests of this session, by path."""

    def add(self, path: Path, digest: str, *, shared: bool = False) -> None:
        """Record the digest of a file that was written."""
        name = os.path.relpath(path.absolute(), self._folder)
        if self._known.get(name) == digest:
            return
        if self._file is None:
            header = b'{%s,"version":%d}' % (_HEADER, SCHEMA)
            self._file = Appender(self._folder / FILE, header)
        self._file.write(codec.encode(ExportLine(name, digest, shared)) + b"\n")
        self._known[name] = digest

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        path = self._folder / FILE
        return path.stat().st_size if path.exists() else 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def changed_exports(folder: Path, run_id: str) -> Iterator[ExportChange]:
    """Yield files that differ from what the run wrote; removed files are not damage."""
    last: dict[str, ExportLine] = {}
    file = folder / FILE
    for one in stored_lines(file, least=None):
        row, problem = None, one.problem
        if not problem and _HEADER not in one.line:
            try:
                row = codec.decode(one.line, ExportLine)
            except ValueError as error:
                problem = str(error)
        if problem:
            place = f"{FILE}:{line_number(file, one.at)}"
            yield ExportChange(place, "damaged line", problem)
        elif row is not None:
            last[row.path] = row
    closed, size = closed_sizes(folder), file.stat().st_size if file.exists() else 0
    if closed is not None and size < closed.exports:
        what = f"{closed.exports - size} bytes are missing at its end"
        yield ExportChange(FILE, "damaged line", what)
    for row in last.values():
        path = Path(os.path.normpath(folder.resolve() / row.path))
        if not path.is_file():
            continue
        data = path.read_bytes()
        if row.shared:
            lines = data.splitlines(keepends=True)
            data = b"".join(line for line in lines if run_of(line) == run_id)
        if digest_of(data) != row.sha256:
            yield ExportChange(str(path), "changed", "is not as the run wrote it")


def digest_of(data: bytes) -> str:
    """Digest of a file with these bytes."""
    return hashlib.sha256(data).hexdigest()


def run_of(line: bytes) -> str | None:
    """Id of the run that a line of a shared file belongs to; None for another kind of line."""
    try:
        row: Any = json.loads(line)
    except ValueError:
        return None
    return row["run"] if isinstance(row, dict) and {"run", "iteration"} <= row.keys() else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] # any JSON
