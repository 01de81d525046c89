"""Tells whoever listens how coordinate descent goes: its phases and cycles, trial by trial."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kept.core.event import Event, Proposed, RunStopped, StepOpened
from kept.core.ports import Journal
from kept.core.proposal import Proposal
from kept.core.schedules.coordinate import BASELINE, cycle_of, phase_of
from kept.core.stage import StepRecords
from kept.core.state import State
from kept.recipes.agent_config.outputs.trial import Trial, Trials
from kept.store.views import View


@dataclass(frozen=True, slots=True)
class Begun:
    """A trial whose proposal is there, and which is now measured."""

    number: int
    cycle: int
    phase: str
    baseline_loss: float | None
    params: Mapping[str, object]
    axis: str
    summary: str


@dataclass(frozen=True, slots=True)
class PhaseBegun:
    """A phase that begins."""

    cycle: int
    phase: str
    nth: int
    """Of its kind, the first being 1."""
    improved: bool
    """Whether texts have changed since the run began."""


@dataclass(frozen=True, slots=True)
class PhaseDone:
    """A phase that is over."""

    cycle: int
    phase: str
    trials: int
    accepted: int


@dataclass(frozen=True, slots=True)
class CycleDone:
    """A cycle that is over."""

    cycle: int
    accepted: int
    best_loss: float | None
    dry: bool


class Listener:
    """Hears nothing; who wants to hear something says so."""

    def run_started(self, run: str, state: State, *, resumed: bool) -> None:
        """A sitting begins."""

    def taken_up(self, baseline: Trial) -> None:
        """A run goes on whose baseline is known."""

    def phase_started(self, begun: PhaseBegun) -> None:
        """A phase begins."""

    def cycle_started(self, cycle: int) -> None:
        """A cycle begins."""

    def trial_begun(self, begun: Begun) -> None:
        """A proposal is there."""

    def trial_done(self, trial: Trial) -> None:
        """A trial has its verdict."""

    def phase_done(self, done: PhaseDone) -> None:
        """A phase is over."""

    def cycle_done(self, done: CycleDone) -> None:
        """A cycle is over."""


class Teller(View):
    """Hears of steps and tells of trials; what earlier sittings came to is not told again."""

    def __init__(self, listener: Listener, journal: Journal) -> None:
        super().__init__(journal)
        self._listener = listener
        self._trials = Trials()
        self._label = ""
        """The phase that is on, as turns spell it."""

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Take up the past, silently."""
        for step in steps:
            self._trials.hear(step)

    def closed(self, step: StepRecords) -> None:
        """Tell of a trial."""
        trial = self._trials.hear(step)
        if trial is not None:
            self._listener.trial_done(trial)

    def on_event(self, event: Event, state: State) -> None:
        """Besides, tell of phases as they begin and end, and of proposals."""
        super().on_event(event, state)
        match event:
            case StepOpened():
                self._opened(event.turn.phase)
            case Proposed() if isinstance(event.reply, Proposal):
                self._begun(event.reply, state)
            case RunStopped() if not event.reason.resumable:
                self._phase_over("")
            case _:
                if event.kind in ("run_started", "run_resumed"):
                    resumed = event.kind == "run_resumed"
                    self._listener.run_started(self.run, state, resumed=resumed)
                    self._taken_up(state)

    def _taken_up(self, state: State) -> None:
        """Of a run that goes on: the baseline, and the cycle and phase that are under way."""
        if self._trials.rows:
            self._listener.taken_up(self._trials.rows[0])
        if state.open:
            self._opened(state.open[0].turn.phase)

    def _opened(self, label: str) -> None:
        if label == self._label or not cycle_of(label):
            return
        self._phase_over(label)
        cycle, phase = cycle_of(label), phase_of(label)
        if cycle != cycle_of(self._label):
            self._listener.cycle_started(cycle)
        self._label = label
        rows = self._trials.rows
        cycles = {row.cycle for row in rows if row.phase == phase} | {cycle}
        improved = any(row.accepted and row.phase in ("textual", "demos") for row in rows)
        self._listener.phase_started(PhaseBegun(cycle, phase, len(cycles), improved))

    def _phase_over(self, following: str) -> None:
        cycle, phase = cycle_of(self._label), phase_of(self._label)
        if not cycle:
            return
        rows = [row for row in self._trials.rows if row.cycle == cycle]
        mine = [row for row in rows if row.phase == phase]
        kept = sum(row.accepted for row in mine)
        self._listener.phase_done(PhaseDone(cycle, phase, len(mine), kept))
        if cycle_of(following) != cycle:
            best = self._trials.rows[-1].after.train if self._trials.rows else None
            whole = sum(row.accepted for row in rows)
            self._listener.cycle_done(CycleDone(cycle, whole, best, dry=not whole))
        if not following:
            self._label = ""

    def _begun(self, proposal: Proposal, state: State) -> None:
        turn = state.open[-1].turn if state.open else None
        if turn is None or turn.phase == BASELINE or not cycle_of(turn.phase):
            return
        rows = self._trials.rows
        params = proposal.about.get("params")
        self._listener.trial_begun(
            Begun(
                number=len(rows),
                cycle=cycle_of(turn.phase),
                phase=phase_of(turn.phase),
                baseline_loss=rows[-1].after.train if rows else None,
                params=params if isinstance(params, Mapping) else {},  # pyright: ignore[reportUnknownArgumentType] # as its author says
                axis=str(turn.settings.get("axis", "")),
                summary=proposal.why,
            )
        )
