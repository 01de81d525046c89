"""Reading a run back: the same fold as the live run, from files alone.

Takes no lock and writes nothing, so a run can be looked at while it goes on.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kept.core.artifact import Candidate
from kept.core.event import Event, StepClosed, StepOpened
from kept.core.rollout import Job, TraceItem
from kept.core.score import Outcome
from kept.core.state import State, advance
from kept.errors import JournalError
from kept.store import wire
from kept.store.journal import lines_from, load_candidate, read_events, read_line
from kept.store.lock import holder
from kept.store.pack import Pack


class Run:
    """A run as its folder tells it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._events = list(read_events(folder / "journal.jsonl"))
        if not self._events:
            raise JournalError(
                f"{folder / 'journal.jsonl'} is empty: the run ended before it began",
                hint="start it again; nothing was spent",
            )
        self.state, self.opened = fold_run(self._events)
        self._pack = Pack(folder, writable=False)

    @property
    def id(self) -> str:
        """The run's id."""
        return self.folder.resolve().name

    @property
    def events(self) -> list[Event]:
        """Everything that happened, in order."""
        return self._events

    @property
    def status(self) -> str:
        """`running`, `finished`, `interrupted`, `stopped by an error` or `killed`."""
        stopped = self.state.stopped
        if stopped is not None:
            words = {"interrupted": "interrupted", "error": "stopped by an error"}
            return words.get(stopped.kind, "finished")
        return "running" if holder(self.folder) is not None else "killed"

    @property
    def seed(self) -> Candidate:
        """What the run started from."""
        return self.candidate(self.state.seed)

    @property
    def best(self) -> Candidate:
        """The best there is."""
        return self.candidate(self.state.best)

    def candidate(self, id_: str) -> Candidate:
        """The content of any candidate of the run."""
        return load_candidate(self._pack, id_)

    def closed(self, step: int) -> StepClosed:
        """The record that closed a step."""
        for event in self._events:
            if isinstance(event, StepClosed) and event.step == step:
                return event
        raise JournalError(f"run {self.id} has no closed step {step}")

    def rollouts(self, step: int | None = None) -> Iterator[tuple[int, Job, Outcome]]:
        """Finished rollouts, of one step or of all."""
        start, end = 0, None
        if step is not None:
            start, end = self.closed(step).rollouts
        at = start
        path = self.folder / "rollouts.jsonl"
        for line in lines_from(path, start):
            at += len(line)
            row = read_line(line, path)
            if isinstance(row, wire.RolloutLine) and step in (None, row.step):
                yield (row.step, *row.entry())
            if end is not None and at >= end:
                return

    def trace(self, address: str) -> tuple[TraceItem, ...]:
        """What happened inside a rollout."""
        return wire.decode(self._pack.get(address), tuple[TraceItem, ...])

    def close(self) -> None:
        """Let go of the files."""
        self._pack.close()


class Past(NamedTuple):
    """What a journal comes to."""

    state: State
    opened: dict[int, State]
    """For every open step, the state it was opened in."""


def fold_run(events: Iterable[Event]) -> Past:
    """The state, and for every open step the state it was opened in."""
    state = State()
    opened: dict[int, State] = {}
    for number, event in enumerate(events, 1):
        try:
            state = advance(state, event)
        except ValueError as error:
            raise JournalError(f"journal.jsonl:{number}: {error}") from error
        if isinstance(event, StepOpened):
            opened[event.step] = state
        elif isinstance(event, StepClosed):
            del opened[event.step]
    return Past(state, opened)
