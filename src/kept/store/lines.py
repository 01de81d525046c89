"""Reading the files of a run, line by line. Takes no lock and writes nothing."""

import mmap
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from kept.core.artifact import Candidate
from kept.core.event import Event
from kept.core.rollout import Failure, Job, Usage
from kept.errors import JournalError
from kept.store import wire
from kept.store.damage import damaged, left_out
from kept.store.pack import Pack

T = TypeVar("T")

_CANCELLED = b'{"kind":"cancelled"'


class _Manifest(msgspec.Struct):
    """How a candidate is packed."""

    texts: dict[str, str]
    blobs: dict[str, str]


def load_candidate(pack: Pack, id_: str) -> Candidate:
    """A candidate from a pack."""
    try:
        manifest = wire.decode(pack.get(id_), _Manifest)
    except ValueError as error:
        raise JournalError(
            f"the entry {id_} of {pack.path} is no candidate: {error}",
            hint="a record was changed by something else: restore the files from a copy",
        ) from error
    texts = {
        path: pack.get(key).decode("utf-8", "surrogateescape")
        for path, key in manifest.texts.items()
    }
    return Candidate(texts, manifest.blobs)


def read_events(path: Path) -> Iterator[Event]:
    """The events of a spine; a torn last line is left out."""
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise JournalError(f"{path.parent} is not a run: it has no {path.name}") from error
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield wire.decode_event(line)
        except ValueError as error:
            raise damaged(path, number, error) from error


def read_cancelled(path: Path, start: int) -> list[tuple[int, Job, Usage]]:
    """Step, job and usage of every rollout that was stopped in flight, behind an offset."""
    lines = (line for line in lines_from(path, start) if line.startswith(_CANCELLED))
    rows = (read_line(line, path) for line in lines)
    return [(row.step, row.job, row.usage) for row in rows if isinstance(row, wire.CancelledLine)]


def read_line(line: bytes, path: Path) -> wire.Line | None:
    """A line of the rollout file; a damaged one is named and left out: it is asked for again."""
    try:
        return wire.decode_line(line)
    except ValueError as error:
        left_out(path, line, error)
        return None


def read_reply(pack: Pack, row: wire.CallLine, kind: type[T], path: Path) -> T | Failure | None:
    """What was answered to a call; a damaged one is named and left out: it is asked for again."""
    raw = raw_reply(pack, row, path)
    if raw is None:
        return None
    try:
        return wire.decode(raw, Failure) if row.failed else wire.decode(raw, kind)
    except ValueError as error:
        left_out(path, _start_of(row), error)
        return None


def raw_reply(pack: Pack, row: wire.CallLine, path: Path) -> bytes | None:
    """A reply as it was written down, here or in the pack; None where nothing says which."""
    if not row.stored:
        return bytes(row.reply)
    try:
        return pack.get(wire.decode(row.reply, str))
    except ValueError as error:
        left_out(path, _start_of(row), error)
        return None


def _start_of(row: wire.CallLine) -> bytes:
    """What no other line has: the same request may be made in another scope."""
    return b'"scope":' + wire.encode(row.scope) + b',"key":' + wire.encode(row.key)


def lines_from(path: Path, start: int) -> Iterator[bytes]:
    """Whole lines behind an offset."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if line.endswith(b"\n"):
                yield line


def matching_lines(path: Path, needles: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines that hold one of these, found without reading the others as records."""
    wanted = tuple(needles)
    if not wanted or not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        find = _finder(wanted)
        hit = find(data, 0)
        while hit >= 0:
            start = data.rfind(b"\n", 0, hit) + 1
            end = data.find(b"\n", hit)
            if end < 0:
                return
            yield data[start:end]
            hit = find(data, end + 1)


def _finder(needles: tuple[bytes, ...]) -> Callable[[mmap.mmap, int], int]:
    """What finds the first of these behind an offset; -1 where there is none."""
    if len(needles) == 1:
        # most often, and four times as fast as an expression
        return lambda data, at: data.find(needles[0], at)
    search = re.compile(b"|".join(map(re.escape, needles))).search

    def find(data: mmap.mmap, at: int) -> int:
        hit = search(data, at)
        return -1 if hit is None else hit.start()

    return find
