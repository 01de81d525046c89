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
    """Telemetry of a deployed agent; not used."""

    enabled: bool = False
    service_name: str | None = None
    traces: Loose | None = None
    metrics: Loose | None = None
    logs: Loose | None = None
    exporters: Loose | None = None
    resource_attributes: Loose | None = None


class DeploymentSpec(SpecModel):
    """Deployment of an agent; not used."""

    runtime: str | None = None
    registry: Loose | None = None
    target: Loose | None = None
    protocol: str | None = None
    port: int | None = None
    health_check_path: str | None = None
    environment: Loose | None = None
    platform: str | None = None


class EngineSpec(SpecModel):
    """Settings common to the engines of both makers; `max_turns` and `effort` are used."""

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
    """Settings of OpenAI's engine."""

    permissions: Loose | None = None


class ClaudeSpec(EngineSpec):
    """Settings of Anthropic's engine."""

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
    """Instructions of the agent: its system prompt."""

    file: Words | None = None
    inline: Words | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a missing or second source of the text."""
        fault = one_of(said, ("file", "inline"))
        if fault:
            yield fault


class ExecutionSpec(SpecModel):
    """Settings for running test cases."""

    file_timeout: Seconds = 30
    llm_timeout: Seconds = 60
    """Time limit in seconds of one exchange with the agent."""
    download_timeout: Seconds = 30
    cache_enabled: bool = True
    cache_dir: Words = ".holodeck/cache"
    cache_directory: Words | None = None
    """Not used: a published HoloDeck sample has this name for `cache_dir`."""
    verbose: bool = False
    quiet: bool = False
    parallel_test_cases: Count | None = None
    """Number of concurrent cases; None for the caller's default."""


class AgentSpec(SpecModel):
    """A whole agent.yaml."""

    name: Words
    description: Words | None = None
    author: Words | None = None
    model: LlmSpec
    instructions: InstructionsSpec
    response_format: Annotated[Loose | str | None, BeforeValidator(_format)] = None
    """JSON schema, or the path of a file with one."""
    tools: Annotated[tuple[AnyToolSpec, ...], Field(strict=False, max_length=MAX_TOOLS)] = ()
    evaluations: EvaluationsSpec | None = None
    test_cases: (
        Annotated[tuple[TestCaseSpec, ...], Field(strict=False, max_length=MAX_CASES)] | None
    ) = None
    test_cases_file: Words | None = None
    execution: ExecutionSpec = ExecutionSpec()
    embedding_provider: LlmSpec | None = None
    prompts: Below | None = None
    """Folder with files that replace Kept's prompts for judges; not a key of HoloDeck."""
    observability: ObservabilitySpec | None = None
    deployment: DeploymentSpec | None = None
    claude: ClaudeSpec | None = None
    openai: OpenAISpec | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report cases from two sources."""
        if said.get("test_cases") is not None and said.get("test_cases_file") is not None:
            yield "give `test_cases` or `test_cases_file`, not both"

    @property
    def metrics(self) -> tuple[AnyMetricSpec, ...]:
        """Metrics for cases without metrics of their own."""
        return self.evaluations.metrics if self.evaluations else ()

    def judge_of(self, metric: AnyMetricSpec) -> LlmSpec:
        """Model of a metric: its own, else that of all metrics, else the agent's."""
        shared = self.evaluations.model if self.evaluations else None
        return getattr(metric, "model", None) or shared or self.model

    @property
    def max_turns(self) -> int:
        """Largest number of model replies to one message."""
        return next((e.max_turns for e in self._engines if e.max_turns), _DEFAULT_TURNS)

    @property
    def effort(self) -> Effort | None:
        """Effort of the model's thinking; the `max` of other tools is `high` here."""
        for engine in self._engines:
            return "high" if engine.effort == "max" else engine.effort
        return None

    @property
    def _engines(self) -> tuple[EngineSpec, ...]:
        """Settings of the engine for the model's provider."""
        engine = self.claude if self.model.provider == "anthropic" else self.openai
        return (engine,) if engine else ()
