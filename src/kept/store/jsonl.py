"""Append-only JSONL files with checksums: writing, reading, and reports of damage.

Every line reaches the kernel before `write` returns, so it survives a killed process; `sync`
makes it survive a lost machine. A line truncated by a crash is moved to `NAME.torn` when the file
is opened; no bytes are discarded.

Reading takes no lock and writes nothing. Every line is verified by its checksum before it is
decoded. Lines hold the offset at which they were written; if another program changed the file,
they are searched for. Damage is reported by file and line.
"""

import logging
import mmap
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

import msgspec

from kept.core.artifact import Candidate
from kept.core.event import Event, RunResumed, RunStarted
from kept.core.rollout import Failure
from kept.errors import JournalError
from kept.store import codec
from kept.store.candidate_files import SPACE, set_aside
from kept.store.lock import holder
from kept.store.pack import Pack


class Appender:
    """Writer of one file."""

    __slots__ = ("_fd", "dropped", "path", "size")

    def __init__(self, path: Path, header: bytes = b"") -> None:
        """Open a file; a new one starts with the record `header`."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot("open", path, error) from error
        self.size = os.fstat(self._fd).st_size
        """Offset at which the next line is written."""
        try:
            self.dropped = self._drop_torn_line()
            """Number of bytes of an unfinished last line that were moved aside."""
            self.size = max(self.size, self._end_of_last_line())
            if header and self.size == 0:
                self.write(header + b"\n")
        except OSError as error:
            self.close()
            raise _cannot("write", path, error) from error
        except JournalError:
            self.close()
            raise

    def write(self, records: bytes) -> int:
        """Append JSON objects, each with its newline; return the offset of the first line."""
        start = self.size
        lines: list[bytes] = []
        at = start
        for record in records.split(b"\n")[:-1]:
            line = codec.seal(record, at)
            lines.append(line)
            at += len(line)
        data = b"".join(lines)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
        except OSError as error:
            self._take_back(written)
            raise _cannot("write", self.path, error) from error
        self.size = at
        return start

    def sync(self) -> None:
        """Sync written data to disk."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _cannot("sync", self.path, error) from error

    def blank_out(self, at: int, line: bytes) -> None:
        """Move a damaged line aside; spaces replace it, so that other lines keep their offsets."""
        try:
            set_aside(self.path, line)
            # `pwrite` ignores its offset on a descriptor with O_APPEND
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(fd, b" " * (len(line) - 1) + b"\n", at)
            finally:
                os.close(fd)
        except OSError as error:
            raise _cannot("write", self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_back(self, written: int) -> None:
        """Remove a half-written line, so that the file stays valid."""
        try:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
        except OSError:
            return  # dropped as a torn line when next opened; the first error is raised

    def _drop_torn_line(self) -> int:
        if self.size == 0 or os.pread(self._fd, 1, self.size - 1) == b"\n":
            return 0
        end = self._line_start(self.size)
        torn = os.pread(self._fd, self.size - end, end)
        set_aside(self.path, torn + b"\n")
        os.ftruncate(self._fd, end)
        self.size = end
        return len(torn)

    def _end_of_last_line(self) -> int:
        """Offset of the last line's end when it was written; lines before it may be missing now."""
        if self.size == 0:
            return 0
        start = self._line_start(self.size - 1)
        line = os.pread(self._fd, self.size - start, start)
        try:
            return codec.unseal(line) + len(line)
        except ValueError:
            return self.size

    def _line_start(self, end: int) -> int:
        """Offset behind the last newline before an offset."""
        while end > 0:
            start = max(0, end - 65536)
            at = os.pread(self._fd, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0


def _cannot(what: str, path: Path, error: OSError) -> JournalError:
    return JournalError(f"cannot {what} {path}: {error.strerror}", hint=SPACE)


log = logging.getLogger("kept")

LARGEST = 64 << 20
"""Maximum size in bytes of a rollout file that is searched for a line."""


_HINT = (
    "the file was changed by something else: restore it from a copy; "
    "`kept doctor RUN` says what is damaged and what can be recovered"
)


def damaged(path: Path | str, number: int, why: object) -> JournalError:
    """Error for a line that was changed."""
    return JournalError(f"{path}:{number}: not a record of this journal ({why})", hint=_HINT)


@cache
def end_missing(spine: Path, later: int) -> None:
    """Warn once that the records of a step are missing from the end of a spine."""
    text = "%s: the end is missing: rollouts.jsonl has rollouts of step %d; what is told is earlier"
    log.warning(f"{text}, and `kept resume` does those steps again", spine, later)


def misplaced(path: Path | str, number: int, why: object) -> JournalError:
    """Error for a record of a spine that cannot follow those before it."""
    hint = "the file was changed by something else: a line before this one may be missing or moved"
    return JournalError(f"{path}:{number}: {why}", hint=f"{hint}; restore it from a copy")


def never_began(spine: Path) -> JournalError:
    """Error for an empty spine: the run ended at once, or another program emptied it."""
    rollouts = spine.with_name("rollouts.jsonl")
    if rollouts.exists() and rollouts.read_bytes().count(b"\n") > 1:  # more than its header
        hint = f"{rollouts.name} beside it is not: restore the file from a copy"
        return JournalError(f"{spine} is empty: something else emptied it", hint=hint)
    hint = "start it again; nothing was spent"
    return JournalError(f"{spine} is empty: the run ended before it began", hint=hint)


def damaged_at(path: Path, at: int, why: object) -> JournalError:
    """Error for a changed line, given by its offset."""
    return damaged(path, line_number(path, at), why)


@contextmanager
def naming(path: Path, at: int) -> Generator[None]:
    """Convert a `ValueError` into a `JournalError` that names the line at an offset."""
    try:
        yield
    except ValueError as error:
        raise damaged_at(path, at, error) from error


def left_out(path: Path, line: bytes, why: object, at: int = -1) -> None:
    """Warn that a line of the rollout file is skipped; its content is requested again.

    A line without a given offset is searched for.
    """
    # not in larger files: it is slow, and there may be many such lines
    if at < 0 and path.stat().st_size <= LARGEST and line.strip():
        at = path.read_bytes().find(line.strip())
    place = f"{path.name}:{line_number(path, at)}" if at >= 0 else path.name
    log.warning("%s: a damaged line is left out (%s): %.80r", place, why, line)


def line_number(path: Path, at: int) -> int:
    """Number of the line that begins at an offset, from 1."""
    if not path.exists():
        return 1
    with path.open("rb") as file:
        return file.read(at).count(b"\n") + 1


T = TypeVar("T")

INDEX = "steps.idx"
"""Name of the index of closed steps; its last line has the file sizes when the run closed."""


LAST_LINES = 1 << 16
"""Number of bytes at the end of a file that are searched for the last step."""

_STEP = re.compile(rb'"step":(\d+)')
_ROLLOUT_OF = re.compile(rb'"kind":"rollout","step":(\d+)')


class _Manifest(msgspec.Struct):
    """Pack entry of a candidate: keys of its texts, by path."""

    texts: dict[str, str]
    blobs: dict[str, str]


def load_candidate(pack: Pack, id_: str) -> Candidate:
    """Load a candidate from a pack."""
    try:
        manifest = codec.decode(pack.get(id_), _Manifest)
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
    """File sizes of a run when its last session ended in good order."""

    journal: int
    rollouts: int
    exports: int = 0


def closed_sizes(folder: Path) -> Closed | None:
    """Read the last line of the step index; None if the run was not closed in good order."""
    try:
        with (folder / INDEX).open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 256))
            lines = file.read().splitlines(keepends=True)[-1:]
    except OSError:
        return None
    try:
        codec.unseal(lines[0] if lines else b"")
        return codec.decode(lines[0], Closed)
    except ValueError:
        return None


