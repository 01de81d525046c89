"""Reading the files of a run, line by line. Takes no lock and writes nothing.

Every line is verified by its checksum before it is decoded. Offsets are those that lines were
written at: a file that something else has changed is searched for them.
"""

import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec

from kept.core.artifact import Candidate
from kept.core.event import Event
from kept.core.rollout import Failure
from kept.errors import JournalError
from kept.store import wire
from kept.store.damage import cut_off, damaged, damaged_at, end_missing, left_out, naming
from kept.store.lock import holder
from kept.store.pack import Pack

T = TypeVar("T")

INDEX = "steps.idx"
"""The index of closed steps; its last line tells how long the files were when the run closed."""


LAST_LINES = 1 << 16
"""Bytes at the end of a file that are searched for the last step."""

_STEP = re.compile(rb'"step":(\d+)')
_ROLLOUT_OF = re.compile(rb'"kind":"rollout","step":(\d+)')


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
    candidate = Candidate(texts, manifest.blobs)
    if candidate.id != id_:
        raise JournalError(
            f"{pack.path}: the candidate {id_} is not what was stored",
            hint="the file was changed by something else: restore it from a copy",
        )
    return candidate


class Closed(msgspec.Struct, tag="closed", tag_field="kind"):
    """How long the files of a run were when its last session ended in good order."""

    journal: int
    rollouts: int
    exports: int = 0


def closed_sizes(folder: Path) -> Closed | None:
    """The last line of the index of steps, if the run was closed in good order."""
    try:
        with (folder / INDEX).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 256))
            lines = file.read().splitlines(keepends=True)[-1:]
    except OSError:
        return None
    try:
        wire.unseal(lines[0] if lines else b"")
        return wire.decode(lines[0], Closed)
    except ValueError:
        return None


def check_whole(spine: Path, end: int) -> None:
    """Refuse a spine whose last whole line ends before it ended when the run was closed.

    A run that was killed has no record of its end: warns where it has rollouts of a later step.
    """
    closed = closed_sizes(spine.parent)
    if closed is not None and end < closed.journal:
        raise cut_off(spine, end, closed.journal - end)
    if closed is None and holder(spine.parent) is None:
        later = _last_step(spine.with_name("rollouts.jsonl"), _ROLLOUT_OF)
        # of a run that came to its end meanwhile, all is there by now
        if later > max(_last_step(spine, _STEP), 0):
            end_missing(spine, later)


def _last_step(path: Path, pattern: re.Pattern[bytes]) -> int:
    """The highest step that the last lines of a file tell of; -1 where they tell of none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LAST_LINES))
            return max(map(int, pattern.findall(file.read())), default=-1)
    except FileNotFoundError:
        return -1


def event_of(line: bytes, at: int) -> Event:
    """The event of a line that stands at an offset; raises `ValueError` on a damaged one."""
    written = wire.unseal(line)
    if written != at:
        raise ValueError(
            f"it was written at byte {written} and stands at byte {at}, a line above is missing"
        )
    return wire.decode_event(line)


def read_events(path: Path, *, whole: bool = True) -> Iterator[Event]:
    """The events of a spine; a torn last line is left out.

    With `whole`, raises `JournalError` at the end of a spine that was cut after the run closed.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise JournalError(f"{path.parent} is not a run: it has no {path.name}") from error
    at = 0
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            yield event_of(line, at)
        except ValueError as error:
            raise damaged(path, number, error) from error
        at += len(line) + 1
    if whole:
        check_whole(path, at)


class StoredLine(NamedTuple):
    """A line of the rollout file, or a place where lines are missing."""

    at: int
    """Where it stands now."""
    line: bytes
    """Empty where lines are missing."""
    problem: str = ""
    """What is wrong with it; empty for a line that is as it was written."""


def stored_lines(
    path: Path, start: int = 0, end: int | None = None, *, least: int | None = 0
) -> Iterator[StoredLine]:
    """The whole lines of the rollout file that were written from one offset up to another.

    Damaged lines, and places where lines are missing, come with their problem. Blank lines are
    passed over: they take the place of damaged ones that were moved aside and asked for again.
    Without an `end`, `least` is an offset that the file must reach, besides what it had when the
    run was closed; None allows any end.
    """
    if not path.exists():
        if least or end:
            yield StoredLine(0, b"", "the file is missing")
        return
    with path.open("rb") as file:
        at = start if _stands_at(file, start) else 0
        file.seek(at)
        known = at  # where the lines so far ended when they were written
        due: int | None = at  # where the next line was written; None behind a damaged one
        for line in file:
            if not line.endswith(b"\n"):
                break
            written, problem = known, ""
            try:
                written = wire.unseal(line)
            except ValueError as error:
                problem = str(error)
            blank = bool(problem) and line.isspace()
            if not problem and due is not None and written > due:
                if written > start and (end is None or due < end):
                    yield StoredLine(at, b"", f"{written - due} bytes are missing before it")
            elif not problem and written < known:
                problem = f"it was written at byte {written}, before the line above it"
            if end is not None and written >= end:
                return
            if written >= start and not blank:
                yield StoredLine(at, line, problem)
            at += len(line)
            known = max(known, written + len(line))
            due = None if problem and not blank else known
    last = _required_end(path, start, least) if end is None else end
    if due is not None and due < last:
        yield StoredLine(at, b"", f"the file ends here, and {last - due} bytes are missing")


def _required_end(path: Path, start: int, least: int | None) -> int:
    if least is None:
        return 0
    closed = closed_sizes(path.parent)
    return max(start, least, closed.rollouts if closed else 0)


def rollout_lines(
    path: Path,
    start: int = 0,
    end: int | None = None,
    *,
    least: int | None = 0,
    needles: Sequence[bytes] = (),
) -> Iterator[wire.Line]:
    """The records of the rollout file in a range, all or those that hold one of `needles`.

    Raises `JournalError` on a damaged or missing line: to leave it out would change a figure.
    """
    wanted = re.compile(b"|".join(map(re.escape, needles))).search
    for one in stored_lines(path, start, end, least=least):
        if one.problem:
            raise damaged_at(path, one.at, one.problem)
        if not wanted(one.line):
            continue
        with naming(path, one.at):
            row = wire.decode_line(one.line)
        yield row


def read_line(line: bytes, path: Path) -> wire.Line | None:
    """A line of the rollout file; a damaged one is named and left out: it is asked for again."""
    try:
        wire.unseal(line)
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


def _stands_at(file: BinaryIO, at: int) -> bool:
    """True if the line that was written at an offset stands there, or if the file ends there."""
    file.seek(at)
    line = file.readline()
    try:
        return wire.unseal(line) == at if line else file.tell() == at == file.seek(0, 2)
    except ValueError:
        return False


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
