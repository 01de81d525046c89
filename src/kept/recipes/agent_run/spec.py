"""Schema of a file for `kept agent run`: models, budget, prompts, phases and metrics."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field

from kept.core.parsing import compile_pattern
from kept.spec.shared_sections import RoleSpec
from kept.spec.validate import Count, Finite, Seconds, SpecModel, Text

Usd = Annotated[Finite, Field(ge=0)]


def _agent(name: str) -> str:
    """Validate the name of an agent CLI."""
    from kept.sandbox.coding_agents.run import CLIS

    if name not in CLIS:
        near = get_close_matches(name, CLIS, n=1)
        meant = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(CLIS)}"
        raise ValueError(f"`{name}` is no agent CLI; {meant}")
    return name


def _pattern(text: str) -> str:
    try:
        compile_pattern(text)
    except ValueError as error:
        raise ValueError(f"`{text[:200]}` is no regular expression: {error}") from error
    return text


class RunModelsSpec(SpecModel):
    """Models of the three roles."""

    manager: RoleSpec | None = None
    """Default: the model of KEPT_MODEL."""
    worker: RoleSpec | None = None
    """Default: the manager's model."""
    critic: RoleSpec | None = None
    """Default: the manager's model."""


class RunMetricSpec(SpecModel):
    """A user's test: a command beside the deliverable, in the sandbox."""

    command: Annotated[list[Text], Field(min_length=1)]
    """Scores 1 if it exits with 0, else 0; or the number from 0 to 1 that it prints last."""
    weight: Annotated[Finite, Field(gt=0)] = 5.0
    """Weight beside the usual metrics, which have 5 together."""
    threshold: Annotated[Finite, Field(gt=0, le=1)] = 1.0
    """Score below which the metric counts as a gap."""
    seconds: Seconds = 60.0


USUAL_METRICS = ("has_result", "confidence", "not_empty", "efficiency")
"""Metrics of every run, defined in `orchestrator/checks`; a test compares the two."""


def _unusual(metrics: dict[str, RunMetricSpec]) -> dict[str, RunMetricSpec]:
    """Refuse names of the usual metrics."""
    for name in USUAL_METRICS:
        if name in metrics:
            raise ValueError(f"`{name}` is measured by every run: give yours another name")
    return metrics


class RunBudgetSpec(SpecModel):
    """Limits of a run."""

    max_loops: Count = 100
    """Number of the manager's turns."""
    max_workers: Count = 500
    max_tokens: Count = 10_000_000
    max_tool_calls: Count = 1_500
    max_minutes: Seconds = 60.0
    max_depth: Count = 4
    max_usd: Usd | None = None
    max_rejected_completions: Count = 2
    max_parallel_workers: Count = 4
    max_workers_per_turn: Annotated[int, Field(ge=1, le=6)] = 6
    max_repairs: Annotated[int, Field(ge=0)] = 2
    usd_per_errand: Usd | None = None
    """Upper bound of the cost of one errand of an agent CLI, reserved before each of them."""


class InvariantSpec(SpecModel):
    """One condition that must hold after a phase."""

    kind: Literal[
        "file_exists",
        "file_size_range",
        "regex_absent",
        "regex_present",
        "exit_code",
        "python_predicate",
    ]
    path: Text = "."
    pattern: Annotated[str, AfterValidator(_pattern)] = ""
    least: Annotated[int, Field(ge=0)] = 0
    most: Annotated[int, Field(ge=0)] | None = None
    equals: int = 0
    expression: str = ""


class PhaseSpec(SpecModel):
    """A command run before any model is asked, with conditions that must hold after it (R33)."""

    name: Annotated[Text, Field(pattern=r"^[\w.-]+$")]
    command: Text
    seconds: Seconds = 60.0
    invariants: list[InvariantSpec] = Field(default_factory=list[InvariantSpec])


class AgentRunSpec(SpecModel):
    """Spec of an agent run; a run needs none."""

    models: RunModelsSpec = Field(default_factory=RunModelsSpec)
    budget: RunBudgetSpec = Field(default_factory=RunBudgetSpec)
    worker_agent: Annotated[Text, AfterValidator(_agent)] | None = None
    """Agent CLI that works with the worker's model; by default the model works itself."""
    walls: Literal["required", "off"] = "required"
    """Sandbox for the workers' programs; `off` runs them without one."""
    phases: list[PhaseSpec] = Field(default_factory=list[PhaseSpec])
    """Commands run in the workspace before any model is asked, each once."""
    plan_tools: Literal["optional", "required"] = "optional"
    """With `required`, every subtask of a plan must name its tools (R31)."""
    prompts: Text | None = None
    """Folder with files NAME.md that replace built-in prompts."""
    code_seconds: Seconds = 60.0
    """Time limit of one program that a worker runs."""
    errand_seconds: Seconds = 900.0
    """Time limit of one errand of an agent CLI."""
    metrics: Annotated[dict[Text, RunMetricSpec], AfterValidator(_unusual)] = Field(
        default_factory=dict[str, RunMetricSpec]
    )
    """Metrics of a deliverable besides the usual ones, by name."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report duplicate phase names, and a money limit without a bound of an errand's cost."""
        phases = cast("list[object]", said.get("phases") or [])
        names = [one.name for one in phases if isinstance(one, PhaseSpec)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"two `phases` are called `{twice[0]}`"
        budget = said.get("budget")
        if not isinstance(budget, RunBudgetSpec) or said.get("worker_agent") is None:
            return
        if budget.max_usd is not None and budget.usd_per_errand is None:
            yield "`budget.max_usd` needs `budget.usd_per_errand`: the most that an errand may cost"