def check_whole(spine: Path, end: int) -> None:
    """Raise if a spine is shorter than when the run was closed.

    A killed run has no record of its end: warns if it has rollouts of a later step.
    """
    closed = closed_sizes(spine.parent)
    if closed is not None and end < closed.journal:
        missing = closed.journal - end
        why = f"the file ends here, and {missing} bytes that were written are missing"
        raise JournalError(f"{spine}:{line_number(spine, end)}: {why}", hint=_HINT)
    if closed is None and holder(spine.parent) is None:
        later = _last_step(spine.with_name("rollouts.jsonl"), _ROLLOUT_OF)
        # the spine is read again: the run may have ended meanwhile
        if later > max(_last_step(spine, _STEP), 0):
            end_missing(spine, later)


def _last_step(path: Path, pattern: re.Pattern[bytes]) -> int:
    """Highest step in the last lines of a file; -1 without any."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - LAST_LINES))
            return max(map(int, pattern.findall(file.read())), default=-1)
    except FileNotFoundError:
        return -1


def event_of(line: bytes, at: int) -> Event:
    """Decode the event of a line at an offset; raises `ValueError` if it is damaged."""
    written = codec.unseal(line)
    if written != at:
        raise ValueError(
            f"it was written at byte {written} and stands at byte {at}, a line above is missing"
        )
    return codec.decode_event(line)


def read_events(path: Path, *, whole: bool = True) -> Iterator[Event]:
    """Yield the events of a spine, without a torn last line.

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
    """Its offset in the file now."""
    line: bytes
    """Empty for a place where lines are missing."""
    problem: str = ""
    """Description of the damage; empty for an intact line."""


