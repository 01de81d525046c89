"""Schema of `evaluations.optimizer` in agent.yaml, its axes, and a suggested block.

`OptimizerBlock` is the block as written. Its limits are nested in `budget` or flat, because
existing files have both forms. `OptimizerSpec` is the normalized form with one name for each
thing. Axes are values, texts, and examples in a text.

An agent without the block gets a suggestion: tunable values and a loss.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from kept.core.text import count
from kept.errors import Problem, SpecError
from kept.gates.sigma import HoldoutPolicy
from kept.proposers.numeric.component import Choice, choice_faults, range_faults
from kept.recipes.agent_config.spec.agent import AgentSpec
from kept.recipes.agent_config.spec.case_files import OPTIMIZER
from kept.recipes.agent_config.spec.common import Share, Words
from kept.recipes.agent_config.spec.config import fill_in, tell_once, without_secrets
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.task.spec import Race, RaceSpec
from kept.spec.source import Source, dotted, read_source, shown
from kept.spec.validate import Count, Finite, Ratio, SpecModel, said, validate
from kept.spec.yaml import Loc


class NumericAxisSpec(SpecModel):
    """A value of the agent.yaml that may be tuned."""

    path: Words
    """Path of the value: `model.temperature`, `tools[name=x].top_k`."""
    type: Literal["float", "int", "categorical"] | None = None
    """By default the type of the value; `categorical` if the range has texts."""
    range: Annotated[tuple[Choice, ...], Field(strict=False)] | None = None
    """Smallest and largest number; for a categorical axis, all choices."""
    choices: Annotated[tuple[Choice, ...], Field(strict=False)] | None = None
    """Same as a categorical `range`."""
    log: bool = False
    """True to sample magnitudes uniformly (log scale), rather than numbers."""
    step: Finite | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a missing or contradictory range or choices."""
        if not {"type", "range", "choices"} <= said.keys():
            return
        kind, ends, choices = said["type"], said["range"], said["choices"]
        if (ends is None) == (choices is None):
            yield "an axis has either a `range` or `choices`"
        elif choices is not None or kind == "categorical" or not _are_numbers(ends):
            others = {**said, "type": None if kind == "categorical" else kind}
            yield from choice_faults(choices if choices is not None else ends, others)
        elif not all(map(math.isfinite, ends)):
            yield "the ends of a `range` are finite numbers"
        elif len(ends) != 2:
            yield "a `range` has two ends, the least and the greatest; several values are `choices`"
        else:
            low, high = ends
            yield from range_faults(low, high, said)

    @property
    def choosing(self) -> bool:
        """True for a choice of given values, False for a range of numbers."""
        return self.type == "categorical" or self.range is None or not _are_numbers(self.range)

    @property
    def values(self) -> tuple[Any, ...]:
        """Ends of the range, or all choices."""
        return self.choices or self.range or ()


def _are_numbers(values: object) -> bool:
    assert isinstance(values, list | tuple)
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)  # pyright: ignore[reportUnknownVariableType] # whatever a file has


class TextualAxisSpec(SpecModel):
    """A text of the agent that may be rewritten."""

    path: Words
    """Path of the text: `instructions`, `tools[name=x].description` and others."""
    max_chars: Count = 8000


class DemosAxisSpec(SpecModel):
    """A text of the agent that examples may be appended to."""

    path: Words = "instructions"
    max_demos: Count = 4
    max_chars: Count = 16000
    """Limit of the text together with its examples."""


class AxesSpec(SpecModel):
    """All axes of an agent."""

    numeric: Annotated[tuple[NumericAxisSpec, ...], Field(strict=False)] = ()
    textual: Annotated[tuple[TextualAxisSpec, ...], Field(strict=False)] = ()
    demos: DemosAxisSpec | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a block without axes."""
        if {"numeric", "textual", "demos"} <= said.keys() and not any(
            (said["numeric"], said["textual"], said["demos"] is not None)
        ):
            yield "no axis: give `numeric`, `textual` or `demos`"


SPLIT = "3:5:2"
"""Default split of an agent's own cases."""

ENOUGH, FEWEST = 16, 6
"""Cases of which half are enough for a race, and the minimum for tuning at all."""

