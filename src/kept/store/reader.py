"""Reader of a run from its files, by the same fold as the live run.

It takes no lock and writes nothing, so it works while the run goes on. It also finds cases that
no candidate was ever measured on.
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
    """A run as its folder tells it."""

    def __init__(
        self,
        folder: Path,
        glance: Glance | None = None,
        *,
        resuming: bool = False,
        state: State | None = None,
    ) -> None:
        """With `resuming`, files that were cut are read as far as they go.

        A `state` that the journal was folded to before spares doing so again.
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
        """Everything that happened, in order."""
        events = list(read_events(self.folder / "journal.jsonl", whole=not self._resuming))
        if not events:
            raise never_began(self.folder / "journal.jsonl")
        return events

    @cached_property
    def state(self) -> State:
        """Where the run stands."""
        return fold_run(self.events, self.folder / "journal.jsonl").state

    @cached_property
    def glance(self) -> Glance:
        """What it came to so far; quick even where the run is very long."""
        return self._glance or Glance(self.folder, whole=not self._resuming).refresh()

    @property
    def steps(self) -> list[StepRow]:
        """The closed steps in short; quick even where the run is very long."""
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
        """What kind of run it is; None where it ended before it began."""
        return self.state.started.recipe if self.state.started else None

    @property
    def settings(self) -> RunSettings:
        """Settings of the run, as its last start or resume has them."""
        return self.state.settings

    @property
    def spec(self) -> Path | None:
        """The spec, where it is now; None for a run without one."""
        said = self.settings.spec.path
        return self.moved(Path(said)) if said else None

    @property
    def outputs(self) -> Path:
        """The folder of the files that a run leaves behind, besides its journal."""
        spec = self.settings.spec
        place = self.moved(Path(spec.results)) if spec.results else Path()
        return place if spec.named else place / self.id

    def moved(self, path: Path) -> Path:
        """A path of the project, in the project that the run is in now.

        One that was copied or moved with its runs is another: nothing of it may lead back.
        """
        home = self.settings.home
        now = self.folder.resolve().parent.parent
        if not home or now == Path(home) or now.name != Path(home).name:
            return path
        try:
            there = now.parent / path.relative_to(Path(home).parent)
        except ValueError:
            return path  # it was outside, and is where it was
        return there if there.parent.exists() else path

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
        if not 0 <= step < len(self.steps):
            raise JournalError(f"run {self.id} has no closed step {step}")
        return closed_step(self.folder, self.steps[step])

    def rollouts_from(self, start: int, step: int) -> Iterator[tuple[int, Job, Outcome]]:
        """Finished rollouts of a step that is open, which stand behind an offset."""
        for row in rollout_lines(self.folder / "rollouts.jsonl", start):
            if isinstance(row, codec.RolloutLine) and row.step == step:
                yield (row.step, *row.entry())

    def rollouts(self, step: int | None = None) -> Iterator[tuple[int, Job, Outcome]]:
        """Finished rollouts, of one step or of all."""
        if step is None:
            lines = self.all_lines()
        else:
            lines = rollout_lines(self.folder / "rollouts.jsonl", *self.closed(step).rollouts)
        for row in lines:
            if isinstance(row, codec.RolloutLine) and step in (None, row.step):
                yield (row.step, *row.entry())

    def all_lines(self, *needles: bytes) -> Iterator[codec.Line]:
        """The records of the rollout file, all or those that hold one of `needles`.

        Raises `JournalError` if any line of the file is damaged or missing.
        """
        least = 0 if not self.steps else self.steps[-1].range[1]
        least = None if self._resuming else least
        return rollout_lines(self.folder / "rollouts.jsonl", least=least, needles=needles)

    def trace(self, address: str) -> tuple[TraceItem, ...]:
        """What happened inside a rollout."""
        return codec.decode(self._pack.get(address), tuple[TraceItem, ...])

    def executions(self, scopes: Iterable[str]) -> Iterator[tuple[str, Rollout]]:
        """What programs brought back that ran in these scopes, each with its scope."""
        path = self.folder / "rollouts.jsonl"
        needles = [b'"scope":' + codec.encode(scope) for scope in scopes]
        for row in self.all_lines(*needles) if needles else ():
            rollout = self._execution(row, path) if isinstance(row, codec.CallLine) else None
            if isinstance(row, codec.CallLine) and rollout is not None:
                yield row.scope, rollout

    def _execution(self, row: codec.CallLine, path: Path) -> Rollout | None:
        """The rollout that a call came to; None for a failure, and for what a model said."""
        raw = raw_reply(self._pack, row, path)
        # a rollout is a list, and every other reply is none
        if raw is None or row.failed or not raw.startswith(b"["):
            return None
        rollout = read_reply(self._pack, row, Rollout, path)
        return rollout if isinstance(rollout, Rollout) else None

    def replies(self, scope: str, kind: type[T]) -> Iterator[T]:
        """Every reply of this kind that was recorded in a scope, oldest first; no failures."""
        path = self.folder / "rollouts.jsonl"
        for row in self.all_lines(b'"scope":' + codec.encode(scope)):
            if isinstance(row, codec.CallLine) and row.scope == scope and not row.failed:
                reply = read_reply(self._pack, row, kind, path)
                if isinstance(reply, kind):
                    yield reply

    def calls_below(self, scope: str) -> Iterator[tuple[str, bytes, bool]]:
        """Every reply recorded below a scope, oldest first: where, what, and whether it failed."""
        path = self.folder / "rollouts.jsonl"
        start = f"{scope}/"
        for row in self.all_lines(b'"scope":' + codec.encode(start)[:-1]):
            if isinstance(row, codec.CallLine) and row.scope.startswith(start):
                raw = raw_reply(self._pack, row, path)
                if raw is not None:
                    yield row.scope.removeprefix(start), raw, row.failed

    def calls_in(self, scope: str, kind: type[T]) -> Iterator[tuple[str, Callable[[], T | None]]]:
        """Calls recorded below a scope that came to something, oldest first: where, and a reader.

        A reply that is not of this kind is read as None.
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
        """Let go of the files."""
        self._pack.close()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Past(NamedTuple):
    """What a journal comes to."""

    state: State
    opened: dict[int, State]
    """For every open step, the state it was opened in."""


def fold_run(events: Iterable[Event], path: Path | None = None) -> Past:
    """The state, and for every open step the state it was opened in; of the spine at a path."""
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
    """Have nobody look for garbage: what is read is kept, and looking took a fifth of the time.

    Nor at once afterwards: put aside and brought back, all of it counts as old.
    """
    wanted = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:  # what somebody else has put aside stays there
            gc.freeze()
            gc.unfreeze()
        if wanted:
            gc.enable()


SHOWN = 5
"""Such cases that are named; with more, the rest is counted."""

DECIDES: tuple[Purpose, ...] = ("screen", "decide", "promote", "test")


@dataclass(slots=True)
class Unmeasured:
    """A case that failed for the seed and for every candidate."""

    case: str
    message: str
    """Of its first failure."""
    worst: int = 0
    """Rollouts that count as the worst value of the metric, where it has one."""
    bounded: bool = True
    """Whether it has one."""
    missing: int = 0
    """Rollouts that infrastructure left without an answer."""

    def __str__(self) -> str:
        how = "counted as the worst value" if self.bounded else "with no bounds to count them by"
        counted = f"{count(self.worst, 'rollout')} {how}" if self.worst else ""
        left_out = f"{count(self.missing, 'rollout')} left out" if self.missing else ""
        how = ", ".join(part for part in (counted, left_out) if part)
        return f"case `{self.case}` failed for the seed and every candidate ({how}): {self.message}"


def unmeasured(run: Run, state: State) -> tuple[Unmeasured, ...]:
    """The cases that decide and were never measured; none where nothing was measured at all."""
    seed = state.evaluations.get(state.seed, ())
    if not any(e.failed or e.missing for e in seed):
        return ()  # most runs: no line need be looked at
    closed = (event for event in run.events if isinstance(event, StepClosed))
    evaluations = (e for event in closed for e in event.evaluations)
    # somebody has a measured value of these
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
    """A sentence for each, as far as they are named."""
    more = len(found) - SHOWN
    rest = [f"{count(more, 'more case')} failed likewise"] if more > 0 else []
    return [*map(str, found[:SHOWN]), *rest]
