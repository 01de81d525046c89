"""Objective of a run: one primary metric, hard constraints, tie-breakers.

The only place that knows a direction. Everywhere else there is a loss, and lower is better.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from kept.core.rollout import Failure

Direction = Literal["maximize", "minimize"]
Operator = Literal["<", "<=", ">", ">=", "==", "!="]

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

_NOT_EMITTED = "did not emit"
_OUTSIDE = "outside its bounds"


def unusable(message: str) -> Literal["metric", "bounds"] | None:
    """Kind of fault of an unusable measure, from the message of its failure."""
    if _NOT_EMITTED in message:
        return "metric"
    return "bounds" if _OUTSIDE in message else None


LARGEST = 1e150
"""Beyond this, either way, the squares that a tally sums up are no numbers any more."""


def countable(value: float) -> bool:
    """True if a measure can be summed: finite and not absurdly large."""
    return abs(value) <= LARGEST


def no_value(metric: str, value: float) -> str:
    """The words for a primary metric that cannot be summed up, with who gave it.

    The candidate is to blame: the scorer works, and what it measured has no value.
    """
    return f"the scorer gave {value!r:.80} for `{metric}`, not a finite number"


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition that blocks a keep, whatever the primary metric says."""

    metric: str
    op: Operator
    value: float

    def holds(self, measured: float) -> bool:
        """True if a measured value satisfies it."""
        return _OPERATORS[self.op](measured, self.value)

    def __str__(self) -> str:
        return f"{self.metric} {self.op} {self.value:g}"


OwnMeasure = Literal["usd", "seconds", "tokens"]
"""Measures that Kept takes of every rollout; constraints and tie-breakers may use them."""

OWN: tuple[OwnMeasure, ...] = get_args(OwnMeasure)


@dataclass(frozen=True, slots=True)
class TieBreaker:
    """Metric that decides between two candidates whose primary metrics are tied."""

    metric: str
    prefer: Literal["lower", "higher"] = "lower"


@dataclass(frozen=True, slots=True)
class Penalty:
    """Addition to the loss of a rollout for cost, time or tokens."""

    metric: OwnMeasure
    rate: float
    """Loss by the unit."""


MOST_PENALTY = 1.0
"""All penalties of one rollout together, at most: a loss that a race bets on has an end."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric that a run improves, with constraints and tie-breakers."""

    metric: str = "score"
    direction: Direction = "maximize"
    bounds: tuple[float, float] | None = None
    """The least and greatest value the metric can take; None when it has no bounds."""
    constraints: tuple[Constraint, ...] = ()
    tie_breakers: tuple[TieBreaker, ...] = ()
    tie_tolerance: float = 0.0
    penalties: tuple[Penalty, ...] = ()
    deterministic: bool = False
    """Declared: the same candidate scores the same on the same case, however often it runs."""

    def loss(self, metrics: Mapping[str, float]) -> float:
        """The one number to bring down."""
        value = float(metrics[self.metric])
        if self.penalties:
            value += self.penalty(metrics) * (-1.0 if self.direction == "maximize" else 1.0)
        return -value if self.direction == "maximize" else value

    def penalty(self, metrics: Mapping[str, float]) -> float:
        """Sum of the penalties of one rollout."""
        charged = sum(one.rate * metrics.get(one.metric, 0.0) for one in self.penalties)
        return min(MOST_PENALTY, charged)

    @property
    def own(self) -> tuple[OwnMeasure, ...]:
        """Measures of Kept's own that something of it names."""
        named = {one.metric for one in (*self.constraints, *self.tie_breakers, *self.penalties)}
        return tuple(name for name in OWN if name in named)

    @property
    def worst_loss(self) -> float | None:
        """Loss that a candidate's own failure counts as; None for an unbounded metric."""
        if self.bounds is None:
            return None
        low, high = self.bounds
        worst = -low if self.direction == "maximize" else high
        # a failure uses little, and must not win by that
        return worst + (MOST_PENALTY if self.penalties else 0.0)

    @property
    def scale(self) -> float | None:
        """The length of the metric's scale; None where it has no ends."""
        if self.bounds is None:
            return None
        low, high = self.bounds
        return (high - low + (MOST_PENALTY if self.penalties else 0.0)) or 1.0

    def value(self, loss: float) -> float:
        """A loss back in the metric's own units."""
        # not `-loss`: that makes −0 of a loss of 0
        return 0.0 - loss if self.direction == "maximize" else loss

    def fault(self, metrics: Mapping[str, float]) -> Failure | None:
        """Failure if these measures cannot be used, else None."""
        value = metrics.get(self.metric)
        if value is None:
            emitted = ", ".join(f"`{name}`" for name in metrics) or "nothing"
            message = f"the scorer {_NOT_EMITTED} `{self.metric}` (it emitted {emitted})"
            # broken for every candidate, so no candidate is to blame
            return Failure("harness", "infrastructure", message)
        if not abs(value) <= LARGEST:  # as `countable` has it, which would be one call more
            return Failure("parse", "candidate", no_value(self.metric, value))
        if self.bounds is not None and not self.bounds[0] <= value <= self.bounds[1]:
            low, high = self.bounds
            message = f"`{self.metric}` is {value:g}, {_OUTSIDE} {low:g} … {high:g}"
            return Failure("harness", "infrastructure", message)
        return None
