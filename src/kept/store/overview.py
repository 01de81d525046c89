"""Run overview without reading the whole journal, and spend by verdict.

It uses the index and the ends of files. It decodes neither the whole spine nor rollouts, except for
open steps. Seed, incumbent, best and spend equal those of the spine's fold; a test compares them.
It takes no lock and writes nothing. `refresh` reads only new data. Spend is split into steps with a
verdict and others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from kept.core.budget import NOTHING, Spend, StopReason
from kept.core.event import RunResumed, RunSettings, RunStarted, RunStopped, resumed
from kept.core.near_misses import ENTERED
from kept.core.objective import Direction, Objective
from kept.core.plan import AGENT_RUN
from kept.core.proposal import Reply, Turn, proposal_scope
from kept.core.rollout import FREE, Job, Usage
from kept.core.state import State
from kept.core.text import count
from kept.core.verdict import FOLLOWED
from kept.engine.budget import Meter, in_rollout, past_of, spend_on
from kept.errors import JournalError
from kept.store import codec
from kept.store.jsonl import (
    check_whole,
    damaged_at,
    event_of,
    lines_from,
    misplaced,
    naming,
    never_began,
    raw_reply,
    rollout_lines,
    stored_lines,
)
from kept.store.lock import holder
from kept.store.pack import Pack
from kept.store.step_index import ENDS, SPENT, Opened, StepLog, StepRow, Told, closed_step, spend_of


def journalled_spend(folder: Path, state: State) -> Spend:
    """Total spend of a run, with that of open steps: they were paid too."""
    open_steps = {step.step for step in state.open}
    if not open_steps:
        return state.spend
    path = folder / "rollouts.jsonl"
    meter, calls, counted = Meter(), list[codec.CallLine](), set[Job]()
    for row in rollout_lines(path, state.open[0].rollouts_at):
        if isinstance(row, codec.RolloutLine):
            job, outcome = row.entry()
            counted.add(job)
            if row.step in open_steps:
                meter.add((outcome,))
        elif isinstance(row, codec.CancelledLine):
            counted.add(row.job)
            if row.step in open_steps:
                meter.cancel(row.usage)
        elif isinstance(row, codec.CallLine):
            calls.append(row)
    silent = [step.step for step in state.open if step.reply is None]
    spend = state.spend + meter.spend() + unfinished_spend(folder, calls, counted, silent)
    return sum((step.spend for step in state.open), spend)


def unfinished_spend(
    folder: Path, calls: Sequence[codec.CallLine], counted: Collection[Job], silent: Iterable[int]
) -> Spend:
    """Cost of replies that arrived for rollouts and proposals that did not finish.

    `counted` are the rollouts whose calls are counted already, `silent` the open steps whose
    proposer has not replied. Only replies that matter are read from the pack.
    """
    scopes = dict.fromkeys((row.scope for row in calls), FREE)
    unfinished = past_of(scopes, counted, [proposal_scope(step) for step in silent]).under_way
    if not unfinished:
        return NOTHING
    meter, proposing = Meter(), FREE
    pack = Pack(folder, writable=False)
    for row in calls:
        if row.scope not in unfinished:
            continue
        used = usage_in(pack, row, folder / "rollouts.jsonl")
        if in_rollout(row.scope):
            meter.use(used)
        else:
            proposing += used
    return meter.spend() + spend_on(proposing)


def usage_in(pack: Pack, row: codec.CallLine, path: Path) -> Usage:
    """Usage of a journalled reply; `FREE` if the reply cannot be read any more."""
    try:
        raw = raw_reply(pack, row, path)
    except JournalError:
        return FREE
    return FREE if raw is None else codec.usage_of(raw)


TERMINAL, TERMINAL_FAILED = "loss_terminal", 0.1
"""Metric of how an agent run ended, and the value from which on it failed at its task."""

_ORDER = ("test", "promote", "decide", "screen", "measure")
"""Purposes in order of preference; first those whose rollouts selected nothing (unbiased)."""


@dataclass(slots=True)
class Sitting:
    """A session of a run, from its first record to its last."""

    began: float
    ended: float | None = None
    """None while it runs, and after a kill."""
    why: StopReason | None = None


class OpenNow(NamedTuple):
    """A step without a verdict."""

    step: int
    turn: Turn
    incumbent: str
    opened: float
    reply: Reply | None
    """None while the proposer is at work."""
    rollouts: int
    """Number of finished rollouts."""
    rollouts_at: int
    """Offset in the rollout file at which they begin."""


class Gain(NamedTuple):
    """Gain of the best over the seed, with the confidence interval of the true gain."""

    mean: float
    low: float | None
    high: float | None
    by: str
    """Description of the cases that it was measured on."""


class Glance:
    """Overview of a run so far."""

    def __init__(self, folder: Path, *, whole: bool = True) -> None:
        """With `whole`, raises for a spine that was cut after the run closed."""
        if not (folder / "journal.jsonl").is_file():
            raise JournalError(f"{folder} is not a run: it has no journal.jsonl")
        self.folder = folder
        self._whole = whole
        self._log = StepLog(folder)
        self._read = 0
        """Offset in the spine up to which it was searched for sessions."""
        self.started: RunStarted | None = None
        self.sittings: list[Sitting] = []
        self._fold = _Fold()
        self._tail = _Tail(folder / "rollouts.jsonl", whole=whole)
        self._still: tuple[object, Glance] | None = None
        """Last result of `still`, with the offsets up to which it has read."""

    def refresh(self) -> "Glance":
        """Read what was written since the last refresh."""
        if (self.folder / "journal.jsonl").stat().st_size < self._read:
            self.__init__(self.folder, whole=self._whole)
        self._log.refresh()
        self._find_sittings()
        self._fold.take(self._log.rows, self.started.seed if self.started else "")
        self._tail.refresh(self._log.maker.opened, self._log.maker.answered)
        return self

    def still(self) -> "Glance":
        """Return an unchanging snapshot; the same object until more is written."""
        mark = (self._log.end, self._read, self._tail.at)
        if self._still is not None and self._still[0] == mark:
            return self._still[1]
        other = copy(self)
        other._still = None  # else each snapshot would keep all earlier ones alive
        other.sittings = [replace(sitting) for sitting in self.sittings]
        other._log, other._fold = self._log.still(), self._fold.still()
        other._tail = self._tail.still()
        self._still = (mark, other)
        return other

    @property
    def begun(self) -> RunStarted:
        """Record of its start, with settings, request and facts of its last session."""
        spine = self.folder / "journal.jsonl"
        if self.started is None and self._read:
            raise misplaced(spine, 1, "a journal begins with `run_started`")
        if self.started is None:
            raise never_began(spine)
        return self.started

    @property
    def id(self) -> str:
        """The run's id."""
        return self.folder.name

    @property
    def size(self) -> int:
        """Offset in the spine up to which it has read."""
        return self._read

    @property
    def rows(self) -> list[StepRow]:
        """The closed steps."""
        return self._log.rows

    @property
    def open(self) -> tuple[OpenNow, ...]:
        """Steps without a verdict, in order."""
        maker = self._log.maker
        return tuple(
            OpenNow(
                step,
                opened.event.turn,
                opened.event.incumbent,
                opened.event.t,
                maker.answered[step].event.reply if step in maker.answered else None,
                self._tail.done(step),
                opened.event.rollouts_at,
            )
            for step, opened in sorted(maker.opened.items())
        )

    @property
    def stopped(self) -> StopReason | None:
        """Reason why it stopped; None while it runs, and after a kill."""
        return self.sittings[-1].why if self.sittings else None

    @property
    def status(self) -> str:
        """`running`, `finished`, `failed`, `interrupted`, `stopped by an error` or `killed`."""
        if self.stopped is not None:
            words = {"interrupted": "interrupted", "error": "stopped by an error"}
            told = words.get(self.stopped.kind, "finished")
            if told != "finished" or self.started is None:
                return told
            finished = _FINISHED.get(self.started.recipe)
            return finished(self) if finished else told
        return "running" if holder(self.folder) is not None else "killed"

    def finished_agent(self) -> str:
        """Status of an agent run that has stopped: it may have failed at its task."""
        if holder(self.folder) is not None:
            return "running"  # still writing to its folder
        if not self.rows:
            return "finished"
        closed = closed_step(self.folder, self.rows[-1])
        terminal = [one.metric(TERMINAL) for one in closed.evaluations]
        failed = any(value is not None and value >= TERMINAL_FAILED for value in terminal)
        return "failed" if failed else "finished"

    @property
    def seed(self) -> str:
        """Id of the candidate that it started from."""
        return self.begun.seed

    @property
    def incumbent(self) -> str:
        """Id of the candidate that leads."""
        return self._fold.incumbent or self.seed

    @property
    def best(self) -> str:
        """Id of the best candidate."""
        return self._fold.best or self.seed

    @property
    def best_step(self) -> int | None:
        """Step that made the best; None while the seed is the best."""
        return self._fold.best_step

    @property
    def keeps(self) -> int:
        """Number of kept steps, without those that were only followed."""
        return self._fold.keeps

    @property
    def proposals(self) -> int:
        """Number of steps with a proposal to judge."""
        return self._fold.proposals

    @property
    def spend(self) -> Spend:
        """Spend of closed and open steps."""
        maker = self._log.maker
        asked = (answer.event.spend for answer in maker.answered.values())
        return sum(asked, self._fold.spend + self._tail.spend(maker.opened))

    @property
    def direction(self) -> Direction:
        """Direction in which the metric improves."""
        return self.settings.direction

    @property
    def metric(self) -> str:
        """Name of the metric that is improved."""
        return self.settings.metric

    @property
    def settings(self) -> RunSettings:
        """Settings of the run, from its last start or resume."""
        return self.started.settings if self.started else RunSettings()

    def value(self, loss: float | None) -> float | None:
        """Convert a loss to the metric's own units."""
        if loss is None:
            return None
        return Objective(direction=self.direction).value(loss)

    @property
    def values(self) -> tuple[float | None, float | None]:
        """Metric of seed and best, from rollouts of the same purpose for both."""
        return self._measured()[:2]

    @property
    def measured_on(self) -> str:
        """Cases behind `values`, such as `12 test cases`; empty for a run without cases."""
        purpose = self._measured()[2]
        sizes = self.settings.cases
        if purpose is None or sizes is None or not self.settings.sampled:
            return ""
        splits = {"test": ("test",), "screen": ("train",)}.get(purpose, ("holdout",))
        if splits == ("holdout",) and any(ENTERED in row.numbers for row in self.rows):
            splits = ("train", "holdout")  # a final of variants: no proposer learnt from them
        cases = sum(sizes.get(split, 0) for split in splits)
        return count(cases, f"{' and '.join(splits)} case") if cases else ""

    def _measured(self) -> tuple[float | None, float | None, str | None]:
        """Values of seed and best, and the purpose of the rollouts behind them."""
        seed, best = (
            {told.purpose: told.loss for told in self._fold.of(id_) if told.failed < told.asked}
            for id_ in (self.seed, self.best)
        )
        both = [p for p in _ORDER if p in seed and p in best]
        # prefer purposes with scores on both sides: a failure without a value leaves no score
        scored = [p for p in both if seed[p] is not None and best[p] is not None]
        common = scored or both or [*_ORDER[2:]]
        first, last = (
            next((known[p] for p in common if p in known), None) for known in (seed, best)
        )
        values = self.value(first), self.value(last)
        if values == (None, None) and self.best == self.seed:
            values = (self.settings.seed_value,) * 2
        return values[0], values[1], next((p for p in common if p in best), None)

    @property
    def gain(self) -> Gain | None:
        """Gain of the best over the seed; None if no test or single proof measured it."""
        if self.best == self.seed:
            return None
        claims = [row for row in self.rows if row.code == "claim" and row.candidate == self.best]
        if claims and "gain" in claims[-1].numbers:
            return _gain(claims[-1].numbers, "cases that nothing was tuned on")
        proofs = [row for row in self.rows if row.best]
        # with several promotions each gain is over the one before, not over the seed
        if len(proofs) == 1 and proofs[0].incumbent == self.seed and "low" in proofs[0].numbers:
            return _gain(proofs[0].numbers, "the cases that decide")
        return None

    @property
    def elapsed(self) -> float:
        """Working time in seconds, over all sessions; a killed one counts up to its last record."""
        total = 0.0
        for number, sitting in enumerate(self.sittings):
            ended = sitting.ended
            if ended is None:
                after = self.sittings[number + 1 :]
                until = after[0].began if after else float("inf")
                # killed: the last opening or closing of a step before the next session
                heard = [t for row in self.rows for t in (row.opened, row.closed) if t <= until]
                heard += [one.opened for one in self.open if one.opened <= until]
                ended = max(heard, default=sitting.began)
            total += max(0.0, ended - sitting.began)
        return total

    def told(self, candidate: str) -> tuple[Told, ...]:
        """Evaluations of the seed, the incumbent or the best, the last one of each purpose."""
        return self._fold.of(candidate)

    def _find_sittings(self) -> None:
        spine = self.folder / "journal.jsonl"
        for line in lines_from(spine, self._read):
            at, self._read = self._read, self._read + len(line)
            if line.endswith(ENDS):
                continue
            try:
                event = event_of(line, at)
            except ValueError as error:
                raise damaged_at(spine, at, error) from error
            match event:
                case RunStarted():
                    self.started = event
                    self.sittings.append(Sitting(event.t))
                case RunResumed() if self.started is not None:
                    self.started = resumed(self.started, event)
                    self.sittings.append(Sitting(event.t))
                case RunStopped() if self.sittings:
                    self.sittings[-1].ended, self.sittings[-1].why = event.t, event.reason
                case _:
                    pass
        if self._whole:
            check_whole(spine, self._read)