def stored_lines(
    path: Path, start: int = 0, end: int | None = None, *, least: int | None = 0
) -> Iterator[StoredLine]:
    """Yield the complete lines of the rollout file that were written in a range of offsets.

    Damaged lines and places of missing lines have a `problem`. Blank lines are skipped: they
    replace damaged ones that were moved aside and requested again. Without an `end`, the file must
    reach `least` and its size when the run was closed; `least=None` allows any end.
    """
    if not path.exists():
        if least or end:
            yield StoredLine(0, b"", "the file is missing")
        return
    with path.open("rb") as file:
        # if another program moved lines, the range is searched from the start of the file
        at = start if _stands_at(file, start) else 0
        file.seek(at)
        walk = _Walk(at)
        earlier: StoredLine | None = None  # damaged, begins before the range and may reach into it
        for one, written, missing in walk.lines(file):
            if missing and written > start and (end is None or written - missing < end):
                yield StoredLine(one.at, b"", f"{missing} bytes are missing before it")
            if not one.problem:
                if earlier is not None and written > start:
                    yield earlier
                earlier = None
            if end is not None and written >= end:
                return
            if written >= start:
                yield one
            elif one.problem:
                earlier = one
    last = _required_end(path, start, least) if end is None else end
    if walk.due is not None and walk.due < last:
        missing = last - walk.due
        yield StoredLine(walk.at, b"", f"the file ends here, and {missing} bytes are missing")
    elif earlier is not None and walk.known != last:
        yield earlier


class _Walk:
    """Walks over the lines of the rollout file and tracks their original offsets."""

    def __init__(self, at: int) -> None:
        self.at = at
        """Offset of the next line in the file now."""
        self.known = at
        """Original end offset of the lines so far."""
        self.due: int | None = at
        """Expected original offset of the next line; None behind a damaged line."""

    def lines(self, file: BinaryIO) -> Iterator[tuple[StoredLine, int, int]]:
        """Yield each non-blank line, its original offset and the number of bytes missing before.

        A damaged line gets the original end offset of the lines before it.
        """
        for line in file:
            if not line.endswith(b"\n"):
                return
            written, missing, problem = self.known, 0, ""
            try:
                written = codec.unseal(line)
            except ValueError as error:
                problem = str(error)
            blank = bool(problem) and line.isspace()
            if not problem and self.due is not None and written > self.due:
                missing = written - self.due
            elif not problem and written < self.known:
                problem = f"it was written at byte {written}, before the line above it"
            one = StoredLine(self.at, line, problem)
            self.at += len(line)
            self.known = max(self.known, written + len(line))
            self.due = None if problem and not blank else self.known
            if not blank:
                yield one, written, missing


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
) -> Iterator[codec.Line]:
    """Yield the records of the rollout file in a range, all or those with one of `needles`.

    Raises `JournalError` for a damaged or missing line: figures without it would be wrong.
    """
    wanted = re.compile(b"|".join(map(re.escape, needles))).search
    for one in stored_lines(path, start, end, least=least):
        if one.problem:
            raise damaged_at(path, one.at, one.problem)
        if not wanted(one.line):
            continue
        with naming(path, one.at):
            row = codec.decode_line(one.line)
        yield row


