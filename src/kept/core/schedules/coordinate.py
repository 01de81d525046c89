"""The schedule of coordinate descent: phases in turn, cycle by cycle, until a whole one is dry.

A phase changes one kind of thing (numbers, words, examples) and ends when it has had its trials or
nothing was kept for a while. Every keep moves the incumbent, so that each phase begins where the
one before it came to. All of it is a function of the closed steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, NamedTuple

from kept.core.budget import StopReason
from kept.core.proposal import ClosedStep, History, Turn
from kept.core.schedules.round_robin import MEASURE
from kept.core.state import State
from kept.core.text import count

BASELINE = "baseline"
"""The phase in which the seed is measured, before anything is changed."""

NO_MORE = 1e-9
"""A loss by so little above another is the same: sums of thirds do not come out even."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One kind of change."""

    name: str
    proposer: str
    max_trials: int
    patience: int
    """Trials without a keep after which it is over."""
    least: int = 0
    """Trials that it has at any rate: a search must warm up before it can be told to be dry."""
    axes: tuple[str, ...] = ()
    """Axes that trials take in turn; empty if each trial covers all of them."""


class PhaseAt(NamedTuple):
    """A phase and the number of its cycle, from 1."""

    cycle: int
    phase: Phase

    @property
    def label(self) -> str:
        """As turns spell it."""
        return f"c{self.cycle}/{self.phase.name}"


def cycle_of(label: str) -> int:
    """The cycle that a turn's phase belongs to; 0 for what is before the first."""
    head = label.partition("/")[0]
    return int(head[1:]) if head.startswith("c") and head[1:].isdigit() else 0


def phase_of(label: str) -> str:
    """The name of a turn's phase, without its cycle."""
    return label.partition("/")[2] or label


def end_of(phase: Phase, trials: Sequence[ClosedStep]) -> str:
    """Reason why a phase is over, in a word of seed 001; empty while it is not."""
    if trials and trials[-1].skip is not None and trials[-1].skip.ends:
        return trials[-1].skip.ends
    if trials and trials[-1].skip is not None and trials[-1].skip.exhausted:
        return "exhausted"
    if len(trials) >= phase.max_trials:
        return "max_trials"
    dry = 0
    for step in reversed(trials):
        if step.verdict.outcome == "keep":
            break
        dry += 1
    return "patience" if dry >= phase.patience and len(trials) >= phase.least else ""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Implements `kept.core.ports.Schedule`."""

    phases: tuple[Phase, ...]
    max_cycles: int
    perfect: float | None = None
    """The loss that nothing can better; None where there is none."""
    allows_pool: ClassVar[bool] = False

    def next(self, state: State) -> Turn | StopReason:
        """The next trial of the phase that is on, or the first of the next one."""
        if not state.next_step:
            return Turn(MEASURE, BASELINE, races=False)
        if self.perfect is not None and is_perfect(state, self.perfect):
            words = f"the loss is {self.perfect:g}: there is nothing left to gain"
            return StopReason("converged", words)
        at = self._now(state)
        if at is None:
            return self._turn(PhaseAt(1, self.phases[0]), state)
        if not end_of(at.phase, trials_of(state.history, at.label)):
            return self._turn(at, state)
        following = self._after(at, state)
        return following if isinstance(following, StopReason) else self._turn(following, state)

    def most_steps(self) -> int:
        """Most steps that it opens: the baseline, and every trial of every cycle."""
        return 1 + self.max_cycles * sum(phase.max_trials for phase in self.phases)

    def last(self, state: State) -> Turn | None:
        """Nothing more: what was kept is the best."""
        return None

    def _now(self, state: State) -> PhaseAt | None:
        """The phase of the latest trial; None before the first."""
        for step in chain(reversed(state.open), reversed(state.history)):
            cycle = cycle_of(step.turn.phase)
            if cycle:
                name = phase_of(step.turn.phase)
                return PhaseAt(cycle, next(p for p in self.phases if p.name == name))
        return None

    def _after(self, at: PhaseAt, state: State) -> PhaseAt | StopReason:
        place = self.phases.index(at.phase) + 1
        if place < len(self.phases):
            return PhaseAt(at.cycle, self.phases[place])
        if not _kept_in(state.history, at.cycle):
            reason = f"nothing was kept in the whole of cycle {at.cycle}"
            return StopReason("converged", reason)
        if at.cycle >= self.max_cycles:
            return StopReason("iterations", f"{count(at.cycle, 'cycle')} done, the limit")
        return PhaseAt(at.cycle + 1, self.phases[0])

    def _turn(self, at: PhaseAt, state: State) -> Turn:
        name = at.phase.proposer
        had = sum(step.turn.phase == at.label for step in state.open)
        had += len(trials_of(state.history, at.label))
        axes = at.phase.axes
        # where the last phase of this kind ended is where the next goes on
        past = state.turns.get(name, 0)
        settings = {"axis": axes[past % len(axes)]} if axes else {}
        return Turn(name, at.label, had, settings, alone=True)


def trials_of(history: Sequence[ClosedStep], label: str) -> list[ClosedStep]:
    """The closed steps of the latest phase, oldest first, if that is its label."""
    found: list[ClosedStep] = []
    for step in reversed(history):
        if step.turn.phase == label:
            found.append(step)
        elif cycle_of(step.turn.phase):
            break  # of an earlier phase; what the run itself measures has none
    return found[::-1]


def is_perfect(state: State, perfect: float) -> bool:
    """True if the incumbent has the least possible loss wherever it was measured."""
    known = state.evaluations.get(state.incumbent, ())
    deciding = [e for e in known if e.purpose in ("screen", "decide")]
    return bool(deciding) and all(
        e.loss is not None and e.loss <= perfect + NO_MORE and not e.missing for e in deciding
    )


def _kept_in(history: History, cycle: int) -> bool:
    for step in reversed(history):
        number = cycle_of(step.turn.phase)
        if number and number < cycle:
            return False
        if step.verdict.outcome == "keep":
            return True
    return False
