"""A cell of the tables: many runs of one arm in one world, summed up."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from bench.gates.drive import Run

NOTHING = 1e-9
"""A true gain below this is none: odds are summed up in floating point."""


class Rate(NamedTuple):
    """A share of some runs or keeps, with Wilson's interval of 95 %."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        return self.hits / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        if not self.of:
            return 0.0, 1.0
        z, n, p = 1.96, self.of, self.hits / self.of
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return max(0.0, middle - half), min(1.0, middle + half)

    def __str__(self) -> str:
        if not self.of:
            return "–"
        low, high = self.interval
        return f"{self.hits / self.of:.1%} ({low:.1%}–{high:.1%})"

    def plain(self) -> str:
        return f"{self.hits / self.of:.1%}" if self.of else "–"


class Mean(NamedTuple):
    """An average over runs, with its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:+.3f} ± {self.error:.3f}"


@dataclass(frozen=True, slots=True)
class Cell:
    """What an arm did in a world."""

    world: str
    arm: str
    runs: int
    final: Mean
    best: Mean
    false_keeps: Rate
    """Of all keeps, those that were not better than the incumbent they replaced."""
    any_false: Rate
    """Of all runs, those with a false keep."""
    any_false_long: Rate
    """Of the runs of at least 30 proposals, those with a false keep."""
    promoted: Rate
    not_better: Rate
    """Of the runs that promoted anything, those whose best is not better than the seed."""
    not_better_all: Rate
    """The same, of all runs."""
    best_worse: Rate
    """Of all runs, those whose best is worse than the seed."""
    ends_worse: Rate
    """Of all runs, those whose last incumbent is worse than the seed."""
    optimism: Mean
    """Claimed minus true gain of the best, over all runs."""
    optimism_promoted: Mean
    """The same, over those that promoted anything."""
    optimism_then: Mean
    """Claimed minus what the evaluator would show at that moment, over all runs."""
    keeps: float
    """A run."""
    proposals: float
    rollouts: float
    looks: float
    seconds: float
    """Of the gate itself, in all."""

    @property
    def per_decision(self) -> float:
        return self.rollouts / self.proposals if self.proposals else float("nan")

    def as_json(self) -> dict[str, object]:
        found = asdict(self)
        del found["seconds"]
        return {**found, "rollouts_per_decision": self.per_decision}


def summed_up(world: str, arm: str, runs: Sequence[Run]) -> Cell:
    promoted = [run for run in runs if run.promoted]
    long = [run for run in runs if run.proposals >= 30]
    effects = [effect for run in runs for effect in run.effects]
    return Cell(
        world,
        arm,
        len(runs),
        final=_mean(run.final for run in runs),
        best=_mean(run.best for run in runs),
        false_keeps=_rate(effect <= NOTHING for effect in effects),
        any_false=_rate(has_false_keep(run) for run in runs),
        any_false_long=_rate(has_false_keep(run) for run in long),
        promoted=_rate(run.promoted for run in runs),
        not_better=_rate(run.best <= NOTHING for run in promoted),
        not_better_all=_rate(run.promoted and run.best <= NOTHING for run in runs),
        best_worse=_rate(run.best < -NOTHING for run in runs),
        ends_worse=_rate(run.final < -NOTHING for run in runs),
        optimism=_mean(run.claimed - run.best for run in runs),
        optimism_promoted=_mean(run.claimed - run.best for run in promoted),
        optimism_then=_mean(run.claimed - run.shown for run in runs),
        keeps=fmean(len(run.effects) for run in runs),
        proposals=fmean(run.proposals for run in runs),
        rollouts=fmean(run.rollouts for run in runs),
        looks=fmean(run.looks for run in runs),
        seconds=sum(run.seconds for run in runs),
    )


def has_false_keep(run: Run) -> bool:
    return any(effect <= NOTHING for effect in run.effects)


def _rate(answers: Iterable[bool]) -> Rate:
    found = list(answers)
    return Rate(sum(found), len(found))


def _mean(values: Iterable[float]) -> Mean:
    found = list(values)
    if not found:
        return Mean(0.0, 0.0)
    error = stdev(found) / sqrt(len(found)) if len(found) > 1 else 0.0
    return Mean(fmean(found), error)
