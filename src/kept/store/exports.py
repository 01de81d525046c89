"""Views: files that can be rebuilt from the journal at any time.

A `View` receives every closed step in order: earlier ones at the start, then each as it closes. A
kill while it writes loses nothing, because the next session rewrites it. A view that cannot be
written is reported and does not stop the run.

Candidates are exported as a diff each, and with all files if kept:

    RUN/0003-discard.diff
    RUN/0004-keep.diff
    RUN/0004-keep/...

The results file of a task has one JSON line per iteration. Lines of other runs of the task stay
unchanged.
"""

import hashlib
import json
import logging
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kept.core.artifact import Candidate
from kept.core.edit import changed_paths, diff, line_counts, reapply
from kept.core.event import (
    Event,
    Proposed,
    RunResumed,
    RunStarted,
    StepClosed,
    StepOpened,
    StepRecords,
    stages_of,
)
from kept.core.objective import Objective
from kept.core.ports import Journal
from kept.core.state import State
from kept.errors import JournalError
from kept.store.candidate_files import link_error, link_in, write_file, write_files, write_whole
from kept.store.export_digests import digest_of, run_of
from kept.store.journal import RunJournal

if TYPE_CHECKING:
    from _hashlib import HASH


log = logging.getLogger("kept")


class Records:
    """Collects the records of each step from the events."""

    def __init__(self) -> None:
        self.started: RunStarted | None = None
        self._opened: dict[int, StepOpened] = {}
        self._proposed: dict[int, Proposed] = {}

    def hear(self, event: Event) -> StepRecords | None:
        """Take an event; return all records of a step if the event closes it."""
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
    """Base of sinks that write closed steps to files."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._records = Records()
        self._told = False
        self._hashes: dict[Path, HASH] = {}
        """Running digests of appended files, over this run's lines only."""

    @property
    def run(self) -> str:
        """The run's id."""
        assert self._records.started is not None, "the first event is `run_started`"
        return self._records.started.run_id

    def put(self, path: Path, data: bytes, below: Path | None = None) -> None:
        """Write a file unless it has this content already, and record its digest."""
        if path.is_symlink() or not path.exists() or path.read_bytes() != data:
            write_whole(path, data, below)
        self._note(path, digest_of(data))

    def replace(
        self, path: Path, data: bytes, below: Path | None = None, *, others: bytes | None = None
    ) -> None:
        """Start a file for `append`, with the lines of other runs first if they share it."""
        write_whole(path, (others or b"") + data, below)
        self._hashes[path] = hashlib.sha256(data)
        self._note(path, digest_of(data), shared=others is not None)

    def append(
        self, path: Path, data: bytes, below: Path | None = None, *, shared: bool = False
    ) -> None:
        """Append to a file that `replace` started."""
        write_file(path, data, "ab", below)
        self._hashes[path].update(data)
        self._note(path, self._hashes[path].hexdigest(), shared=shared)

    def _note(self, path: Path, digest: str, *, shared: bool = False) -> None:
        if isinstance(self.journal, RunJournal):
            self.journal.exports.add(path, digest, shared=shared)

    @abstractmethod
    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write the steps of earlier sessions; must also clean up after a killed one."""

    @abstractmethod
    def closed(self, step: StepRecords) -> None:
        """Write one more closed step."""

    def on_event(self, event: Event, state: State) -> None:
        """Write all past steps when a session begins, then each step as it closes."""
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
        """Return a step's incumbent and its candidate; None without a candidate."""
        closed = step.closed
        if closed.candidate is None:
            return None
        incumbent = self.journal.load(closed.incumbent)
        try:
            return incumbent, self.journal.load(closed.candidate)
        except JournalError:
            # a candidate that a guard refused is not stored; its edits rebuild it exactly
            return incumbent, reapply(incumbent, closed.reports)


