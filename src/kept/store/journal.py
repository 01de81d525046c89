"""The journal of one run: the spine of events, the rollout lines, the packs.

    journal.jsonl     events; the state is their fold
    rollouts.jsonl    one line a rollout, finished or stopped in flight, or call
    blobs.pack        traces, large replies, candidates
    steps.idx         the closed steps in short, and where each stands in the spine
    exports.jsonl     digests of the files that the run wrote outside its folder

Does not know what the events mean.
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
"""Seconds between two syncs: verdicts that fall between them share one."""

ROWS = 32
"""Rows of the index of steps that are written together."""

INLINE = 2048
"""Replies up to this many bytes stand in the rollout file itself."""

_OPEN = (RunStarted, RunResumed, Proposed)
"""Events with parts that whoever made a plan, or a proposal, filled as they liked."""

_ROLLOUT = b'"kind":"rollout"'
"""The part of a line of the rollout file that says it is one."""

_NULL = b":null"
"""What a number becomes that JSON has no word for; and a field that is None."""

log = logging.getLogger("kept")


class RunJournal:
    """The writing end of a run's record; implements `kept.core.ports.Journal`."""

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
            # no line may stand where a step on record has its own, though the file was cut
            self._rollouts.size = max(self._rollouts.size, mended.rollouts_end)
            self._steps = Appender(folder / INDEX)
            opened.callback(self._steps.close)
            self._pack = Pack(folder, writable=True)
            opened.callback(self._pack.close)
            self.exports = Exports(folder)
            self._tell_damage(closed)
            opened.pop_all()
        self._rows: list[bytes] = []
        """Of the index of steps, yet to be written: a reader makes those that it lacks."""
        self._calls: defaultdict[str, defaultdict[str, list[codec.CallLine]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._closed = False
        self._syncing = threading.Lock()
        self._unsynced = threading.Event()
        self._syncer: threading.Thread | None = None
        self._sync_error: JournalError | None = None

    def _tell_damage(self, closed: Closed | None) -> None:
        """Warn of what was moved aside or is missing; a resume does it again."""
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
        """Every event that was written, oldest first."""
        return read_events(self._spine.path)

    @property
    def rollouts_size(self) -> int:
        """Bytes of the rollout file."""
        return self._rollouts.size

    def append(self, event: Event) -> None:
        """Write one event."""
        if self._sync_error is not None:
            raise self._sync_error
        line = self._clean(codec.encode(event))
        if isinstance(event, _OPEN) or line.count(_NULL) > _nones(event):
            check_readable(line, codec.decode_event)
        if not isinstance(event, StepOpened | Proposed):
            # those two speak of nothing that the pack does not hold already
            self._pack.flush()
        at = self._spine.write(line + b"\n")
        row = self._row_maker.hear(event, at, self._spine.size - at)
        if row is not None:
            self._rows.append(self._clean(index_record(row)) + b"\n")
            if len(self._rows) >= ROWS:
                self._write_rows()

    def _write_rows(self) -> None:
        rows, self._rows = self._rows, []
        # what a full disk leaves out is made from the spine by whoever reads it
        with suppress(JournalError):
            self._steps.write(b"".join(rows))

    def record(self, rows: Sequence[tuple[int, Job, Outcome]]) -> None:
        """Write finished pairs, in one go."""
        lines = self._scrub.clean_lines(codec.encode_rollouts(rows))
        if _NULL in lines:
            for line in lines.splitlines():
                check_readable(line, codec.decode_line)
        self._pack.flush()
        self._rollouts.write(lines)

    def record_cancelled(self, rows: Sequence[tuple[int, Job, Usage]]) -> None:
        """Write what rollouts used that were stopped in flight."""
        if rows:
            lines = [codec.CancelledLine(step, *job, usage) for step, job, usage in rows]
            self._rollouts.write(b"".join(codec.encode(line) + b"\n" for line in lines))

    def cancelled(self, start: int) -> Sequence[tuple[int, Job, Usage]]:
        """Step, job and usage of every rollout that was stopped in flight, behind an offset."""
        rows = (row for row in self._tail(start) if isinstance(row, codec.CancelledLine))
        return [(row.step, row.job, row.usage) for row in rows]

    def outcomes(self, candidates: Iterable[str]) -> Sequence[tuple[Job, Outcome]]:
        """Every recorded outcome of these candidates, oldest first."""
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
        """Write one reply that arrived; the reply as it was written."""
        whole = codec.encode(reply)
        raw = self._clean(whole)
        failed = isinstance(reply, Failure)
        row = codec.CallLine(scope, key, msgspec.Raw(raw), failed, unpriced=unpriced)
        self._calls[scope][key].append(row)
        if len(raw) > INLINE:
            address = msgspec.Raw(codec.encode(self._pack.put(raw)))
            row = msgspec.structs.replace(row, reply=address, stored=True)
            # else it speaks of nothing in the pack
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
        """Whether any reply of this scope is at hand."""
        return scope in self._calls

    def paid(self) -> Mapping[str, Usage]:
        """What the calls at hand used, by scope."""
        return {
            scope: sum((self._used(row) for rows in keys.values() for row in rows), FREE)
            for scope, keys in self._calls.items()
        }

    def unpriced(self) -> Mapping[str, float]:
        """Dollars of the dearest call at hand that was unpriced, by scope."""
        found: dict[str, float] = {}
        for row in (row for keys in self._calls.values() for rows in keys.values() for row in rows):
            if row.unpriced:
                found[row.scope] = max(found.get(row.scope, 0.0), self._used(row).usd)
        return found

    def _used(self, row: codec.CallLine) -> Usage:
        try:
            raw = raw_reply(self._pack, row, self._rollouts.path)
        except JournalError:
            return FREE  # told where the call is made again
        return FREE if raw is None else codec.usage_of(raw)

    def forget_calls(self, scope: str) -> None:
        """Drop the calls of a scope, and of its branches, from memory."""
        if self._calls:
            below = scope + "/"
            for known in [s for s in self._calls if s == scope or s.startswith(below)]:
                del self._calls[known]

    def tail(self, start: int) -> Sequence[tuple[int, Job, Outcome]]:
        """Step, job and outcome of every rollout behind an offset; calls are at hand again."""
        found: list[tuple[int, Job, Outcome]] = []
        for row in self._tail(start):
            if isinstance(row, codec.CallLine):
                self._calls[row.scope][row.key].append(row)
            elif isinstance(row, codec.RolloutLine):
                found.append((row.step, *row.entry()))
        return found

    def _tail(self, start: int) -> Iterator[codec.Line]:
        """The records behind an offset; damaged lines are moved aside and asked for again."""
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
        """Store a candidate, its texts each once however many hold them; whether it was new."""
        if candidate.id in self._pack and self._is_stored(candidate.id):
            return False
        texts = {path: self._put_text(text) for path, text in candidate.texts.items()}
        manifest = {"texts": texts, "blobs": dict(candidate.blobs)}
        self._pack.put(codec.encode(manifest), candidate.id)
        return True

    def _is_stored(self, id_: str) -> bool:
        """True if all of a candidate can be read; what is damaged is stored again."""
        try:
            load_candidate(self._pack, id_)
        except JournalError:
            return False
        return True

    def load(self, candidate: str) -> Candidate:
        """A candidate that was stored."""
        return load_candidate(self._pack, candidate)

    def put(self, value: object) -> str:
        """Store a value as JSON."""
        return self._pack.put(self._clean(codec.encode(value)))

    def trace(self, address: str) -> tuple[TraceItem, ...]:
        """A trace that was stored."""
        return codec.decode(self._pack.get(address), tuple[TraceItem, ...])

    def sync(self) -> None:
        """Have the disk catch up, in the background: nothing waits for it but `close`."""
        if self._syncer is None:
            self._syncer = threading.Thread(target=self._keep_syncing, daemon=True)
            self._syncer.start()
        if not self._unsynced.is_set():
            self._unsynced.set()

    def close(self) -> None:
        """Everything on disk, the lock released."""
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
            # whatever the disk says, the run is nobody's any more
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
        # what the spine speaks of is on disk before the spine is
        for part in (self._pack, self._rollouts, self._spine):
            part.sync()

    def _put_text(self, text: str) -> str:
        return self._pack.put(text.encode("utf-8", "surrogateescape"))


def _nones(event: Event) -> int:
    """The fields of the commonest events that are None and may be."""
    if isinstance(event, StepOpened):
        return (event.turn.passes is None) + (event.turn.parent is None)
    if isinstance(event, StepClosed):
        calls = (event.dearest.proposing, event.dearest.rollout)
        return (event.candidate, event.given_up, *calls).count(None)
    return 0


def check_readable(line: bytes, read: Callable[[bytes], object]) -> None:
    """Refuse to write what could not be read back: a number that JSON has no word for, say."""
    try:
        read(line)
    except ValueError as error:
        raise RunError(
            f"this cannot be written down: {error}",
            hint="a proposer, a runner or a scorer returned a value of the wrong kind",
        ) from error
