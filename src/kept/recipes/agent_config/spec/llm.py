"""The models that an agent.yaml names: its own, its judges', and the one that embeds."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from kept.core.model import Effort
from kept.models.config import ModelConfig
from kept.models.providers import check_provider
from kept.spec.base import Count, Finite, Model, Text
from kept.spec.models import reference

AuthProvider = Literal["api_key", "oauth_token", "bedrock", "vertex", "foundry", "custom"]

NEVER_ASKED = ("oauth_token", "bedrock", "vertex", "foundry")
"""Ways to be let in by Anthropic that Kept has not; it sends a key."""


class LlmDefaults(Model):
    """What a config.yaml says of a provider, for the models that do not say it themselves."""

    provider: Annotated[Text, AfterValidator(check_provider)]
    name: Text | None = None
    temperature: Annotated[Finite, Field(ge=0, le=2)] | None = 0.3
    max_tokens: Count | None = 1000
    top_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    endpoint: Text | None = None
    api_key: Annotated[Text | None, BeforeValidator(reference)] = None
    """`${NAME}`; by default the variable that the provider is known by."""
    api_version: Text | None = None
    auth_provider: AuthProvider | None = None


class LlmSpec(LlmDefaults):
    """One model: where it is and how it is asked."""

    # not in a dump where nobody sets it, of which the hashes of runs are made
    cache: Annotated[bool | None, Field(exclude_if=lambda given: given is None)] = None
    """Whether replies are cached for other runs; by default for the critic and the applier."""
    name: Text  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride] # frozen, and narrower

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """What a provider needs, or has no use for."""
        provider = said.get("provider")
        if provider == "azure_openai" and said.get("endpoint", "") is None:
            yield "`endpoint` is missing: it says where your Azure resource is"
        if said.get("api_version") is not None and provider not in (None, "azure_openai"):
            yield "`api_version` goes with `provider: azure_openai`"
        if said.get("auth_provider") is not None and provider not in (None, "anthropic"):
            yield "`auth_provider` goes with `provider: anthropic`"

    @property
    def full_name(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.name}"

    def config(
        self, folder: Path, *, timeout: float = 300.0, effort: Effort | None = None
    ) -> ModelConfig:
        """The same for those who call it; paths begin in a folder."""
        return ModelConfig(
            provider=self.provider,
            model=self.name,
            base_url=_address(self.provider, self.endpoint),
            api_key=self.api_key,
            api_version=self.api_version,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            effort=effort,
            timeout=timeout,
            cache=self.cache,
            folder=folder,
        )


def _address(provider: str, endpoint: str | None) -> str | None:
    if endpoint is None or provider != "ollama" or urlsplit(endpoint).path.strip("/"):
        return endpoint
    # what others call its endpoint is the server; chat is spoken below
    return f"{endpoint.rstrip('/')}/v1"
