"""A journal in memory, for runs that need no disk.

Holds one list of records in the order they were made, so that a run can be cut behind any of them.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, cast

from kept.core.artifact import Candidate
from kept.core.event import Event
from kept.core.ports import Priced
from kept.core.rollout import FREE, Failure, Job, TraceItem, Usage
from kept.core.score import Outcome
from kept.errors import JournalError

R = TypeVar("R", bound=Priced)
C = TypeVar("C", bound=Priced | Failure)


class RolloutRecord(NamedTuple):
    """One finished pair."""

    step: int
    job: Job
    outcome: Outcome


class CallRecord(NamedTuple):
    """One reply that arrived."""

    scope: str
    key: str
    reply: Priced | Failure
    unpriced: bool = False


class CancelledRecord(NamedTuple):
    """One pair that was cancelled in flight."""

    step: int
    job: Job
    usage: Usage


Line = RolloutRecord | CallRecord | CancelledRecord
Record = Event | Line


@dataclass(slots=True)
class MemoryJournal:
    """Implements `kept.core.ports.Journal`."""

    records: list[Record] = field(default_factory=list[Record])
    """Everything that was written, in order."""
    _candidates: dict[str, Candidate] = field(default_factory=dict[str, Candidate])
    _values: dict[str, object] = field(default_factory=dict[str, object])
    _lines: list[Line] = field(init=False)
    _calls: list[CallRecord] = field(init=False, default_factory=list[CallRecord])
    syncs: int = 0

    def __post_init__(self) -> None:
        self._lines = [r for r in self.records if isinstance(r, Line)]

    @property
    def events(self) -> list[Event]:
        """Events without rollouts and calls."""
        return [r for r in self.records if not isinstance(r, Line)]

    @property
    def rollouts(self) -> list[RolloutRecord]:
        """Every finished pair, oldest first."""
        return [r for r in self.records if isinstance(r, RolloutRecord)]

    def reopened(self, records: int | None = None) -> "MemoryJournal":
        """Journal as a new process finds it after a kill behind the given number of records."""
        # content is written before the records that refer to it, so all of it may be there
        return MemoryJournal(self.records[:records], self._candidates, self._values)

    @property
    def rollouts_size(self) -> int:
        """Number of rollouts and calls; a journal on disk returns bytes."""
        return len(self._lines)

    def append(self, event: Event) -> None:
        """Write one event."""
        self.records.append(event)

    def record(self, rows: Sequence[tuple[int, Job, Outcome]]) -> None:
        """Write finished pairs."""
        for row in rows:
            self._write(RolloutRecord(*row))

    def tail(self, start: int) -> Sequence[tuple[int, Job, Outcome]]:
        """Step, job and outcome of every rollout behind an offset; calls become available too."""
        lines = self._lines[start:]
        self._calls.extend(line for line in lines if isinstance(line, CallRecord))
        return [line for line in lines if isinstance(line, RolloutRecord)]

    def recorded(self, start: int, end: int) -> Sequence[tuple[int, Job, Outcome]]:
        """Step, job and outcome of every rollout between two offsets, oldest first."""
        return [line for line in self._lines[start:end] if isinstance(line, RolloutRecord)]

    def record_cancelled(self, rows: Sequence[tuple[int, Job, Usage]]) -> None:
        """Write the usage of rollouts that were cancelled in flight."""
        for row in rows:
            self._write(CancelledRecord(*row))

    def cancelled(self, start: int) -> Sequence[tuple[int, Job, Usage]]:
        """Step, job and usage of every rollout cancelled in flight behind an offset."""
        lines = (line for line in self._lines[start:] if isinstance(line, CancelledRecord))
        return [(line.step, line.job, line.usage) for line in lines]

    def outcomes(self, candidates: Iterable[str]) -> Sequence[tuple[Job, Outcome]]:
        """Every recorded outcome of these candidates, oldest first."""
        wanted = set(candidates)
        return [(r.job, r.outcome) for r in self.rollouts if r.job.candidate_id in wanted]

    def record_call(self, scope: str, key: str, reply: C, *, unpriced: bool = False) -> C:
        """Write one reply that arrived."""
        record = CallRecord(scope, key, reply, unpriced)
        self._write(record)
        self._calls.append(record)
        return reply

    def calls(self, scope: str, key: str, reply: type[R]) -> Sequence[R | Failure]:
        """Replies recorded in this scope for this request, oldest first."""
        found = [call.reply for call in self._calls if (call.scope, call.key) == (scope, key)]
        return cast("list[R | Failure]", found)

    def heard(self, scope: str) -> bool:
        """True if any reply of this scope is available."""
        return any(call.scope == scope for call in self._calls)

    def paid(self) -> Mapping[str, Usage]:
        """Usage of the available calls, by scope."""
        found: dict[str, Usage] = {}
        for call in self._calls:
            found[call.scope] = found.get(call.scope, FREE) + getattr(call.reply, "usage", FREE)
        return found

    def unpriced(self) -> Mapping[str, float]:
        """USD of the most expensive unpriced call that is available, by scope."""
        found: dict[str, float] = {}
        for call in self._calls:
            if call.unpriced:
                used = getattr(call.reply, "usage", FREE)
                found[call.scope] = max(found.get(call.scope, 0.0), used.usd)
        return found

    def forget_calls(self, scope: str) -> None:
        """Drop the available calls of a scope and of its branches."""
        below = scope + "/"
        self._calls = [c for c in self._calls if c.scope != scope and not c.scope.startswith(below)]

    def save(self, candidate: Candidate) -> bool:
        """Store a candidate; return True if it was new."""
        new = candidate.id not in self._candidates
        self._candidates[candidate.id] = candidate
        return new

    def load(self, candidate: str) -> Candidate:
        """Load a stored candidate."""
        found = self._candidates.get(candidate)
        if found is None:
            raise JournalError(f"the journal has no candidate {candidate}")
        return found

    def put(self, value: object) -> str:
        """Store a value and return its address; equal values share one."""
        address = hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()[:24]
        self._values[address] = value
        return address

    def trace(self, address: str) -> tuple[TraceItem, ...]:
        """Load a stored trace."""
        if address not in self._values:
            raise JournalError(f"the journal has no value {address}")
        return cast("tuple[TraceItem, ...]", self._values[address])

    def sync(self) -> None:
        """Count the call."""
        self.syncs += 1

    def _write(self, line: Line) -> None:
        self.records.append(line)
        self._lines.append(line)
