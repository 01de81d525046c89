"""Model blocks from promptfoo providers. Keys stay names of environment variables."""

import re
from collections.abc import Mapping
from typing import Any

from kept.recipes.importers.promptfoo.config import ProviderConfig, ProviderSpec, mapping_of
from kept.spec.source import Source
from kept.spec.yaml import Loc

ENV = re.compile(r"\{\{\s*env\.([A-Za-z_]\w*)\s*\}\}|\$\{([A-Za-z_]\w*)\}|\$([A-Za-z_]\w*)")
"""Reference to an environment variable, as promptfoo configs write it."""

KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "openai": ("openai", ("chat", "responses")),
    "anthropic": ("anthropic", ("messages",)),
    "azure": ("azure_openai", ("chat",)),
    "azureopenai": ("azure_openai", ("chat",)),
    "ollama": ("ollama", ("chat", "completion")),
}
"""Kept's name for each provider, and the words that may follow it in an id."""

_VARIABLE = re.compile(r"[A-Za-z_]\w*")
NOT_ASKED = ("embedding", "embeddings", "image", "moderation", "assistant", "realtime", "video")
CHAT = "/chat/completions"
EFFORTS = ("minimal", "low", "medium", "high")
_HTTP_KEYS = ("url", "method", "headers", "body", "transformResponse")
_PROGRAM = "ask it from a task of your own: `runner.command`, or `kept.optimize` of a function"


def model_block(source: Source, loc: Loc, spec: ProviderSpec) -> dict[str, Any] | None:
    """Return the block of a task's `models`; None, with a report, if there is none."""
    if spec.id in ("http", "https") or spec.id.startswith(("http://", "https://")):
        return _http(source, loc, spec)
    block = _named(source, loc, spec)
    if block is None:
        return None
    odd = [key for key in _HTTP_KEYS if getattr(spec.config, key)]
    for key in odd:
        source.report((*loc, "config", key), "goes with an `https` provider")
    said = _shaped(source, loc, spec.config)
    address = _address(source, loc, block["provider"], spec.config)
    key = _key(source, loc, spec.config)
    if spec.config.apiVersion and block["provider"] == "azure_openai":
        said["api_version"] = spec.config.apiVersion
    # Anthropic's API has no seed
    if block["provider"] == "anthropic":
        said.pop("seed", None)
    return {**block, **address, **key, **said}


def _named(source: Source, loc: Loc, spec: ProviderSpec) -> dict[str, Any] | None:
    kind, _, rest = spec.id.partition(":")
    if kind not in KINDS or not rest:
        known = ", ".join(f"`{name}:…`" for name in KINDS)
        hint = f"there are {known} and `https`"
        if spec.id.startswith(("file://", "exec:", "python:")) or spec.id.endswith((".py", ".js")):
            hint = _PROGRAM
        elif kind in ("vertex", "bedrock", "google", "mistral", "groq", "openrouter", "together"):
            hint = "a server that speaks like OpenAI is `openai:chat:NAME` with `apiBaseUrl`"
        source.report((*loc, "id"), f"`{spec.id}` is no provider that is known here", hint)
        return None
    # an id is `kind:word:model` or `kind:model`, and a model may have colons
    provider, words = KINDS[kind]
    first, _, behind = rest.partition(":")
    if first in NOT_ASKED or (first == "completion" and "completion" not in words):
        message = f"`{spec.id}` is not asked in messages"
        source.report((*loc, "id"), message, f"give `{kind}:chat:…`")
        return None
    model = behind if first in words and behind else rest
    return {"provider": provider, "model": model}


