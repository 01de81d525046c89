"""Reader of a run from its files, by the same fold as the live run.

It takes no lock and writes nothing, so it works while the run goes on. It also finds cases on which
no candidate was ever measured.
"""

import gc
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from kept.core.artifact import Candidate
from kept.core.event import Event, RunSettings, StepClosed, StepOpened
from kept.core.rollout import Job, Purpose, Rollout, TraceItem
from kept.core.score import Outcome
from kept.core.state import FoldError, State, advance
from kept.core.text import count, one_line
from kept.errors import JournalError
from kept.store import codec
from kept.store.jsonl import (
    damaged,
    load_candidate,
    misplaced,
    never_began,
    raw_reply,
    read_events,
    read_reply,
    rollout_lines,
)
from kept.store.lock import holder
from kept.store.overview import Glance
from kept.store.pack import Pack
from kept.store.schema import check_told
from kept.store.step_index import StepRow, closed_step

T = TypeVar("T")


class Run:
    """A run, read from its folder."""

    def __init__(
        self,
        folder: Path,
        glance: Glance | None = None,
        *,
        resuming: bool = False,
        state: State | None = None,
    ) -> None:
        """With `resuming`, files that were cut are read as far as they go.

        A given `state` must be the fold of the journal; it is not folded again then.
        """
        spine = folder / "journal.jsonl"
        if not spine.is_file():
            raise JournalError(f"{folder} is not a run: it has no journal.jsonl")
        self.folder = folder
        self._pack = Pack(folder, writable=False)
        self._glance = glance
        self._resuming = resuming
        if state is not None:
            self.state = state

    @cached_property
    def events(self) -> list[Event]:
        """All events, in order."""
        events = list(read_events(self.folder / "journal.jsonl", whole=not self._resuming))
        if not events:
            raise never_began(self.folder / "journal.jsonl")
        return events

    @cached_property
    def state(self) -> State:
        """State of the run, the fold of its events."""
        return fold_run(self.events, self.folder / "journal.jsonl").state

    @cached_property
    def glance(self) -> Glance:
        """Overview so far; quick even for very long runs."""
        return self._glance or Glance(self.folder, whole=not self._resuming).refresh()

    @property
    def steps(self) -> list[StepRow]:
        """Short rows of the closed steps; quick even for very long runs."""
        return self.glance.rows

    @property
    def id(self) -> str:
        """The run's id."""
        return self.folder.resolve().name

    @property
    def status(self) -> str:
        """`running`, `finished`, `interrupted`, `stopped by an error` or `killed`."""
        stopped = self.state.stopped
        if stopped is not None:
            words = {"interrupted": "interrupted", "error": "stopped by an error"}
            return words.get(stopped.kind, "finished")
        return "running" if holder(self.folder) is not None else "killed"

    @property
    def recipe(self) -> str | None:
        """Name of the run's recipe; None if it ended before it began."""
        return self.state.started.recipe if self.state.started else None

    @property
    def settings(self) -> RunSettings:
        """Settings of the run, from its last start or resume."""
        return self.state.settings

    @property
    def spec(self) -> Path | None:
        """Current path of the spec; None for a run without one."""
        said = self.settings.spec.path
        return self.moved(Path(said)) if said else None

    @property
    def outputs(self) -> Path:
        """Folder of the files that a run writes, besides its journal."""
        spec = self.settings.spec
        place = self.moved(Path(spec.results)) if spec.results else Path()
        return place if spec.named else place / self.id

    def moved(self, path: Path) -> Path:
        """Map a path of the original project to the project that the run is in now.

        A project that was copied or moved with its runs is another one; no path may lead back.
        """
        home = self.settings.home
        now = self.folder.resolve().parent.parent
        if not home or now == Path(home) or now.name != Path(home).name:
            return path
        try:
            there = now.parent / path.relative_to(Path(home).parent)
        except ValueError:
            return path  # outside the project, so it was not moved
        return there if there.parent.exists() else path

    @property
    def seed(self) -> Candidate:
        """Candidate that the run started from."""
        return self.candidate(self.state.seed)

    @property
    def best(self) -> Candidate:
        """Best candidate of the run."""
        return self.candidate(self.state.best)

    def candidate(self, id_: str) -> Candidate:
        """Load a candidate of the run by its id."""
        return load_candidate(self._pack, id_)

    def closed(self, step: int) -> StepClosed:
        """Read the record that closed a step."""
        if not 0 <= step < len(self.steps):
            raise JournalError(f"run {self.id} has no closed step {step}")
        return closed_step(self.folder, self.steps[step])

    def rollouts_from(self, start: int, step: int) -> Iterator[tuple[int, Job, Outcome]]:
        """Yield the finished rollouts of an open step, which are behind an offset."""
        for row in rollout_lines(self.folder / "rollouts.jsonl", start):
            if isinstance(row, codec.RolloutLine) and row.step == step:
                yield (row.step, *row.entry())

    def rollouts(self, step: int | None = None) -> Iterator[tuple[int, Job, Outcome]]:
        """Yield the finished rollouts of one step, or of all."""
        if step is None:
            lines = self.all_lines()
        else:
            lines = rollout_lines(self.folder / "rollouts.jsonl", *self.closed(step).rollouts)
        for row in lines:
            if isinstance(row, codec.RolloutLine) and step in (None, row.step):
                yield (row.step, *row.entry())

    def all_lines(self, *needles: bytes) -> Iterator[codec.Line]:
        """Yield the records of the rollout file, all or those with one of `needles`.

        Raises `JournalError` if any line of the file is damaged or missing.
        """
        least = 0 if not self.steps else self.steps[-1].range[1]
        least = None if self._resuming else least
        return rollout_lines(self.folder / "rollouts.jsonl", least=least, needles=needles)

    def trace(self, address: str) -> tuple[TraceItem, ...]:
        """Load the trace of a rollout."""
        return codec.decode(self._pack.get(address), tuple[TraceItem, ...])

    def executions(self, scopes: Iterable[str]) -> Iterator[tuple[str, Rollout]]:
        """Yield the rollouts that programs returned in these scopes, each with its scope."""
        path = self.folder / "rollouts.jsonl"
        needles = [b'"scope":' + codec.encode(scope) for scope in scopes]
        for row in self.all_lines(*needles) if needles else ():
            rollout = self._execution(row, path) if isinstance(row, codec.CallLine) else None
            if isinstance(row, codec.CallLine) and rollout is not None:
                yield row.scope, rollout

    def _execution(self, row: codec.CallLine, path: Path) -> Rollout | None:
        """Rollout that a call returned; None for a failure or for a model's reply."""
        raw = raw_reply(self._pack, row, path)
        # only rollouts are encoded as a JSON list
        if raw is None or row.failed or not raw.startswith(b"["):
            return None
        rollout = read_reply(self._pack, row, Rollout, path)
        return rollout if isinstance(rollout, Rollout) else None

    def replies(self, scope: str, kind: type[T]) -> Iterator[T]:
        """Yield the recorded replies of a kind in a scope, oldest first, without failures."""
        path = self.folder / "rollouts.jsonl"
        for row in self.all_lines(b'"scope":' + codec.encode(scope)):
            if isinstance(row, codec.CallLine) and row.scope == scope and not row.failed:
                reply = read_reply(self._pack, row, kind, path)
                if isinstance(reply, kind):
                    yield reply

    def calls_below(self, scope: str) -> Iterator[tuple[str, bytes, bool]]:
        """Yield inner scope, reply and failure flag of each call below a scope, oldest first."""
        path = self.folder / "rollouts.jsonl"
        start = f"{scope}/"
        for row in self.all_lines(b'"scope":' + codec.encode(start)[:-1]):
            if isinstance(row, codec.CallLine) and row.scope.startswith(start):
                raw = raw_reply(self._pack, row, path)
                if raw is not None:
                    yield row.scope.removeprefix(start), raw, row.failed

    def calls_in(self, scope: str, kind: type[T]) -> Iterator[tuple[str, Callable[[], T | None]]]:
        """Yield inner scope and a reader of each successful call below a scope, oldest first.

        The reader returns None for a reply of another kind.
        """
        path = self.folder / "rollouts.jsonl"
        start = f"{scope}/"

        def read(row: codec.CallLine) -> T | None:
            reply = read_reply(self._pack, row, kind, path)
            return reply if isinstance(reply, kind) else None

        for row in self.all_lines(b'"scope":' + codec.encode(start)[:-1]):
            if isinstance(row, codec.CallLine) and row.scope.startswith(start) and not row.failed:
                yield row.scope, partial(read, row)

    def close(self) -> None:
        """Close the files."""
        self._pack.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Past(NamedTuple):
    """Result of folding a journal."""

    state: State
    opened: dict[int, State]
    """State in which each open step was opened, by step."""