_FINISHED: Mapping[str, Callable[[Glance], str]] = {AGENT_RUN: Glance.finished_agent}
"""Functions for the status of a finished run, by recipe; others are `finished`."""


def _gain(numbers: Mapping[str, float], by: str) -> Gain:
    return Gain(numbers["gain"], numbers.get("low"), numbers.get("high"), by)


class _Fold:
    """Fold of the rows, equal to `core.state` in all that a page shows."""

    def __init__(self) -> None:
        self._taken = 0
        self.incumbent = self.best = ""
        self.best_step: int | None = None
        self.keeps = self.proposals = 0
        self._spent: list[int | float] = [0] * len(SPENT)
        self._known: dict[str, dict[str, Told]] = {}

    def still(self) -> "_Fold":
        other = copy(self)
        other._spent = list(self._spent)
        other._known = {id_: dict(known) for id_, known in self._known.items()}
        return other

    @property
    def spend(self) -> Spend:
        return spend_of(self._spent)

    def of(self, candidate: str) -> tuple[Told, ...]:
        return tuple(self._known.get(candidate, {}).values())

    def take(self, rows: list[StepRow], seed: str) -> None:
        self.incumbent, self.best = self.incumbent or seed, self.best or seed
        for row in rows[self._taken :]:
            if row.kept and row.candidate:
                self.incumbent = row.candidate
                self.keeps += row.code != FOLLOWED
            if row.best and row.candidate and row.candidate != self.best:
                self.best, self.best_step = row.candidate, row.step
            self.proposals += row.judged
            for at, used in enumerate(row.spent):
                self._spent[at] += used
            wanted = (seed, self.incumbent, self.best)
            if row.kept or row.best:
                self._known = {id_: known for id_, known in self._known.items() if id_ in wanted}
            for told in row.told:
                if told.candidate in wanted:
                    self._known.setdefault(told.candidate, {})[told.purpose] = told
        self._taken = len(rows)


