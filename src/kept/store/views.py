"""Files that a spec asks for and that the journal could make again at any time.

A `View` is told of every closed step in order: those of earlier sittings at the start, then each as
it closes. A kill while it writes loses nothing, because the next sitting begins by writing anew. A
view that cannot be written is told and does not stop the run.
"""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kept.core.artifact import Candidate
from kept.core.edit import reapply
from kept.core.event import Event, Proposed, RunResumed, RunStarted, StepClosed, StepOpened
from kept.core.ports import Journal
from kept.core.stage import StepRecords
from kept.core.state import State
from kept.errors import JournalError
from kept.store.export_digests import digest_of
from kept.store.files import write_file, write_whole
from kept.store.journal import RunJournal

if TYPE_CHECKING:
    from _hashlib import HASH

log = logging.getLogger("kept")


class Records:
    """Puts the records of a step together as they come."""

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self._opened: dict[int, StepOpened] = {}
        self._proposed: dict[int, Proposed] = {}

    def hear(self, event: Event) -> StepRecords | None:
        """All records of a step, when this event closes one."""
        match event:
            case RunStarted():
                self.started = event
            case StepOpened():
                self._opened[event.step] = event
            case Proposed():
                self._proposed[event.step] = event
            case StepClosed():
                assert self.started is not None, "the first event is `run_started`"
                opened = self._opened.pop(event.step)
                return StepRecords(
                    self.started, opened, self._proposed.pop(event.step, None), event
                )
            case _:
                pass
        return None


class View(ABC):
    """A sink that hears of closed steps."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._records = Records()
        self._told = False
        self._hashes: dict[Path, HASH] = {}
        """Of the files that are appended to: what this run has written to them."""

    @property
    def run(self) -> str:
        """The run's id."""
        assert self._records.started is not None, "the first event is `run_started`"
        return self._records.started.run_id

    def put(self, path: Path, data: bytes, below: Path | None = None) -> None:
        """Write a file where it is not so already, and note its digest."""
        if path.is_symlink() or not path.exists() or path.read_bytes() != data:
            write_whole(path, data, below)
        self._note(path, digest_of(data))

    def replace(
        self, path: Path, data: bytes, below: Path | None = None, *, others: bytes | None = None
    ) -> None:
        """Begin a file that is appended to, behind the lines of other runs that share it."""
        write_whole(path, (others or b"") + data, below)
        self._hashes[path] = hashlib.sha256(data)
        self._note(path, digest_of(data), shared=others is not None)

    def append(
        self, path: Path, data: bytes, below: Path | None = None, *, shared: bool = False
    ) -> None:
        """Append to a file that `replace` began."""
        write_file(path, data, "ab", below)
        self._hashes[path].update(data)
        self._note(path, self._hashes[path].hexdigest(), shared=shared)

    def _note(self, path: Path, digest: str, *, shared: bool = False) -> None:
        if isinstance(self.journal, RunJournal):
            self.journal.exports.add(path, digest, shared=shared)

    @abstractmethod
    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write what earlier sittings came to; nothing is left over from a kill after that."""

    @abstractmethod
    def closed(self, step: StepRecords) -> None:
        """Write one more step."""

    def on_event(self, event: Event, state: State) -> None:
        """Take up the past when a sitting begins, then each step as it closes."""
        try:
            if isinstance(event, RunStarted | RunResumed):
                past = map(self._records.hear, self.journal.events)
                self.begin([step for step in past if step is not None])
            elif (step := self._records.hear(event)) is not None:
                self.closed(step)
        except OSError as error:
            if not self._told:
                log.warning("cannot write %s: %s", error.filename, error.strerror)
            self._told = True

    def sides(self, step: StepRecords) -> tuple[Candidate, Candidate] | None:
        """What a step's candidate was made of, and the candidate; None where there is none."""
        closed = step.closed
        if closed.candidate is None:
            return None
        incumbent = self.journal.load(closed.incumbent)
        try:
            return incumbent, self.journal.load(closed.candidate)
        except JournalError:
            # one that a guard refused was never stored, but its edits say exactly what it was
            return incumbent, reapply(incumbent, closed.reports)