def fold_run(events: Iterable[Event], path: Path | None = None) -> Past:
    """Fold events into the state, and the state at the opening of each open step."""
    state = State()
    opened: dict[int, State] = {}
    with _all_of_it_stays():
        for number, event in enumerate(events, 1):
            try:
                state = advance(state, event)
                if state.started is not None:
                    check_told(event, state.started.recipe)
            except FoldError as error:
                raise misplaced(path or "journal.jsonl", number, error) from error
            except ValueError as error:
                raise damaged(path or "journal.jsonl", number, error) from error
            if isinstance(event, StepOpened):
                opened[event.step] = state
            elif isinstance(event, StepClosed):
                del opened[event.step]
    return Past(state, opened)


@contextmanager
def _all_of_it_stays() -> Generator[None]:
    """Pause garbage collection: everything read is kept, and collecting took a fifth of the time.

    Freezing and unfreezing moves all objects to the oldest generation, so that they are not
    collected right afterwards either.
    """
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:  # else unfreezing would undo another caller's freeze
            gc.freeze()
            gc.unfreeze()
        if wanted:
            gc.enable()


SHOWN = 5
"""Number of unmeasured cases that are named; the rest is counted."""

DECIDES: tuple[Purpose, ...] = ("screen", "decide", "promote", "test")