class _Tail:
    """Spend of open steps, from the end of the rollout file; each line is read once."""

    def __init__(self, path: Path, *, whole: bool) -> None:
        self._path = path
        self._least = 0 if whole else None
        self.at: int | None = None
        self._meters: dict[int, Meter] = {}
        self._calls: list[tuple[int, codec.CallLine]] = []
        """Calls with their offsets in the file; `_counted` has the same for jobs."""
        self._counted: list[tuple[int, Job]] = []
        self._unfinished = NOTHING
        """Cost of calls of rollouts and proposals that have not finished."""

    def still(self) -> "_Tail":
        other = copy(self)
        other._calls, other._counted = list(self._calls), list(self._counted)
        other._meters = {step: copy(meter) for step, meter in self._meters.items()}
        return other

    def done(self, step: int) -> int:
        meter = self._meters.get(step)
        return meter.rollouts if meter else 0

    def spend(self, opened: Mapping[int, Opened]) -> Spend:
        mine = (meter.spend() for step, meter in self._meters.items() if step in opened)
        return sum(mine, self._unfinished)

    def refresh(self, opened: Mapping[int, Opened], answered: Collection[int]) -> None:
        if not opened:
            self.at, self._meters = None, {}
            self._calls, self._counted, self._unfinished = [], [], NOTHING
            return
        first = min(opened)
        self._meters = {step: meter for step, meter in self._meters.items() if step >= first}
        at = opened[first].event.rollouts_at if self.at is None else self.at
        for one in stored_lines(self._path, at, least=self._least):
            if one.problem:
                raise damaged_at(self._path, one.at, one.problem)
            written = codec.unseal(one.line)
            at = max(at, written + len(one.line))
            with naming(self._path, one.at):
                row = codec.decode_line(one.line)
            # a step unknown so far was opened after the spine was read; it is counted too
            match row:
                case codec.RolloutLine():
                    job, outcome = row.entry()
                    self._counted.append((written, job))
                    if row.step >= first:
                        self._meters.setdefault(row.step, Meter()).add((outcome,))
                case codec.CancelledLine():
                    self._counted.append((written, row.job))
                    if row.step >= first:
                        self._meters.setdefault(row.step, Meter()).cancel(row.usage)
                case codec.CallLine():
                    self._calls.append((written, row))
                case _:
                    pass
        self.at = at
        # entries before the first open step's range belong to closed steps
        begin = opened[first].event.rollouts_at
        self._calls = [call for call in self._calls if call[0] >= begin]
        self._counted = [entry for entry in self._counted if entry[0] >= begin]
        self._unfinished = unfinished_spend(
            self._path.parent,
            [row for _, row in self._calls],
            {job for _, job in self._counted},
            [step for step in opened if step not in answered],
        )