class CandidateFolder(View):
    """Writes each candidate when its step closes."""

    def __init__(self, path: Path, below: Path, journal: Journal) -> None:
        """No folder between a file and `below`, the folder of the task, may be a link."""
        super().__init__(journal)
        self._where = path
        self._below = below

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write files that are missing or changed; remove leftovers of a killed session."""
        folder = self._where / self.run
        if (link := link_in(folder, self._below)) is not None:
            raise link_error(link)
        if folder.is_dir():
            for left in folder.glob(".*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        for step in steps:
            self.closed(step)

    def closed(self, step: StepRecords) -> None:
        """Write the diff and, for a keep, the files."""
        outcome = step.closed.verdict.outcome
        name = f"{step.closed.step:04}-{outcome}"
        folder = self._where / self.run
        patch, kept = folder / f"{name}.diff", folder / name
        sides = self.sides(step)
        if sides is None:
            return
        self.put(patch, diff(*sides).encode("utf-8", "surrogateescape"), self._below)
        if outcome == "keep" and not kept.exists():
            fresh = folder / f".{name}.{os.getpid()}"
            write_files(fresh, sides[1], below=self._below)
            fresh.rename(kept)
        if outcome == "keep":
            for path, text in sides[1].texts.items():
                self.put(kept / path, text.encode("utf-8", "surrogateescape"), self._below)


class ResultsFile(View):
    """Appends a line for each closed step."""

    def __init__(
        self, path: Path, below: Path, objective: Objective, on_failure: str, journal: Journal
    ) -> None:
        """No folder between the file and `below`, the folder of the task, may be a link."""
        super().__init__(journal)
        self._path = path
        self._below = below
        self._objective = objective
        self._on_failure = on_failure

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Rewrite the lines of this run, behind those of other runs."""
        others = [line for line in _lines(self._path) if run_of(line) not in (self.run, None)]
        own = b"".join(map(self._line, steps))
        self.replace(self._path, own, self._below, others=b"".join(others))

    def closed(self, step: StepRecords) -> None:
        """Append the step's line."""
        self.append(self._path, self._line(step), self._below, shared=True)

    def _line(self, step: StepRecords) -> bytes:
        row = self._row(step)
        # surrogates stand for bytes that are not UTF-8; only escapes can express them
        return json.dumps(row, ensure_ascii=True).encode() + b"\n"

    def _row(self, step: StepRecords) -> dict[str, Any]:
        closed, evaluation = step.closed, step.evaluation
        verdict = closed.verdict
        row: dict[str, Any] = {
            "run": step.started.run_id,
            "iteration": closed.step,
            "decision": verdict.outcome,
            "reason": verdict.words,
            "code": verdict.code,
        }
        if verdict.outcome == "crash":
            row["on_failure"] = self._on_failure
        measured = evaluation.metrics.items() if evaluation else ()
        sides = self.sides(step)
        return row | {
            "candidate": closed.candidate,
            "incumbent": closed.incumbent,
            "metrics": {name: tally.mean for name, tally in measured},
            "constraints": [
                {
                    "metric": one.constraint.metric,
                    "op": one.constraint.op,
                    "value": one.constraint.value,
                    "measured": one.measured,
                    "holds": one.holds,
                }
                for one in step.checked(self._objective)
            ],
            "diff": [_change(path, *sides) for path in changed_paths(*sides)] if sides else [],
            "stages": {
                s.name: {"t": s.t, "what": s.what} for s in stages_of(step, self._objective)
            },
        }


def _change(path: str, before: Candidate, after: Candidate) -> dict[str, Any]:
    """Counts of removed and added lines of a file, and its sha256 before and after."""
    old, new = before.texts.get(path), after.texts.get(path)
    removed, added = line_counts(old or "", new or "")
    hashes = {"before": _sha256(old), "after": _sha256(new)}
    return {"path": path, "removed": removed, "added": added, **hashes}


def _sha256(text: str | None) -> str | None:
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_results_file(path: Path) -> bool:
    """True if a file may be overwritten: it is missing, empty, or a results file of Kept."""
    return all(run_of(line) is not None for line in _lines(path))


def _lines(path: Path) -> list[bytes]:
    """Complete lines of a file, without the rest of a line that a kill cut off."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    return [line for line in lines if line.endswith(b"\n")]
