"""What a task.yaml may say.

Models only: they check what can be seen without looking at any other file. A key that has no effect
is not here.
"""

import re
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from kept.core.case import SPLITS
from kept.core.objective import Direction, Operator
from kept.sandbox import TIMEOUT

T = TypeVar("T", bound=tuple[object, ...])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


def _some(values: T) -> T:
    # not min_length: that counts what is wrong in itself as not there, and says so too
    if not values:
        raise ValueError("empty, where at least one was expected")
    return values


def _number(value: object) -> object:
    # a scorer's `true` is the measure 1
    return float(value) if isinstance(value, bool) else value


def _ratio(text: str) -> str:
    parts = text.split(":")
    if len(parts) != len(SPLITS) or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"`{text}` is not a split; write train:holdout:test, as in 3:5:2")
    return text


def _env(variables: dict[str, str]) -> dict[str, str]:
    for name in variables:
        if not _NAME.fullmatch(name):
            raise ValueError(f"`{name}` is not the name of a variable")
        if name.startswith("KEPT_"):
            raise ValueError(f"`{name}` is not yours to set: names with KEPT_ are Kept's")
    return variables


Text = Annotated[str, Field(min_length=1), AfterValidator(_no_nul)]
# YAML has lists, and a strict tuple would refuse them
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[Finite, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Model(BaseModel):
    """What all parts of a spec have in common: no unknown keys, no guessing at types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ArtifactsSpec(Model):
    """Which files may change."""

    include: Annotated[Texts, AfterValidator(_some)]
    exclude: Texts = ()
    max_files_per_iteration: Count | None = None


class RunnerSpec(Model):
    """The command that executes a candidate."""

    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    env: Annotated[dict[str, Annotated[str, AfterValidator(_no_nul)]], AfterValidator(_env)] = (
        Field(default_factory=dict[str, str])
    )


class ScorerSpec(Model):
    """The command that prints the score."""

    type: Literal["command"] = "command"
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT


class ObjectiveSpec(Model):
    """What better means."""

    primary_metric: Text
    direction: Direction
    bounds: Annotated[tuple[Finite, Finite], Field(strict=False)] | None = None
    tie_tolerance: Annotated[Finite, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _in_order(self) -> "ObjectiveSpec":
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ValueError("`bounds` are reversed: write the least value, then the greatest")
        return self


class ConstraintSpec(Model):
    """A condition that blocks a keep."""

    metric: Text
    op: Operator
    value: Annotated[Finite, BeforeValidator(_number)]


class TieBreakerSpec(Model):
    """What decides between equals: `lower: metric` or `higher: metric`."""

    lower: Text | None = None
    higher: Text | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "TieBreakerSpec":
        if (self.lower is None) == (self.higher is None):
            raise ValueError("a tie-breaker is either `lower: METRIC` or `higher: METRIC`")
        return self


class PolicySpec(Model):
    """How ties are decided."""

    tie_breakers: Annotated[tuple[TieBreakerSpec, ...], Field(strict=False)] = ()


class VariantsSpec(Model):
    """A proposer of texts that somebody already wrote."""

    kind: Literal["variants"]
    files: Annotated[Texts, AfterValidator(_some)]


class BudgetSpec(Model):
    """When to stop."""

    max_iterations: Count | None = None
    max_failures: Count | None = None
    max_minutes: Annotated[Finite, Field(gt=0)] | None = None
    max_usd: Annotated[Finite, Field(ge=0)] | None = None
    max_rollouts: Count | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> "BudgetSpec":
        if all(value is None for _, value in self):
            raise ValueError(f"no limit; give one of {', '.join(type(self).model_fields)}")
        return self


class CasesSpec(Model):
    """What a candidate is evaluated on."""

    file: Text
    split: Annotated[str, AfterValidator(_ratio)] = "3:5:2"
    """Shares of train, holdout and test."""
    seed: int = 0

    @property
    def ratio(self) -> tuple[int, ...]:
        """The split as numbers."""
        return tuple(int(part) for part in self.split.split(":"))


class TaskSpec(Model):
    """A whole task.yaml."""

    id: Text | None = None
    description: str = ""
    artifacts: ArtifactsSpec
    runner: RunnerSpec
    scorer: ScorerSpec
    objective: ObjectiveSpec
    constraints: Annotated[tuple[ConstraintSpec, ...], Field(strict=False)] = ()
    policy: PolicySpec = PolicySpec()
    proposers: Annotated[tuple[VariantsSpec, ...], Field(strict=False), AfterValidator(_some)]
    gate: Literal["strict"] = "strict"
    budget: BudgetSpec
    cases: CasesSpec | None = None
    workers: Count | None = None
    """Rollouts in flight at once; by default one for each processor."""
    width: Count | None = None
    """Steps open at once; by default enough to keep the workers busy."""