_PLAIN = r"[A-Za-z_][\w-]*"
"""Pattern of keys that need no quotes."""


PATIENCE = 10
"""Numeric trials without a keep before the phase ends, after ten random ones."""


def starter_block(read: ReadAgent) -> str:
    """Suggest a block for this agent, as text to put at `evaluations:`."""
    lines = ["evaluations:"]
    if lacking := missing_cases(read):
        lines += [f"  # {lacking}"]
    if not read.agent.spec.metrics:
        lines += ["  metrics:", "    - {type: standard, metric: equality}"]
    keys = dict.fromkeys(metric.key for metric in read.agent.spec.metrics if metric.enabled)
    lines += ["  optimizer:", "    loss:"]
    lines += [
        f"      {key if re.fullmatch(_PLAIN, key) else json.dumps(key, ensure_ascii=False)}: 1.0"
        for key in keys or ("equality",)
    ]
    lines += [
        f'    split: "{_split(len(read.cases))}"  # shares of your cases: train, holdout, test',
        *(f"    {line}" for line in suggest_axes(read).splitlines()),
        "    budget:",
        "      global: {max_cycles: 4, max_rollouts: 5000}",
        f"      numeric_phase: {{max_trials: {3 * PATIENCE}, patience: {PATIENCE}}}",
        # each text has a turn before the phase may end early
        f"      textual_phase: {{max_trials: {max(10, len([*_texts(read)]) + 4)}, patience: 4}}",
    ]
    return "\n".join(lines)


def missing_cases(read: ReadAgent) -> str | None:
    """Message about the number of missing cases; None if there are enough."""
    there = len(read.cases)
    if there >= FEWEST:
        return None
    return (
        f"the agent has {count(there, 'case')}, and tuning needs {FEWEST}: 1 to learn from and "
        f"{FEWEST - 1} to decide by; add {FEWEST - there} ({ENOUGH} are enough for `gate: race`)"
    )


def where_it_goes(read: ReadAgent) -> str:
    """Describe the place for the block in the user's file."""
    there = read.source.where(("evaluations",))
    if said(read.source, ("evaluations", "optimizer")) is not None:
        at = read.source.where(("evaluations", "optimizer"))
        return f"{at} has an `optimizer:` already: give it what it lacks of this one"
    if said(read.source, ("evaluations",)) is not None:
        return f"put what stands below `evaluations:` below the one of {there}, as deep as here"
    return f"put it into {shown(read.source.path)}, beginning at the left edge"


def _split(cases: int) -> str:
    """Shares that leave enough holdout cases: 8 for a race, else the minimum of 5."""
    if cases >= ENOUGH:
        return SPLIT
    cases = max(cases, FEWEST)  # as many as `missing_cases` requires
    deciding = 8 if cases > 8 else 5
    return f"{cases - deciding}:{deciding}:0"


def suggest_axes(read: ReadAgent) -> str:
    """Suggest axes as YAML, to be reviewed by the user."""
    spec = read.agent.spec
    lines = ["axes:", "  numeric:"]
    for path, ends in _numbers(spec):
        lines += [f"    - path: {path}", f"      range: {ends}"]
    lines.append("  textual:")
    for path, text, usual in _texts(read):
        room = max(usual, 2 * len(text))
        lines += [f"    - path: {path}", f"      max_chars: {room}"]
    lines += ["  demos:", "    path: instructions", "    max_demos: 4"]
    return "\n".join(lines)


def _numbers(spec: AgentSpec) -> Iterator[tuple[str, str]]:
    model = spec.model
    if model.temperature is not None:
        yield "model.temperature", _around(model.temperature, 0.0, 1.0)
    yield "model.top_p", _around(model.top_p, 0.5, 1.0)
    for tool in spec.tools:
        for key, now, low, high in tool.ranges():
            yield f"tools[name={tool.name}].{key}", _around(now, low, high)


def _around(value: float | None, low: float, high: float) -> str:
    """Range that includes the present value."""
    here = high if value is None else value
    return f"[{min(low, here):g}, {max(high, here):g}]"


