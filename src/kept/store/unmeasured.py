"""Cases that no candidate was ever measured on: they are in the figures, or missing from them."""

from collections.abc import Iterable
from dataclasses import dataclass

from kept.core.event import StepClosed
from kept.core.rollout import Purpose
from kept.core.score import Evaluation
from kept.core.state import State
from kept.core.words import count, one_line
from kept.store import wire
from kept.store.reader import Run

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
    measured = _measured(e for event in closed for e in event.evaluations)
    if not measured:
        return ()
    bounded = not any(e.unscored for e in seed)
    found: dict[str, Unmeasured] = {}
    for row in run.all_lines(b'"failure":{'):
        if not isinstance(row, wire.RolloutLine) or row.failure is None:
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


def _measured(evaluations: Iterable[Evaluation]) -> set[str]:
    """Cases of which somebody has a measured value."""
    return {case for e in evaluations for case, tally in e.cases.items() if tally.n > tally.failed}
