"""Writer of a run's journal: the spine of events, the rollout lines, the pack.

    journal.jsonl     events; the state is their fold
    rollouts.jsonl    one line per rollout, finished or stopped in flight, or per call
    blobs.pack        traces, large replies, candidates
    steps.idx         short rows of the closed steps, with their offsets in the spine
    exports.jsonl     digests of the files that the run wrote outside its folder

It does not interpret the events.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from kept.core.artifact import Candidate
from kept.core.event import Event, Proposed, RunResumed, RunStarted, StepClosed, StepOpened
from kept.core.ports import Priced
from kept.core.rollout import FREE, Failure, Job, TraceItem, Usage
from kept.core.score import Outcome
from kept.errors import JournalError, RunError
from kept.settings import secrets
from kept.store import codec
from kept.store.candidate_files import make_folder, unwritable
from kept.store.codec import Scrub
from kept.store.export_digests import Exports
from kept.store.jsonl import (
    Appender,
    Closed,
    closed_sizes,
    left_out,
    load_candidate,
    matching_lines,
    raw_reply,
    read_events,
    read_line,
    read_reply,
    rollout_lines,
    stored_lines,
)
from kept.store.lock import Lock
from kept.store.pack import Pack
from kept.store.step_index import INDEX, index_record, mend_steps

R = TypeVar("R", bound=Priced)
C = TypeVar("C", bound=Priced | Failure)

SYNC_EVERY = 0.1
"""Seconds between two syncs; verdicts in between share one."""

ROWS = 32
"""Number of rows of the step index that are written together."""

INLINE = 2048
"""Maximum bytes of a reply in the rollout file; larger ones go to the pack."""

_OPEN = (RunStarted, RunResumed, Proposed)
"""Events with free-form parts from a plan or proposal, which may not be readable as JSON."""

_ROLLOUT = b'"kind":"rollout"'
"""Bytes that mark the line of a rollout."""

_NULL = b":null"
"""Encoding of None, and of numbers that JSON lacks (NaN, infinity)."""

log = logging.getLogger("kept")


class RunJournal:
    """Writer of a run's journal; implements `kept.core.ports.Journal`."""

    def __init__(self, folder: Path) -> None:
        try:
            make_folder(folder.parent)
            folder.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise unwritable(folder, error) from error
        self.folder = folder
        self._scrub = Scrub(secrets())
        self._clean = self._scrub.clean
        self._lock = Lock(folder)
        with ExitStack() as opened:
            opened.callback(self._lock.release)
            closed = closed_sizes(folder)
            self._spine = Appender(folder / "journal.jsonl")
            opened.callback(self._spine.close)
            self._rollouts = Appender(folder / "rollouts.jsonl", codec.encode(codec.HeaderLine()))
            opened.callback(self._rollouts.close)
            mended = mend_steps(folder)
            self._row_maker = mended.maker
            # a cut file: new lines must not get offsets inside the range of a recorded step
            self._rollouts.size = max(self._rollouts.size, mended.rollouts_end)
            self._steps = Appender(folder / INDEX)
            opened.callback(self._steps.close)
            self._pack = Pack(folder, writable=True)
            opened.callback(self._pack.close)
            self.exports = Exports(folder)
            self._tell_damage(closed)
            opened.pop_all()
        self._rows: list[bytes] = []
        """Rows of the step index that are not written yet; readers rebuild missing rows."""
        self._calls: defaultdict[str, defaultdict[str, list[codec.CallLine]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._closed = False
        self._syncing = threading.Lock()
        self._unsynced = threading.Event()
        self._syncer: threading.Thread | None = None
        self._sync_error: JournalError | None = None

    def _tell_damage(self, closed: Closed | None) -> None:
        """Warn of data that were moved aside or are missing; a resume redoes them."""
        for part in (self._spine, self._rollouts, self._pack):
            if part.dropped:
                name = part.path.name
                what = "entry" if part is self._pack else "line"
                text = "%s: the last %s was cut off by a crash; its %d bytes were moved to %s.torn"
                log.warning(text, name, what, part.dropped, name)
        if closed is not None and self._spine.size < closed.journal:
            missing = closed.journal - self._spine.size
            text = "journal.jsonl: %d bytes are missing at its end; what they held is done again"
            log.warning(text, missing)

    @property
    def events(self) -> Iterator[Event]:
        """All events that were written, oldest first."""
        return read_events(self._spine.path)

    @property
    def rollouts_size(self) -> int:
        """Offset in the rollout file at which the next line is written."""
        return self._rollouts.size

    def append(self, event: Event) -> None:
        """Write one event."""
        if self._sync_error is not None:
            raise self._sync_error
        line = self._clean(codec.encode(event))
        # an unexpected null may be NaN: such lines are read back before they are written
        if isinstance(event, _OPEN) or line.count(_NULL) > _nones(event):
            check_readable(line, codec.decode_event)
        if not isinstance(event, StepOpened | Proposed):
            # these two refer to no new entries of the pack; others may
            self._pack.flush()
        at = self._spine.write(line + b"\n")
        row = self._row_maker.hear(event, at, self._spine.size - at)
        if row is not None:
            self._rows.append(self._clean(index_record(row)) + b"\n")
            if len(self._rows) >= ROWS:
                self._write_rows()

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        # rows lost to a full disk are rebuilt from the spine by readers
        with suppress(JournalError):
            self._steps.write(b"".join(rows))

    def record(self, rows: Sequence[tuple[int, Job, Outcome]]) -> None:
        """Write finished rollouts in one go."""
        lines = self._scrub.clean_lines(codec.encode_rollouts(rows))
        if _NULL in lines:
            for line in lines.splitlines():
                check_readable(line, codec.decode_line)
        self._pack.flush()
        self._rollouts.write(lines)

    def record_cancelled(self, rows: Sequence[tuple[int, Job, Usage]]) -> None:
        """Write the usage of rollouts that were stopped in flight."""
        if rows:
            lines = [codec.CancelledLine(step, *job, usage) for step, job, usage in rows]
            self._rollouts.write(b"".join(codec.encode(line) + b"\n" for line in lines))

    def cancelled(self, start: int) -> Sequence[tuple[int, Job, Usage]]:
        """Step, job and usage of each rollout that was stopped in flight, behind an offset."""
        rows = (row for row in self._tail(start) if isinstance(row, codec.CancelledLine))
        return [(row.step, row.job, row.usage) for row in rows]

    def outcomes(self, candidates: Iterable[str]) -> Sequence[tuple[Job, Outcome]]:
        """All recorded outcomes of these candidates, oldest first."""
        wanted = set(candidates)
        needles = (f'"candidate":"{id_}"'.encode() for id_ in wanted)
        found: list[tuple[Job, Outcome]] = []
        for line in matching_lines(self._rollouts.path, needles):
            row = read_line(line, self._rollouts.path)
            if isinstance(row, codec.RolloutLine) and row.candidate in wanted:
                found.append(row.entry())
        return found

    def recorded(self, start: int, end: int) -> Iterator[tuple[int, Job, Outcome]]:
        """Step, job and outcome of every rollout between two offsets, oldest first."""
        for row in rollout_lines(self._rollouts.path, start, end, needles=(_ROLLOUT,)):
            if isinstance(row, codec.RolloutLine):
                yield (row.step, *row.entry())

    def record_call(self, scope: str, key: str, reply: C, *, unpriced: bool = False) -> C:
        """Write a reply and return it as written, without secrets."""
        whole = codec.encode(reply)
        raw = self._clean(whole)
        failed = isinstance(reply, Failure)
        row = codec.CallLine(scope, key, msgspec.Raw(raw), failed, unpriced=unpriced)
        self._calls[scope][key].append(row)
        if len(raw) > INLINE:
            address = msgspec.Raw(codec.encode(self._pack.put(raw)))
            row = msgspec.structs.replace(row, reply=address, stored=True)
            # only now the line refers to the pack, which must be written first
            self._pack.flush()
        self._rollouts.write(codec.encode(row) + b"\n")
        return reply if raw is whole else codec.decode(raw, type(reply))

    def calls(self, scope: str, key: str, reply: type[R]) -> Sequence[R | Failure]:
        """Replies recorded in this scope for this request, oldest first."""
        found: list[R | Failure] = []
        for row in self._calls[scope][key] if scope in self._calls else ():
            try:
                one = read_reply(self._pack, row, reply, self._rollouts.path)
            except JournalError as error:
                log.warning("%s; the call is made again", error.message)
            else:
                found += [] if one is None else [one]
        return found

    def heard(self, scope: str) -> bool:
        """True if any reply of this scope is in memory."""
        return scope in self._calls

    def paid(self) -> Mapping[str, Usage]:
        """Usage of the calls in memory, by scope."""
        return {
            scope: sum((self._used(row) for rows in keys.values() for row in rows), FREE)
            for scope, keys in self._calls.items()
        }

    def unpriced(self) -> Mapping[str, float]:
        """Cost in US dollars of the dearest unpriced call in memory, by scope."""
        found: dict[str, float] = {}
        for row in (row for keys in self._calls.values() for rows in keys.values() for row in rows):
            if row.unpriced:
                found[row.scope] = max(found.get(row.scope, 0.0), self._used(row).usd)
        return found

    def _used(self, row: codec.CallLine) -> Usage:
        try:
            raw = raw_reply(self._pack, row, self._rollouts.path)
        except JournalError:
            return FREE  # reported when the call is made again
        return FREE if raw is None else codec.usage_of(raw)

    def forget_calls(self, scope: str) -> None:
        """Drop the calls of a scope and of its branches from memory."""
        if self._calls:
            below = scope + "/"
            for known in [s for s in self._calls if s == scope or s.startswith(below)]:
                del self._calls[known]

    def tail(self, start: int) -> Sequence[tuple[int, Job, Outcome]]:
        """Step, job and outcome of each rollout behind an offset; loads its calls into memory."""
        found: list[tuple[int, Job, Outcome]] = []
        for row in self._tail(start):
            if isinstance(row, codec.CallLine):
                self._calls[row.scope][row.key].append(row)
            elif isinstance(row, codec.RolloutLine):
                found.append((row.step, *row.entry()))
        return found

    def _tail(self, start: int) -> Iterator[codec.Line]:
        """Yield the records behind an offset; damaged lines are moved aside and requested again."""
        path = self._rollouts.path
        for one in stored_lines(path, start):
            row, problem = None, one.problem
            if not problem:
                try:
                    row = codec.decode_line(one.line)
                except ValueError as error:
                    problem = str(error)
            if row is not None:
                yield row
            elif one.line:
                left_out(path, one.line, problem, one.at)
                self._rollouts.blank_out(one.at, one.line)
            else:
                log.warning("%s: %s; what they held is asked for again", path.name, problem)

    def save(self, candidate: Candidate) -> bool:
        """Store a candidate, each distinct text only once; True if it was new."""
        if candidate.id in self._pack and self._is_stored(candidate.id):
            return False
        texts = {path: self._put_text(text) for path, text in candidate.texts.items()}
        manifest = {"texts": texts, "blobs": dict(candidate.blobs)}
        self._pack.put(codec.encode(manifest), candidate.id)
        return True

    def _is_stored(self, id_: str) -> bool:
        """True if all of a candidate can be read; else its damaged parts are stored again."""
        try:
            load_candidate(self._pack, id_)
        except JournalError:
            return False
        return True

    def load(self, candidate: str) -> Candidate:
        """Load a stored candidate."""
        return load_candidate(self._pack, candidate)

    def put(self, value: object) -> str:
        """Store a value as JSON and return its address."""
        return self._pack.put(self._clean(codec.encode(value)))

    def trace(self, address: str) -> tuple[TraceItem, ...]:
        """Load a stored trace."""
        return codec.decode(self._pack.get(address), tuple[TraceItem, ...])

    def sync(self) -> None:
        """Request a sync to disk in the background; only `close` waits for it."""
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._keep_syncing, daemon=True)
            self._syncer.start()
        if not self._unsynced.is_set():
            self._unsynced.set()

    def close(self) -> None:
        """Write and sync everything, then release the lock."""
        try:
            with self._syncing:
                try:
                    self._pack.flush()
                    self._sync_now()
                    sizes = Closed(self._spine.size, self._rollouts.size, self.exports.size)
                    self._rows.append(codec.encode(sizes) + b"\n")
                    self._write_rows()
                finally:
                    for part in (self._spine, self._rollouts, self._steps, self.exports):
                        part.close()
                    self._closed = True
                    self._pack.close()
        finally:
            # released even if writing failed
            self._unsynced.set()
            self._lock.release()

    def _keep_syncing(self) -> None:
        while True:
            self._unsynced.wait()
            self._unsynced.clear()
            with self._syncing:
                if self._closed:
                    return
                try:
                    self._sync_now()
                except JournalError as error:
                    self._sync_error = error
                    return
            time.sleep(SYNC_EVERY)

    def _sync_now(self) -> None:
        # in this order: data must be on disk before the spine refers to them
        for part in (self._pack, self._rollouts, self._spine):
            part.sync()

    def _put_text(self, text: str) -> str:
        return self._pack.put(text.encode("utf-8", "surrogateescape"))


def _nones(event: Event) -> int:
    """Number of None fields that are allowed in the most common events."""
    if isinstance(event, StepOpened):
        return (event.turn.passes is None) + (event.turn.parent is None)
    if isinstance(event, StepClosed):
        calls = (event.dearest.proposing, event.dearest.rollout)
        return (event.candidate, event.given_up, *calls).count(None)
    return 0


def check_readable(line: bytes, read: Callable[[bytes], object]) -> None:
    """Raise for a line that could not be read back, such as one with NaN or infinity."""
    try:
        read(line)
    except ValueError as error:
        raise RunError(
            f"this cannot be written down: {error}",
            hint="a proposer, a runner or a scorer returned a value of the wrong kind",
        ) from error