def _texts(read: ReadAgent) -> Iterator[tuple[str, str, int]]:
    """Texts that the model reads, each with a path and a usual maximum length."""
    yield "instructions", read.agent.instructions.text, 4000
    for tool in read.agent.spec.tools:
        if not tool.is_server:
            yield f"tools[name={tool.name}].description", tool.description, 400


BLOCK: Loc = OPTIMIZER

WARM_UP = 10
"""Random points of a numeric phase before the search uses results."""

Weight = Annotated[Finite, Field(ge=0)]
Minutes = Annotated[Finite, Field(gt=0)]
Gate = Literal["race", "sigma"]

SIGMA_KEYS = ("accept_sigma", "repeats", "holdout_eval_policy", "max_errored_fraction")
"""Keys that only `gate: sigma` reads; any of them selects it."""


class PenaltiesSpec(SpecModel):
    """Penalties that are added to the loss for cost and time."""

    cost_per_usd: Weight = 0.0
    latency_per_sec: Weight = 0.0


class PhaseSpec(SpecModel):
    """Limits of a phase."""

    max_trials: Count
    patience: Count
    """Number of trials without a keep before the phase ends."""


class NumericPhaseSpec(PhaseSpec):
    """Limits of the numeric phase."""

    max_trials: Count = 15
    patience: Count = 5


class TextualPhaseSpec(PhaseSpec):
    """Limits of the textual phase."""

    max_trials: Count = 10
    patience: Count = 4


class DemosPhaseSpec(PhaseSpec):
    """Limits of the phase of examples."""

    max_trials: Count = 6
    patience: Count = 3


class GlobalSpec(SpecModel):
    """Limits of the run."""

    max_cycles: Count | None = None
    max_minutes: Minutes | None = None
    max_usd: Weight | None = None
    max_rollouts: Count | None = None


class OptimizerBudgetSpec(SpecModel):
    """Limits of the run and of its phases."""

    whole: GlobalSpec = Field(default=GlobalSpec(), alias="global")
    numeric_phase: NumericPhaseSpec | None = None
    textual_phase: TextualPhaseSpec | None = None
    demos_phase: DemosPhaseSpec | None = None


class OptimizerBlock(SpecModel):
    """The block as written in a file."""

    loss: dict[str, Weight]
    """Weight of each metric by name; other metrics do not count."""
    penalties: PenaltiesSpec = PenaltiesSpec()
    train_cases_file: Words | None = None
    holdout_cases_file: Words | None = None
    test_cases_file: Words | None = None
    """Cases that are run once, at the end."""
    split: Ratio | None = None
    """Shares of the agent's own cases, if there are no case files."""
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
        """Report an empty loss, and keys that have no effect with the chosen gate."""
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
        """The key that selects the gate; empty if none does."""
        keys = ("gate", "race", *SIGMA_KEYS)
        return next((key for key in keys if getattr(self, key) is not None), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec:
    """The normalized block, with one name for each value."""

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
    """Key or flag that selected the gate; empty if the number of cases does."""
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
    """Tuning settings of an agent; None, and reports, if they are missing or invalid."""
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
    """Problems of the block alone, for an agent that cannot be read."""
    try:
        source = read_source(path, overrides)
    except SpecError:
        return ()  # reported by the caller
    if said(source, BLOCK) is None:
        return ()
    unset = fill_in(source)
    source.problems.clear()
    _check_forms(source)
    validate(source, OptimizerBlock, BLOCK)
    tell_once(source, unset)
    return tuple(map(without_secrets, source.problems))


def cases_of(read: ReadAgent) -> OptimizerSpec | None:
    """Part of the block about cases; None if it is invalid, which is reported elsewhere.

    So cases are checked even if another part of the block is wrong.
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
    """Report limits that are given both in `budget` and flat."""
    nested = {name: (*BLOCK, "budget", "global", name) for name in _WHOLE}
    nested |= {name: (*BLOCK, "budget", name) for name in _PHASES}
    for name, other in nested.items():
        if said(source, (*BLOCK, name)) is not None and said(source, other) is not None:
            both = f"`{name}` and `{dotted(other[2:])}` say the same thing"
            source.report((*BLOCK, name), f"{both}: give one of them")


def optimizer_warnings(spec: OptimizerSpec) -> Iterator[str]:
    """Warnings about valid values that may not be intended."""
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