@dataclass(slots=True)
class Unmeasured:
    """A case that failed for the seed and for every candidate."""

    case: str
    message: str
    """Message of its first failure."""
    worst: int = 0
    """Number of rollouts that count as the worst value of the metric, if it has one."""
    bounded: bool = True
    """True if the metric has a worst value."""
    missing: int = 0
    """Number of rollouts without an answer because of the infrastructure."""

    def __str__(self) -> str:
        how = "counted as the worst value" if self.bounded else "with no bounds to count them by"
        counted = f"{count(self.worst, 'rollout')} {how}" if self.worst else ""
        left_out = f"{count(self.missing, 'rollout')} left out" if self.missing else ""
        how = ", ".join(part for part in (counted, left_out) if part)
        return f"case `{self.case}` failed for the seed and every candidate ({how}): {self.message}"


def unmeasured(run: Run, state: State) -> tuple[Unmeasured, ...]:
    """Find deciding cases that were never measured; empty if nothing was measured at all."""
    seed = state.evaluations.get(state.seed, ())
    if not any(e.failed or e.missing for e in seed):
        return ()  # most runs: no line needs to be read
    closed = (event for event in run.events if isinstance(event, StepClosed))
    evaluations = (e for event in closed for e in event.evaluations)
    # cases with a measured value for some candidate
    measured = {
        case for e in evaluations for case, tally in e.cases.items() if tally.n > tally.failed
    }
    if not measured:
        return ()
    bounded = not any(e.unscored for e in seed)
    found: dict[str, Unmeasured] = {}
    for row in run.all_lines(b'"failure":{'):
        if not isinstance(row, codec.RolloutLine) or row.failure is None:
            continue
        if row.case in measured or row.purpose not in DECIDES:
            continue
        message = one_line(row.failure.message, 200)
        case = found.setdefault(row.case, Unmeasured(row.case, message, bounded=bounded))
        if row.failure.blame == "candidate":
            case.worst += 1
        else:
            case.missing += 1
    return tuple(found.values())


def unmeasured_words(found: tuple[Unmeasured, ...]) -> list[str]:
    """One sentence for each of the first few, and one for the rest."""
    more = len(found) - SHOWN
    rest = [f"{count(more, 'more case')} failed likewise"] if more > 0 else []
    return [*map(str, found[:SHOWN]), *rest]
