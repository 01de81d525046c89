"""The providers there are: where each one is, what protocol it speaks, which key it wants.

A new provider is a line here.
"""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal
from urllib.parse import urlsplit

from kept import settings
from kept.errors import SetupError
from kept.models.config import ModelConfig, expand, unset

Speech = Literal["chat", "messages", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One that offers models."""

    maker: str
    """`module:function` that makes a model of a config; imported at use."""
    speech: Speech = "none"
    base_url: str | None = None
    url_variable: str | None = None
    """Where the address may stand in the environment."""
    key_variable: str | None = None
    needs_key: bool = True
    needs_url: bool = False
    prices: str | None = None
    """As `genai-prices` calls it; None where nobody charges, or it depends."""


_HTTP = "kept.models.client:make"

PROVIDERS = {
    "openai": Provider(
        maker=_HTTP,
        speech="chat",
        base_url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        prices="openai",
    ),
    "azure_openai": Provider(
        maker=_HTTP,
        speech="chat",
        url_variable="AZURE_OPENAI_ENDPOINT",
        key_variable="AZURE_OPENAI_API_KEY",
        needs_key=False,  # without one, the identity of the machine or of a login
        needs_url=True,
        prices="azure",
    ),
    "anthropic": Provider(
        maker=_HTTP,
        speech="messages",
        base_url="https://api.anthropic.com",
        url_variable="ANTHROPIC_BASE_URL",
        key_variable="ANTHROPIC_API_KEY",
        prices="anthropic",
    ),
    "openai_compatible": Provider(
        maker=_HTTP,
        speech="chat",
        url_variable="OPENAI_COMPATIBLE_BASE_URL",
        key_variable="OPENAI_COMPATIBLE_API_KEY",
        needs_key=False,
        needs_url=True,
    ),
    "ollama": Provider(
        maker=_HTTP, speech="chat", base_url="http://127.0.0.1:11434/v1", needs_key=False
    ),
    "local": Provider(maker="kept.models.local.local:make", needs_key=False),
    "handoff": Provider(maker="kept.models.manual:make", needs_key=False),
    "scripted": Provider(maker="kept.models.scripted:make", needs_key=False),
}


def parse(text: str) -> tuple[str, str]:
    """Provider and model of a text `provider/model`; a ValueError says what is wrong with it."""
    provider, slash, model = text.partition("/")
    if not slash or not model:
        raise ValueError(f"`{text}` is not a model; write provider/model, as in openai/gpt-5-mini")
    check_provider(provider)
    return provider, model


def check_provider(name: str) -> str:
    """The name of a provider; a ValueError for one that nobody knows, with what may be meant."""
    if name not in PROVIDERS:
        near = get_close_matches(name.replace("-", "_"), PROVIDERS, n=1, cutoff=0.6)
        meant = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(PROVIDERS)}"
        raise ValueError(f"`{name}` is no provider of models; {meant}")
    return name


def config_of(text: str) -> ModelConfig:
    """The config of a text `provider/model`; a `SetupError` where it is none."""
    try:
        provider, model = parse(text)
    except ValueError as error:
        raise SetupError(str(error)) from error
    return ModelConfig(provider=provider, model=model)


def missing(config: ModelConfig) -> str | None:
    """What a config needs and has not; None when it has all."""
    provider = PROVIDERS[config.provider]
    for text in (config.base_url, config.api_key):
        if text is not None and (names := unset(text)):
            return f"{names[0]} is not set"
    if config.base_url is None and provider.needs_url:
        variable = provider.url_variable or ""
        if settings.variable(variable) is None:
            return f"it has no address: give `base_url`, or set {variable}"
    if (provider.needs_key or config.auth == "api_key") and config.api_key is None:
        variable = provider.key_variable or ""
        if settings.variable(variable) is None:
            return f"{variable} is not set"
    return None


def located(config: ModelConfig) -> ModelConfig:
    """The config with its whole address; a `SetupError` where something is missing."""
    lack = missing(config)
    if lack is not None:
        raise SetupError(f"cannot ask `{config.name}`: {lack}")
    return replace(config, base_url=address(config))


def address(config: ModelConfig) -> str | None:
    """Where a model is: as the config, the environment or the provider says; None for nowhere."""
    provider = PROVIDERS[config.provider]
    found = config.base_url or settings.variable(provider.url_variable or "") or provider.base_url
    return expand(found).rstrip("/") if found else None


def key_of(config: ModelConfig) -> str | None:
    """The secret itself: only for the one who sends it. A `SetupError` where it is gone."""
    provider = PROVIDERS[config.provider]
    if config.auth == "identity":
        return None
    if config.api_key is None:
        name = provider.key_variable
        key = settings.variable(name) if name else None
        lacks = key is None and (provider.needs_key or config.auth == "api_key")
    else:
        key = expand(config.api_key)
        lacks = "${" in key
    # looked at with every call, so the rest only where there may be something to say
    if lacks and (lack := missing(config)) is not None:
        raise SetupError(f"cannot ask `{config.name}`: {lack}")
    return key


def key_name(config: ModelConfig) -> str:
    """Where the key of a model is to be put, for whoever lacks it."""
    named = (config.api_key or "").strip("${}")
    return named or PROVIDERS[config.provider].key_variable or "its `api_key`"


def is_ours(url: str | None) -> bool:
    """Whether an address is this machine: nobody sends a bill."""
    host = urlsplit(url or "").hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
