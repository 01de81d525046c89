"""What a file for `kept agent run` may say: which models, how much, with which prompts."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field

from kept.core.parsing import compile_pattern
from kept.spec.shared_sections import RoleSpec
from kept.spec.validate import Count, Finite, Seconds, SpecModel, Text

Usd = Annotated[Finite, Field(ge=0)]


def _agent(name: str) -> str:
    """The name of an agent CLI."""
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
    """Who thinks."""

    manager: RoleSpec | None = None
    """By default the one that KEPT_MODEL names."""
    worker: RoleSpec | None = None
    """By default the manager's."""
    critic: RoleSpec | None = None
    """By default the manager's."""


class RunMetricSpec(SpecModel):
    """A test of the user's own: a command beside what was delivered, in the sandbox."""

    command: Annotated[list[Text], Field(min_length=1)]
    """It counts in full where it ends well, else not at all; or for the number that it prints last,
    from 0 to 1."""
    weight: Annotated[Finite, Field(gt=0)] = 5.0
    """Beside the usual metrics, which have 5 together."""
    threshold: Annotated[Finite, Field(gt=0, le=1)] = 1.0
    """What it must reach to be without a gap."""
    seconds: Seconds = 60.0


USUAL_METRICS = ("has_result", "confidence", "not_empty", "efficiency")
"""What every run measures, in `orchestrator/checks`; a test holds the two together."""


def _unusual(metrics: dict[str, RunMetricSpec]) -> dict[str, RunMetricSpec]:
    """Metrics by names that are not taken."""
    for name in USUAL_METRICS:
        if name in metrics:
            raise ValueError(f"`{name}` is measured by every run: give yours another name")
    return metrics


class RunBudgetSpec(SpecModel):
    """What a run may use at most, on every axis."""

    max_loops: Count = 100
    """Turns of the manager."""
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
    """The most that one errand of an agent CLI costs: it is set aside before each of them."""


class InvariantSpec(SpecModel):
    """One thing that must hold after a phase."""

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
    """A command that is run before anybody is asked, and what must hold after it (R33)."""

    name: Annotated[Text, Field(pattern=r"^[\w.-]+$")]
    command: Text
    seconds: Seconds = 60.0
    invariants: list[InvariantSpec] = Field(default_factory=list[InvariantSpec])


class AgentRunSpec(SpecModel):
    """All of it; a run needs none."""

    models: RunModelsSpec = Field(default_factory=RunModelsSpec)
    budget: RunBudgetSpec = Field(default_factory=RunBudgetSpec)
    worker_agent: Annotated[Text, AfterValidator(_agent)] | None = None
    """An agent CLI that does the work with the worker's model; by default the model itself does."""
    walls: Literal["required", "off"] = "required"
    """Workers run programs; `off` lets them where nothing holds those back."""
    phases: list[PhaseSpec] = Field(default_factory=list[PhaseSpec])
    """Commands that are run in the workspace before anybody is asked, each once."""
    plan_tools: Literal["optional", "required"] = "optional"
    """Whether every subtask of a plan has to say what it is done with (R31)."""
    prompts: Text | None = None
    """A folder with files that stand for Kept's own prompts, NAME.md each."""
    code_seconds: Seconds = 60.0
    """For one program that a worker runs."""
    errand_seconds: Seconds = 900.0
    """For one errand of an agent CLI."""
    metrics: Annotated[dict[Text, RunMetricSpec], AfterValidator(_unusual)] = Field(
        default_factory=dict[str, RunMetricSpec]
    )
    """What is measured of a deliverable besides the usual, by name."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Names that are taken; and money is limited only where the worst case is known."""
        phases = cast("list[object]", said.get("phases") or [])
        names = [one.name for one in phases if isinstance(one, PhaseSpec)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield f"two `phases` are called `{twice[0]}`"
        budget = said.get("budget")
        if not isinstance(budget, RunBudgetSpec) or said.get("worker_agent") is None:
            return
        if budget.max_usd is not None and budget.usd_per_errand is None:
            yield "`budget.max_usd` needs `budget.usd_per_errand`: the most that an errand may cost"