def _http(source: Source, loc: Loc, spec: ProviderSpec) -> dict[str, Any] | None:
    config = spec.config
    url = config.url if spec.id in ("http", "https") else spec.id
    body = mapping_of(config.body) or {}
    if url is None or not url.rstrip("/").endswith(CHAT) or not isinstance(body.get("model"), str):
        message = "an `https` provider is taken where it speaks like OpenAI"
        hint = f"a `url` that ends with {CHAT} and a `body` with `model`; else {_PROGRAM}"
        source.report((*loc, "config"), message, hint)
        return None
    block: dict[str, Any] = {"provider": "openai_compatible", "model": body["model"]}
    at = (*loc, "config", "url") if spec.id in ("http", "https") else (*loc, "id")
    block["base_url"] = _url(source, at, url.rstrip("/").removesuffix(CHAT))
    for name, value in config.headers.items():
        if name.lower() == "authorization":
            found = ENV.search(value) if isinstance(value, str) else None
            if found is None:
                _refuse_key(source, (*loc, "config", "headers", name))
            else:
                block["api_key"] = f"${{{_name(found)}}}"
        elif name.lower() != "content-type":
            source.report((*loc, "config", "headers", name), "is a header that is not sent here")
    for key in ("temperature", "max_tokens", "top_p"):
        if isinstance(body.get(key), int | float):
            block[key] = body[key]
    return {**block, **_shaped(source, loc, config)}


def _shaped(source: Source, loc: Loc, config: ProviderConfig) -> dict[str, Any]:
    """Return the options that shape a reply."""
    said: dict[str, Any] = {}
    for key in ("temperature", "top_p", "seed"):
        value = getattr(config, key)
        if value is not None:
            said[key] = value
    most = config.max_tokens or config.max_completion_tokens
    if most is not None:
        said["max_tokens"] = most
    if config.reasoning_effort is not None:
        if config.reasoning_effort in EFFORTS:
            said["effort"] = config.reasoning_effort
        else:
            message = f"`{config.reasoning_effort}`, where one of {', '.join(EFFORTS)} was expected"
            source.report((*loc, "config", "reasoning_effort"), message)
    return said


def _address(source: Source, loc: Loc, provider: str, config: ProviderConfig) -> dict[str, Any]:
    if config.apiBaseUrl is not None:
        return {"base_url": _url(source, (*loc, "config", "apiBaseUrl"), config.apiBaseUrl)}
    if config.apiHost is not None:
        host = _url(source, (*loc, "config", "apiHost"), config.apiHost)
        path = "" if provider in ("azure_openai", "anthropic") else "/v1"
        return {"base_url": host if "://" in host else f"https://{host}{path}"}
    return {}


def _key(source: Source, loc: Loc, config: ProviderConfig) -> dict[str, Any]:
    name = config.apiKeyEnvar
    if name is not None:
        if isinstance(name, str) and _VARIABLE.fullmatch(name):
            return {"api_key": f"${{{name}}}"}
        message = "is no name of a variable of the environment"
        source.report((*loc, "config", "apiKeyEnvar"), message, "as in OPENAI_API_KEY")
        return {}
    if config.apiKey is None:
        return {}
    found = ENV.fullmatch(config.apiKey.strip()) if isinstance(config.apiKey, str) else None
    if found is None:
        _refuse_key(source, (*loc, "config", "apiKey"))
        return {}
    return {"api_key": f"${{{_name(found)}}}"}


def _refuse_key(source: Source, loc: Loc) -> None:
    # the report is without the value: it may be a key
    hint = "write `apiKeyEnvar: NAME`, or `{{env.NAME}}`"
    source.report(loc, "a key is kept in the environment, not in a file", hint)


def _url(source: Source, loc: Loc, text: str) -> str:
    """Return an address with variables as a task names them; report a login, key or query."""
    if "@" in text:  # anywhere in it: a password may have a slash
        hint = "leave out what is before the `@`, and write `apiKeyEnvar: NAME`"
        source.report(loc, "an address with a user or a key in it is not taken", hint)
    elif "?" in text or "#" in text:
        hint = "leave out what is behind the `?`, and write `apiKeyEnvar: NAME`"
        source.report(loc, "an address with a query, which may hold a key, is not taken", hint)
    return ENV.sub(lambda found: f"${{{_name(found)}}}", text)


def _name(found: re.Match[str]) -> str:
    return found[1] or found[2] or found[3]