def read_line(line: bytes, path: Path) -> codec.Line | None:
    """Decode a line of the rollout file; warns and returns None if it is damaged."""
    try:
        codec.unseal(line)
        return codec.decode_line(line)
    except ValueError as error:
        left_out(path, line, error)
        return None


def read_reply(pack: Pack, row: codec.CallLine, kind: type[T], path: Path) -> T | Failure | None:
    """Decode the reply to a call; warns and returns None if it is damaged."""
    raw = raw_reply(pack, row, path)
    if raw is None:
        return None
    try:
        return codec.decode(raw, Failure) if row.failed else codec.decode(raw, kind)
    except ValueError as error:
        left_out(path, _start_of(row), error)
        return None


def raw_reply(pack: Pack, row: codec.CallLine, path: Path) -> bytes | None:
    """Bytes of a reply, from the line or the pack; warns and returns None for a bad address."""
    if not row.stored:
        return bytes(row.reply)
    try:
        return pack.get(codec.decode(row.reply, str))
    except ValueError as error:
        left_out(path, _start_of(row), error)
        return None


def _start_of(row: codec.CallLine) -> bytes:
    """Bytes that identify a call's line: its scope and key (a key may recur in other scopes)."""
    return b'"scope":' + codec.encode(row.scope) + b',"key":' + codec.encode(row.key)


def lines_from(path: Path, start: int) -> Iterator[bytes]:
    """Yield the complete lines behind an offset."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if line.endswith(b"\n"):
                yield line


def _stands_at(file: BinaryIO, at: int) -> bool:
    """True if the line written at an offset is still there, or if the file ends there."""
    file.seek(at)
    line = file.readline()
    try:
        return codec.unseal(line) == at if line else file.tell() == at == file.seek(0, 2)
    except ValueError:
        return False


def matching_lines(path: Path, needles: Iterable[bytes]) -> Iterator[bytes]:
    """Yield complete lines that contain one of these, without decoding any."""
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
    """Return a function that finds the first needle behind an offset; it returns -1 for none."""
    if len(needles) == 1:
        # the usual case; four times as fast as a regular expression
        return lambda data, at: data.find(needles[0], at)
    search = re.compile(b"|".join(map(re.escape, needles))).search

    def find(data: mmap.mmap, at: int) -> int:
        hit = search(data, at)
        return -1 if hit is None else hit.start()

    return find


def decoded(document: object, kind: type[T], place: str, folder: Path | None = None) -> T:
    """Convert a part of the last start or resume of a run to a type.

    Raises a `JournalError` that names the place and, with a folder, the line. For a dataclass all
    keys are required and no others allowed, because a resume needs the whole request: an unknown
    key was renamed, or asks for a feature that this version lacks. A `TypedDict` drops others.
    """
    try:
        return _converted(document, kind, place)
    except ValueError as error:
        path = folder / "journal.jsonl" if folder else Path("journal.jsonl")
        raise damaged(path, _line_of_settings(path) if folder else 1, error) from error


def _converted(document: object, kind: type[T], place: str) -> T:
    try:
        found = msgspec.convert(document, kind)
        # an empty document is allowed: the run has no such facts
        if document and is_dataclass(kind):
            _check_keys(document, codec.document_of(found), place)
        return found
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise ValueError(f"`{place}{where.removesuffix('`')}`: {what}") from error


def _check_keys(document: object, whole: object, place: str) -> None:
    """Raise a `ValueError` for an unknown or missing key."""
    if isinstance(whole, dict):
        own = msgspec.convert(document, dict[str, object])
        known = msgspec.convert(whole, dict[str, object])
        for name in (*own, *known):
            if name not in known:
                raise ValueError(f"`{place}.{name}` is no key that is known here")
            if name not in own:
                raise ValueError(f"`{place}.{name}` is missing")
            _check_keys(own[name], known[name], f"{place}.{name}")
    elif isinstance(whole, list):
        own_rows = msgspec.convert(document, list[object])
        known_rows = msgspec.convert(whole, list[object])
        for n, (one, other) in enumerate(zip(own_rows, known_rows, strict=True)):
            _check_keys(one, other, f"{place}[{n}]")


def _line_of_settings(path: Path) -> int:
    """Number of the line with the last start or resume."""
    events = enumerate(read_events(path), 1)
    return max(n for n, event in events if isinstance(event, RunStarted | RunResumed))
