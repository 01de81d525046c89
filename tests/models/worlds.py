"""Models that talk to a server on loopback, one for every client there is."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kept.core.llm import Message, ModelRequest
from kept.models.client import HttpModel
from kept.models.providers import ModelConfig
from kept.testing.server import ModelServer

KEY = "sk-canary-0123456789abcdef"

ASK = ModelRequest((Message("system", "be short"), Message("user", "say yes")), max_tokens=50)


def config(provider: str, server: ModelServer, **given: Any) -> ModelConfig:
    """A config of that provider; without waiting, unless it says otherwise."""
    base = server.url if provider in ("anthropic", "azure_openai") else server.v1
    made = ModelConfig(provider=provider, model="m", base_url=base, api_key="${KEPT_TEST_KEY}")
    return replace(made, **given)


def model(provider: str, server: ModelServer, **given: Any) -> HttpModel:
    return HttpModel(config(provider, server, **given))


Maker = Callable[..., HttpModel]

CLIENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("openai", {}),
    "openai, streamed": ("openai", {"stream": True}),
    "azure_openai": ("azure_openai", {}),
    "openai_compatible": ("openai_compatible", {}),
    "anthropic": ("anthropic", {}),
    "anthropic, streamed": ("anthropic", {"stream": True}),
}
"""What every test of clients is run with: the provider, and how it is set up."""


def client(which: str, server: ModelServer, **given: Any) -> HttpModel:
    provider, setup = CLIENTS[which]
    return model(provider, server, **{**setup, **given})
