"""What `evaluations.optimizer` of an agent.yaml may say: how the agent is improved, and by what.

`OptimizerBlock` is the block as a file has it: limits nested in `budget`, or flat, as both stand in
files that there are. `OptimizerSpec` is what it comes to, each thing by one name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from kept.errors import Problem, SpecError
from kept.gates.sigma import HoldoutPolicy
from kept.recipes.agent_config.spec.axes import AxesSpec
from kept.recipes.agent_config.spec.case_files import OPTIMIZER
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.spec.starter import starter_block, where_it_goes
from kept.recipes.agent_config.spec.variables import fill_in, tell_once, without_secrets
from kept.recipes.agent_config.spec.words import Share, Words
from kept.recipes.task.race import Race, RaceSpec
from kept.spec.base import Count, Finite, Model, Ratio
from kept.spec.load import said, validate
from kept.spec.source import Source, dotted, read_source
from kept.spec.yaml import Loc

BLOCK: Loc = OPTIMIZER

WARM_UP = 10
"""Points of a numeric phase that are drawn at random before the search has something to go by."""

Weight = Annotated[Finite, Field(ge=0)]
Minutes = Annotated[Finite, Field(gt=0)]
Gate = Literal["race", "sigma"]

SIGMA_KEYS = ("accept_sigma", "repeats", "holdout_eval_policy", "max_errored_fraction")
"""Keys that only `gate: sigma` reads; any of them selects it."""


class PenaltiesSpec(Model):
    """What is added to the loss of a candidate for what it costs."""

    cost_per_usd: Weight = 0.0
    latency_per_sec: Weight = 0.0


class PhaseSpec(Model):
    """How long a phase goes on."""

    max_trials: Count
    patience: Count
    """Trials without a keep after which it is over."""


class NumericPhaseSpec(PhaseSpec):
    """The phase of numbers."""

    max_trials: Count = 15
    patience: Count = 5


class TextualPhaseSpec(PhaseSpec):
    """The phase of words."""

    max_trials: Count = 10
    patience: Count = 4


class DemosPhaseSpec(PhaseSpec):
    """The phase of examples."""

    max_trials: Count = 6
    patience: Count = 3


class GlobalSpec(Model):
    """Limits of the run."""

    max_cycles: Count | None = None
    max_minutes: Minutes | None = None
    max_usd: Weight | None = None
    max_rollouts: Count | None = None


class OptimizerBudgetSpec(Model):
    """Limits of the run and of its phases."""

    whole: GlobalSpec = Field(default=GlobalSpec(), alias="global")
    numeric_phase: NumericPhaseSpec | None = None
    textual_phase: TextualPhaseSpec | None = None
    demos_phase: DemosPhaseSpec | None = None


class OptimizerBlock(Model):
    """The block as it stands in a file."""

    loss: dict[str, Weight]
    """By the names of metrics, how much each counts; those that are not here do not."""
    penalties: PenaltiesSpec = PenaltiesSpec()
    train_cases_file: Words | None = None
    holdout_cases_file: Words | None = None
    test_cases_file: Words | None = None
    """Cases that are run once, at the end."""
    split: Ratio | None = None
    """Shares of the agent's own cases, where there are no files."""
    holdout_eval_policy: HoldoutPolicy | None = None
    min_holdout_cases: Count = 5
    repeats: Count | None = None
    accept_sigma: Weight | None = None
    max_errored_fraction: Share | None = None
    min_delta: Weight = 0.0
    min_confidence: Share = 0.4
    numeric_convergence_eps: Weight = 1e-3
    gate: Gate | None = None
    race: Race | None = None
    axes: AxesSpec
    budget: OptimizerBudgetSpec = OptimizerBudgetSpec()
    max_cycles: Count | None = None
    max_minutes: Minutes | None = None
    max_usd: Weight | None = None
    max_rollouts: Count | None = None
    numeric_phase: NumericPhaseSpec | None = None
    textual_phase: TextualPhaseSpec | None = None
    demos_phase: DemosPhaseSpec | None = None
    seed: int = 42

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """A loss of something, and no key without an effect."""
        if "loss" in said and not any(said["loss"].values()):
            yield "`loss` weighs nothing: name a metric, and a weight above 0"
        if not {"gate", "race", *SIGMA_KEYS} <= said.keys():
            return
        given = [key for key in SIGMA_KEYS if said[key] is not None]
        if said["gate"] == "race":
            yield from (f"`{key}` is of `gate: sigma`, and the gate is `race`" for key in given)
        elif said["race"] is not None and (said["gate"] == "sigma" or given):
            why = f", by `{given[0]}`" if said["gate"] is None else ""
            yield f"`race` says how to race, and the gate is `sigma`{why}: leave one of them out"

    @property
    def gate_by(self) -> str:
        """The key that says which gate decides; empty where none does."""
        keys = ("gate", "race", *SIGMA_KEYS)
        return next((key for key in keys if getattr(self, key) is not None), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec:
    """What the block comes to, each thing by one name."""

    loss: Mapping[str, float]
    axes: AxesSpec
    penalties: PenaltiesSpec = field(default_factory=PenaltiesSpec)
    train_cases_file: str | None = None
    holdout_cases_file: str | None = None
    test_cases_file: str | None = None
    split: str | None = None
    holdout_eval_policy: HoldoutPolicy = "on_train_improve"
    min_holdout_cases: int = 5
    repeats: int = 3
    accept_sigma: float = 1.0
    max_errored_fraction: float = 0.25
    min_delta: float = 0.0
    min_confidence: float = 0.4
    numeric_convergence_eps: float = 1e-3
    gate: Gate = "race"
    gate_by: str = ""
    """The key or flag that chose the gate; empty where the cases do."""
    race: RaceSpec = field(default_factory=RaceSpec)
    max_cycles: int = 4
    max_minutes: float | None = None
    max_usd: float | None = None
    max_rollouts: int | None = None
    numeric_phase: PhaseSpec = field(default_factory=NumericPhaseSpec)
    textual_phase: PhaseSpec = field(default_factory=TextualPhaseSpec)
    demos_phase: PhaseSpec = field(default_factory=DemosPhaseSpec)
    seed: int = 42


_WHOLE = tuple(GlobalSpec.model_fields)
_PHASES = ("numeric_phase", "textual_phase", "demos_phase")
_ABOUT_CASES = (
    *("loss", "train_cases_file", "holdout_cases_file", "test_cases_file", "split", "seed"),
    *("holdout_eval_policy", "min_holdout_cases"),
)


def optimizer_of(read: ReadAgent) -> OptimizerSpec | None:
    """How an agent is to be improved; None, and reports, where that cannot be had."""
    source = read.source
    if said(source, BLOCK) is None:
        message = "missing: it says what may change, and what better means"
        hint = f"begin with this one; {where_it_goes(read)}\n{starter_block(read)}"
        source.report(BLOCK, message, hint)
        return None
    _check_forms(source)
    block = validate(source, OptimizerBlock, BLOCK)
    return None if block is None else _resolved(block)


def block_problems(path: Path, overrides: Sequence[str]) -> tuple[Problem, ...]:
    """What is wrong with the block itself, of an agent that cannot be read."""
    try:
        source = read_source(path, overrides)
    except SpecError:
        return ()  # which is told already
    if said(source, BLOCK) is None:
        return ()
    unset = fill_in(source)
    source.problems.clear()
    _check_forms(source)
    validate(source, OptimizerBlock, BLOCK)
    tell_once(source, unset)
    return tuple(map(without_secrets, source.problems))


def cases_of(read: ReadAgent) -> OptimizerSpec | None:
    """The block as far as it is about cases; None where that part is wrong, which is told already.

    So cases are looked at though something else in the block is wrong.
    """
    data = said(read.source, BLOCK)
    given = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    about = {key: value for key, value in given.items() if key in _ABOUT_CASES}
    try:
        return _resolved(OptimizerBlock.model_validate({**about, "axes": {"demos": {}}}))
    except ValueError:
        return None


def _resolved(block: OptimizerBlock) -> OptimizerSpec:
    budget = block.budget
    given = {name: getattr(budget.whole, name) for name in _WHOLE}
    given |= {name: getattr(budget, name) for name in _PHASES}
    for name in OptimizerBlock.model_fields:
        value = getattr(block, name)
        if name != "budget" and value is not None:
            given[name] = value
    given["gate"] = block.gate or ("sigma" if block.gate_by in SIGMA_KEYS else None)
    given["gate_by"] = block.gate_by
    return OptimizerSpec(**{name: value for name, value in given.items() if value is not None})


def _check_forms(source: Source) -> None:
    """Limits stand in `budget`, or flat; one that stands in both is told."""
    nested = {name: (*BLOCK, "budget", "global", name) for name in _WHOLE}
    nested |= {name: (*BLOCK, "budget", name) for name in _PHASES}
    for name, other in nested.items():
        if said(source, (*BLOCK, name)) is not None and said(source, other) is not None:
            both = f"`{name}` and `{dotted(other[2:])}` say the same thing"
            source.report((*BLOCK, name), f"{both}: give one of them")


def optimizer_warnings(spec: OptimizerSpec) -> Iterator[str]:
    """What is in order in the block, and may not be what was meant."""
    if spec.gate == "sigma" and spec.repeats == 1:
        yield (
            "`repeats: 1` measures no noise of a candidate: what is kept may be chance; "
            "give 2 or more unless the agent always answers the same"
        )
    phase = spec.numeric_phase
    if spec.axes.numeric and phase.max_trials <= WARM_UP:
        yield (
            f"`numeric_phase.max_trials` is {phase.max_trials}: the first {WARM_UP} points are "
            "drawn at random, so the search never learns from them"
        )
    elif spec.axes.numeric and "patience" in phase.model_fields_set and phase.patience < WARM_UP:
        yield (
            f"`numeric_phase.patience` is {phase.patience}, and the first {WARM_UP} points are "
            "drawn at random: it counts from there on"
        )
    if spec.holdout_eval_policy == "skip":
        yield "`holdout_eval_policy: skip`: nothing shows whether a gain is more than overfitting"
