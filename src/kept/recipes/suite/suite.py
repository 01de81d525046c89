"""What a suite says: tasks that the prompts of agent runs are improved by, and how."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kept.core.case import Split
from kept.recipes.agent_run.spec import AgentRunSpec, RunBudgetSpec, Usd
from kept.recipes.task.race import Race
from kept.spec.base import Count, Finite, Model, Ratio, Seconds, Text, Texts, some
from kept.spec.models import RoleSpec

Weight = Annotated[Finite, Field(ge=0)]
Share = Annotated[Finite, Field(gt=0, le=1)]

THEIRS = {"gate_rejections": "gate_reject", "budget": "budget_burn", "status": "terminal"}
"""What the source calls parts of the loss, and what we do."""


class WeightsSpec(Model):
    """What each part of the loss of a task counts."""

    eval: Weight | None = None
    critique: Weight | None = None
    gate_reject: Weight | None = None
    budget_burn: Weight | None = None
    terminal: Weight | None = None
    gate_rejections: Weight | None = None
    """As the source spells `gate_reject`; the next two are `budget_burn` and `terminal`."""
    budget: Weight | None = None
    status: Weight | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """One spelling of each."""
        for theirs, ours in THEIRS.items():
            if said.get(theirs) is not None and said.get(ours) is not None:
                yield f"`{theirs}` and `{ours}` are the same: give one of them"

    def told(self) -> dict[str, float]:
        """By our names, those that were said."""
        given = self.model_dump(exclude_none=True)
        return {THEIRS.get(name, name): value for name, value in given.items()}


class TaskBudgetSpec(Model):
    """What a run of one task may use, where that differs from the others."""

    max_loops: Count | None = None
    max_workers: Count | None = None
    max_tokens: Count | None = None
    max_tool_calls: Count | None = None
    max_minutes: Seconds | None = None
    max_depth: Count | None = None
    max_usd: Usd | None = None
    max_total_workers: Count | None = None
    """As the source spells `max_workers`; the next two are `max_tokens`, and seconds."""
    max_total_tokens: Count | None = None
    max_wall_time: Seconds | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """One spelling of each."""
        for theirs, ours in (
            ("max_total_workers", "max_workers"),
            ("max_total_tokens", "max_tokens"),
            ("max_wall_time", "max_minutes"),
        ):
            if said.get(theirs) is not None and said.get(ours) is not None:
                yield f"`{theirs}` and `{ours}` are the same: give one of them"

    def over(self, usual: RunBudgetSpec) -> RunBudgetSpec:
        """The budget of all runs, with what this one says laid over it."""
        given = self.model_dump(exclude_none=True)
        seconds = given.pop("max_wall_time", None)
        named = {name.replace("max_total_", "max_"): value for name, value in given.items()}
        named |= {} if seconds is None else {"max_minutes": seconds / 60}
        return usual.model_copy(update=named)


class SuiteTaskSpec(Model):
    """One task."""

    name: Text
    task: Text
    inputs: Texts = ()
    """Files and folders that it comes with, named as seen from the suite."""
    model: RoleSpec | None = None
    worker_model: RoleSpec | None = None
    budget: TaskBudgetSpec = Field(default_factory=TaskBudgetSpec)
    weights: WeightsSpec = Field(default_factory=WeightsSpec)
    split: Split | None = None
    workflow: Text | None = None
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])
    """For whoever reads the suite; nobody here does."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """What the source can and we cannot."""
        if said.get("workflow") is not None:
            yield "`workflow` is not run here: a task is done by a manager and workers of Kept"


class SuiteBudgetSpec(Model):
    """What all runs of an optimization may use together."""

    max_usd: Usd | None = None
    max_minutes: Seconds | None = None
    max_rollouts: Count | None = None


class SuiteSpec(Model):
    """All of it."""

    name: Text
    description: str = ""
    tasks: Annotated[tuple[SuiteTaskSpec, ...], Field(strict=False), AfterValidator(some)]
    baseline_artifacts: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict[str, int]
    )
    """Versions to begin with; of the others, those that are active."""
    run: AgentRunSpec = Field(default_factory=AgentRunSpec)
    """How every task is run, as a file for `kept agent run` has it."""
    optimizer: RoleSpec | None = None
    """Who proposes; by default the one that KEPT_MODEL names."""
    prompt: Text | None = None
    """A file that stands for what who proposes is told; by default Kept's own `update`."""
    epochs: Count = 5
    """Each tries one update."""
    gate: Literal["race", "rollback"] = "race"
    race: Race | None = None
    step: Share = 0.5
    """Share of a text that one update may change; with `rollback`, halved by each of them."""
    split: Ratio | None = None
    """Shares of train, holdout and test; by default a small suite is all of them at once."""
    workers: Count = 2
    """Runs side by side."""
    random_seed: int = 0
    budget: SuiteBudgetSpec = Field(default_factory=SuiteBudgetSpec)

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong between parts."""
        if said.get("gate") == "rollback" and said.get("race") is not None:
            yield "`race` goes with `gate: race`"
