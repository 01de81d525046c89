"""Schema of agent.yaml, its known but unused parts, and detection of the file kind.

Parts that Kept does not run have known keys and are carried along. The kind of a file is
recognized by its keys, without importing the models of all specs.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field

from kept.core.llm import Effort
from kept.recipes.agent_config.spec.cases import MAX_CASES, TestCaseSpec
from kept.recipes.agent_config.spec.common import Below, LlmSpec, Loose, Words, one_of
from kept.recipes.agent_config.spec.metrics import AnyMetricSpec, EvaluationsSpec
from kept.recipes.agent_config.spec.tools import MAX_TOOLS, AnyToolSpec
from kept.spec.source import kind_of
from kept.spec.validate import Count, Finite, Seconds, SpecModel, Texts, no_nul

Dollars = Annotated[Finite, Field(gt=0)]
Level = Literal["low", "medium", "high", "max"]


class ObservabilitySpec(SpecModel):
    """Where a deployed agent would send its telemetry."""

    enabled: bool = False
    service_name: str | None = None
    traces: Loose | None = None
    metrics: Loose | None = None
    logs: Loose | None = None
    exporters: Loose | None = None
    resource_attributes: Loose | None = None


class DeploymentSpec(SpecModel):
    """How an agent would be deployed."""

    runtime: str | None = None
    registry: Loose | None = None
    target: Loose | None = None
    protocol: str | None = None
    port: int | None = None
    health_check_path: str | None = None
    environment: Loose | None = None
    platform: str | None = None


class EngineSpec(SpecModel):
    """What the engines of both makers may be told; `max_turns` and `effort` are used."""

    max_turns: Count | None = None
    effort: Level | None = None
    max_budget_usd: Dollars | None = None
    fallback_model: str | None = None
    disallowed_tools: Texts | None = None
    max_concurrent_sessions: Count | None = None
    session_memory_estimate_mib: Count | None = None
    i_understand_this_is_unsafe: bool = False
    disable_default_hooks: bool = False
    disable_subprocess_env_scrub: bool = False
    agents: Loose | None = None
    hooks: Any = None


class OpenAISpec(EngineSpec):
    """What the engine of OpenAI may be told."""

    permissions: Loose | None = None


class ClaudeSpec(EngineSpec):
    """What the engine of Anthropic may be told."""

    working_directory: str | None = None
    permission_mode: Literal["manual", "acceptEdits", "acceptAll"] = "manual"
    extended_thinking: Loose | None = None
    web_search: bool = False
    bash: Loose | None = None
    file_system: Loose | None = None
    allowed_tools: Texts | None = None
    setting_sources: Texts | None = None


_DEFAULT_TURNS = 20


def _format(value: object) -> object:
    if isinstance(value, str) and value.strip():
        return no_nul(value)
    if value is None or isinstance(value, dict):
        return cast("object", value)
    raise ValueError(f"{kind_of(value)}, where a JSON schema or the path of one was expected")


class InstructionsSpec(SpecModel):
    """What the agent is told before anything else."""

    file: Words | None = None
    inline: Words | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """One text."""
        fault = one_of(said, ("file", "inline"))
        if fault:
            yield fault


class ExecutionSpec(SpecModel):
    """How test cases are run."""

    file_timeout: Seconds = 30
    llm_timeout: Seconds = 60
    """For one exchange with the agent."""
    download_timeout: Seconds = 30
    cache_enabled: bool = True
    cache_dir: Words = ".holodeck/cache"
    cache_directory: Words | None = None
    """Carried: a published HoloDeck sample spells `cache_dir` so."""
    verbose: bool = False
    quiet: bool = False
    parallel_test_cases: Count | None = None
    """Cases in flight at once; None leaves it to whoever runs them."""


class AgentSpec(SpecModel):
    """A whole agent.yaml."""

    name: Words
    description: Words | None = None
    author: Words | None = None
    model: LlmSpec
    instructions: InstructionsSpec
    response_format: Annotated[Loose | str | None, BeforeValidator(_format)] = None
    """A JSON schema, or the path of one."""
    tools: Annotated[tuple[AnyToolSpec, ...], Field(strict=False, max_length=MAX_TOOLS)] = ()
    evaluations: EvaluationsSpec | None = None
    test_cases: (
        Annotated[tuple[TestCaseSpec, ...], Field(strict=False, max_length=MAX_CASES)] | None
    ) = None
    test_cases_file: Words | None = None
    execution: ExecutionSpec = ExecutionSpec()
    embedding_provider: LlmSpec | None = None
    prompts: Below | None = None
    """A folder whose files stand for Kept's own prompts of judges; HoloDeck has no such key."""
    observability: ObservabilitySpec | None = None
    deployment: DeploymentSpec | None = None
    claude: ClaudeSpec | None = None
    openai: OpenAISpec | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Cases from one place."""
        if said.get("test_cases") is not None and said.get("test_cases_file") is not None:
            yield "give `test_cases` or `test_cases_file`, not both"

    @property
    def metrics(self) -> tuple[AnyMetricSpec, ...]:
        """What cases without metrics of their own are measured by."""
        return self.evaluations.metrics if self.evaluations else ()

    def judge_of(self, metric: AnyMetricSpec) -> LlmSpec:
        """The model that a metric asks: its own, else the one of all metrics, else the agent's."""
        shared = self.evaluations.model if self.evaluations else None
        return getattr(metric, "model", None) or shared or self.model

    @property
    def max_turns(self) -> int:
        """Replies of the model to one thing that is said to it, at most."""
        return next((e.max_turns for e in self._engines if e.max_turns), _DEFAULT_TURNS)

    @property
    def effort(self) -> Effort | None:
        """How long the model should think; what others call `max` is `high` here."""
        for engine in self._engines:
            return "high" if engine.effort == "max" else engine.effort
        return None

    @property
    def _engines(self) -> tuple[EngineSpec, ...]:
        """What is said of the engine of the model's maker."""
        engine = self.claude if self.model.provider == "anthropic" else self.openai
        return (engine,) if engine else ()
