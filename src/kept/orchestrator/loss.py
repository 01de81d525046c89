"""Loss of an agent run, as the source defines it, with all its parts.

    total = 0.40 (1 - eval) + 0.30 (1 - critique) + 0.15 min(1, rejections / max_rejections)
          + 0.05 (1 - budget remaining) + 0.10 status penalty

A missing measure counts as 0.5, and an unknown budget as untouched. Most of the loss depends on how
smoothly a run went, not on its deliverables. So its parts are always shown with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kept.orchestrator.record import AgentRun

UNKNOWN = 0.5
"""Value of a missing measure."""

USUAL_REJECTIONS = 2
"""Default number of rejections at which their part reaches its maximum."""

PENALTIES = {"complete": 0.0, "partial": 0.5, "failed": 1.0, "aborted": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weight of each part; they need not sum to 1."""

    eval: float = 0.40
    critique: float = 0.30
    gate_reject: float = 0.15
    budget_burn: float = 0.05
    terminal: float = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """Measured inputs of a loss; None if not measured."""

    eval_score: float | None = None
    critique_score: float | None = None
    rejections: int = 0
    """Refused completions, each counted once."""
    max_rejections: int = USUAL_REJECTIONS
    budget_remaining: float | None = None
    """Share of the budget, 0 to 1."""
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss as its weighted parts."""

    eval: float
    critique: float
    gate_reject: float
    budget_burn: float
    terminal: float
    signals: Signals

    @property
    def total(self) -> float:
        """Sum of all parts; lower is better."""
        return self.eval + self.critique + self.gate_reject + self.budget_burn + self.terminal

    def parts(self) -> dict[str, float]:
        """Return the parts by name, and the total, rounded to 6 digits."""
        names = ("eval", "critique", "gate_reject", "budget_burn", "terminal", "total")
        return {name: round(getattr(self, name), 6) for name in names}


def loss_of(signals: Signals, weights: Weights | None = None) -> Loss:
    """Compute the loss of some signals."""
    w = weights or Weights()
    eval_ = _share(signals.eval_score, UNKNOWN)
    critique = _share(signals.critique_score, UNKNOWN)
    remaining = _share(signals.budget_remaining, 1.0)
    # avoid a division by 0
    most = signals.max_rejections if signals.max_rejections > 0 else USUAL_REJECTIONS
    return Loss(
        eval=w.eval * (1 - eval_),
        critique=w.critique * (1 - critique),
        gate_reject=w.gate_reject * min(1.0, signals.rejections / most),
        budget_burn=w.budget_burn * (1 - remaining),
        terminal=w.terminal * PENALTIES.get(signals.status, UNKNOWN),
        signals=signals,
    )


def _share(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else min(1.0, max(0.0, value))


def signals_of(run: AgentRun) -> Signals:
    """Return the signals of a run of Kept."""
    return Signals(
        eval_score=run.evaluation.score if run.evaluation else None,
        critique_score=run.critique.score if run.critique else None,
        rejections=sum(one.completion for one in run.rejections),
        max_rejections=run.limits.rejected_completions,
        budget_remaining=run.budget.remaining if run.budget else None,
        status=run.status,
    )


def run_loss(run: AgentRun, weights: Weights | None = None) -> Loss:
    """Compute the loss of a run of Kept."""
    return loss_of(signals_of(run), weights)


def mean_of(rows: Iterable[Mapping[str, Any]], kind: str) -> float | None:
    """Return the mean score of the rows of a kind; None if there is none."""
    scores = [_number(row.get("score")) for row in rows if row.get("kind") == kind]
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


def first_number(*values: object) -> float | None:
    """Return the first value that is a number; None if there is none."""
    return next((one for one in map(_number, values) if one is not None), None)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value == value else None  # NaN is not equal to itself


def loss_words(loss: Loss) -> str:
    """Return a loss with its parts, in one line."""
    parts = loss.parts()
    total = parts.pop("total")
    shown: Sequence[str] = [f"{name} {value:.4f}" for name, value in parts.items()]
    return f"{total:.4f} = {' + '.join(shown)}"
