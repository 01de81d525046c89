"""What tuning an agent.yaml was asked for, and what a journal holds of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from kept.core.schedules.coordinate import Phase
from kept.errors import SetupError
from kept.recipes.base import Facts, Request

LIMITS = ("max_cycles", "max_minutes", "max_usd", "allow_unpriced")
"""What a run may be given more or less of when it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(Request):
    """None leaves a thing to the file."""

    max_cycles: int | None = None
    max_minutes: float | None = None
    max_usd: float | None = None
    numeric_max_trials: int | None = None
    numeric_patience: int | None = None
    textual_max_trials: int | None = None
    textual_patience: int | None = None
    repeats: int | None = None
    accept_sigma: float | None = None
    seed: int | None = None
    output: str | None = None
    """Where its files go; a folder."""
    allow_unpriced: bool | None = None
    """Go on where `max_usd` cannot be enforced for want of a price, with a warning."""

    def moved(self, moved: Callable[[Path], Path]) -> "Tuning":
        """The same, with its folder where it is now."""
        return self if self.output is None else replace(self, output=str(moved(Path(self.output))))

    def renewed(self, asked: "Tuning") -> "Tuning":
        """As a run was asked, with limits that its resume sets anew; all else is refused."""
        given = {name: value for name, value in asdict(asked).items() if value is not None}
        fixed = [name for name in given if name not in LIMITS]
        if fixed:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            raise SetupError(
                f"{flags} cannot change in a run that goes on", hint="start another run with it"
            )
        return replace(self, **given)


class OptimizerFacts(TypedDict):
    """The `optimizer` block that a run goes by, nested as its source has it, defaults and all."""

    loss_weights: Mapping[str, float]
    penalties: Mapping[str, object]
    axes: Mapping[str, Sequence[Mapping[str, object]]]
    gate: str
    repeats: int
    accept_sigma: float
    min_delta: float
    max_errored_fraction: float
    min_confidence: float
    numeric_convergence_eps: float
    budget: Mapping[str, Mapping[str, float | None]]
    holdout_eval_policy: str
    min_holdout_cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningFacts(Facts):
    """What a run that tunes an agent goes by."""

    optimizer: OptimizerFacts
    phases: tuple[Phase, ...] = ()
    helpers: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Model and file of critic and applier."""
    helper_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Digests of the files of critic and applier, by path."""
    baseline_only: bool = False
    """Whether the run measures the agent as it is, and stops."""
