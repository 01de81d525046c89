"""Parts of an agent.yaml that Kept does not run: their keys are known, and they are carried."""

from typing import Annotated, Any, Literal

from pydantic import Field

from kept.recipes.agent_config.spec.words import Loose
from kept.spec.base import Count, Finite, Model, Texts

Dollars = Annotated[Finite, Field(gt=0)]
Level = Literal["low", "medium", "high", "max"]


class ObservabilitySpec(Model):
    """Where a deployed agent would send its telemetry."""

    enabled: bool = False
    service_name: str | None = None
    traces: Loose | None = None
    metrics: Loose | None = None
    logs: Loose | None = None
    exporters: Loose | None = None
    resource_attributes: Loose | None = None


class DeploymentSpec(Model):
    """How an agent would be deployed."""

    runtime: str | None = None
    registry: Loose | None = None
    target: Loose | None = None
    protocol: str | None = None
    port: int | None = None
    health_check_path: str | None = None
    environment: Loose | None = None
    platform: str | None = None


class EngineSpec(Model):
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
