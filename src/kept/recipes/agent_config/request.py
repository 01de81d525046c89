"""Request of a tuning run, and its facts in the journal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from kept.core.schedules.coordinate import Phase
from kept.errors import SetupError
from kept.recipes.base import Facts, Request

LIMITS = ("max_cycles", "max_minutes", "max_usd", "allow_unpriced")
"""Options that a resume may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning(Request):
    """Options of a tuning run; None leaves the value of the file."""

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
    """Output folder."""
    allow_unpriced: bool | None = None
    """True to continue with a warning if a missing price makes `max_usd` unenforceable."""

    def moved(self, moved: Callable[[Path], Path]) -> "Tuning":
        """Same request, with its folder at its current place."""
        return self if self.output is None else replace(self, output=str(moved(Path(self.output))))

    def renewed(self, asked: "Tuning") -> "Tuning":
        """Same request with the limits set by a resume; raises `SetupError` for other options."""
        given = {name: value for name, value in asdict(asked).items() if value is not None}
        fixed = [name for name in given if name not in LIMITS]
        if fixed:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            raise SetupError(
                f"{flags} cannot change in a run that goes on", hint="start another run with it"
            )
        return replace(self, **given)


class OptimizerFacts(TypedDict):
    """The `optimizer` block of a run, nested as in its source, with defaults."""

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
    """Facts of a run that tunes an agent."""

    optimizer: OptimizerFacts
    phases: tuple[Phase, ...] = ()
    helpers: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    """Model and file of critic and applier."""
    helper_files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Digests of the files of critic and applier, by path."""
    baseline_only: bool = False
    """True if the run only measures the agent as it is."""
