"""Table of providers (address, protocol, key), model names, and Azure identity.

A new provider is one line here. Azure OpenAI works without a key, through the identity of the
machine or of the logged-in user.
"""

import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from kept import settings
from kept.core.llm import Effort
from kept.engine.user_code import call_apart
from kept.errors import SetupError
from kept.settings import install_command

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""Reference to an environment variable inside a text, as in `${NAME}`."""

SHAPES = ("temperature", "top_p", "max_tokens", "seed", "effort")
"""Sampling settings that a config may set for requests that leave them open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Price of input tokens that the provider has cached; by default the price of any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model as a spec names it. Holds no secret: keys are read at use."""

    provider: str
    model: str
    base_url: str | None = None
    api_key: str | None = None
    """Reference `${NAME}`; by default the provider's own variable."""
    api_version: str | None = None
    """API version of Azure; without it, the path `v1` is used, which needs none."""
    identity: str | None = None
    """Client id of an Azure managed identity; by default the machine's own."""
    token_scope: str | None = None
    """Scope of that identity's tokens; by default Azure's public cloud."""
    auth: Literal["api_key", "identity"] | None = None
    """Authentication at Azure: key only, or identity even if a key is set; by default either."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    effort: Effort | None = None
    context_window: int | None = None
    """Context window in tokens, if the price list lacks it."""
    stream: bool = False
    """True if replies are streamed, so that a stalled one is noticed early."""
    timeout: float = 300.0
    """Seconds for one try."""
    stall: float = 60.0
    """Seconds without a byte after which a stream is cut."""
    tries: int = 6
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    price: Price | None = None
    """Price of a model that the list lacks or has wrong."""
    cache: bool | None = None
    """True if replies are cached for other runs; None leaves it to the role."""
    folder: Path = field(default_factory=Path.cwd)
    """Base folder of relative paths."""

    @property
    def name(self) -> str:
        """Name as a spec spells it."""
        return f"{self.provider}/{self.model}"


def expand(text: str) -> str:
    """Replace variables in a text; an unset one stays as it is."""
    return REFERENCE.sub(lambda found: settings.variable(found[1]) or found[0], text)


SCOPE = "https://cognitiveservices.azure.com/.default"
EARLY = 300.0
"""Seconds before its expiry at which a token is replaced."""

_HOSTS = (".azure.com", ".azure.us", ".azure.cn", ".azure-api.net")


class Entra:
    """Fetches Azure tokens and caches each one until shortly before it expires."""

    def __init__(
        self,
        credential: Any = None,  # noqa: ANN401 # what azure-identity makes
        *,
        identity: str | None = None,
        scope: str | None = None,
    ) -> None:
        """`identity` is the client id of a managed identity; None takes the default credential."""
        self._credential = credential
        self._identity = identity
        self._scope = scope or SCOPE
        self._token = ""
        self._ends = 0.0

    async def token(self, url: str, now: float) -> str:
        """Return a token for an Azure address; raise `SetupError` for any other."""
        where = urlsplit(url)
        # a token sent to another host would give away access to Azure
        if where.scheme != "https" or not (where.hostname or "").endswith(_HOSTS):
            raise SetupError(
                f"an Azure identity is not shown to {where.scheme}://{where.hostname}",
                hint="that is no address of Azure; set AZURE_OPENAI_API_KEY for one of your own",
            )
        if now >= self._ends - EARLY:
            found = await call_apart(self._fetch)
            self._token, self._ends = str(found.token), float(found.expires_on)
        return self._token

    def _fetch(self) -> Any:  # noqa: ANN401 # an AccessToken
        if self._credential is None:
            self._credential = _default(self._identity)
        return self._credential.get_token(self._scope)


def is_scope(text: str) -> bool:
    """True if tokens may be requested for a scope: only those of Azure's clouds."""
    where = urlsplit(text)
    return where.scheme == "https" and (where.hostname or "").endswith(_HOSTS)


def _default(identity: str | None) -> Any:  # noqa: ANN401 # what azure-identity makes
    from importlib import import_module

    try:
        library = import_module("azure.identity")
    except ImportError as error:
        raise SetupError(
            "there is no azure-identity to ask Azure without a key",
            hint=f"set AZURE_OPENAI_API_KEY, or {install_command('azure')}",
        ) from error
    chosen = {} if identity is None else {"managed_identity_client_id": identity}
    return library.DefaultAzureCredential(**chosen)


Speech = Literal["chat", "messages", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Provider of models."""

    maker: str
    """`module:function` that creates a model from a config; imported at use."""
    speech: Speech = "none"
    base_url: str | None = None
    url_variable: str | None = None
    """Environment variable that may hold the address."""
    key_variable: str | None = None
    needs_key: bool = True
    needs_url: bool = False
    prices: str | None = None
    """Provider id in `genai-prices`; None if the provider is free, or its prices vary."""


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
    "local": Provider(maker="kept.models.local.model:make", needs_key=False),
    "handoff": Provider(maker="kept.models.manual:make", needs_key=False),
    "scripted": Provider(maker="kept.models.scripted:make", needs_key=False),
}


def parse(text: str) -> tuple[str, str]:
    """Split a text `provider/model`; raise `ValueError` that says what is wrong with it."""
    provider, slash, model = text.partition("/")
    if not slash or not model:
        raise ValueError(f"`{text}` is not a model; write provider/model, as in openai/gpt-5-mini")
    check_provider(provider)
    return provider, model


def check_provider(name: str) -> str:
    """Return the name of a provider; raise `ValueError` with a suggestion for an unknown one."""
    if name not in PROVIDERS:
        near = get_close_matches(name.replace("-", "_"), PROVIDERS, n=1, cutoff=0.6)
        meant = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(PROVIDERS)}"
        raise ValueError(f"`{name}` is no provider of models; {meant}")
    return name


def config_of(text: str) -> ModelConfig:
    """Return the config of a text `provider/model`; raise `SetupError` if it is invalid."""
    try:
        provider, model = parse(text)
    except ValueError as error:
        raise SetupError(str(error)) from error
    return ModelConfig(provider=provider, model=model)


def missing(config: ModelConfig) -> str | None:
    """Reason why a config cannot be used, such as an unset variable; None if it is complete."""
    provider = PROVIDERS[config.provider]
    for text in (config.base_url, config.api_key):
        for name in REFERENCE.findall(text or ""):
            if settings.variable(name) is None:
                return f"{name} is not set"
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
    """Return the config with its full address; raise `SetupError` if something is missing."""
    lack = missing(config)
    if lack is not None:
        raise SetupError(f"cannot ask `{config.name}`: {lack}")
    return replace(config, base_url=address(config))


def address(config: ModelConfig) -> str | None:
    """Address of a model, from config, environment or provider; None if there is none."""
    provider = PROVIDERS[config.provider]
    found = config.base_url or settings.variable(provider.url_variable or "") or provider.base_url
    return expand(found).rstrip("/") if found else None


def key_of(config: ModelConfig) -> str | None:
    """Return the API key itself, only for sending it; raise `SetupError` if it is missing."""
    provider = PROVIDERS[config.provider]
    if config.auth == "identity":
        return None
    if config.api_key is None:
        name = provider.key_variable
        key = settings.variable(name) if name else None
        # a missing key is fine if the provider needs none
        lacks = key is None and (provider.needs_key or config.auth == "api_key")
    else:
        key = expand(config.api_key)
        # `expand` leaves an unset variable in the text
        lacks = "${" in key
    # runs with every call, so the full check is made only if a key is missing
    if lacks and (lack := missing(config)) is not None:
        raise SetupError(f"cannot ask `{config.name}`: {lack}")
    return key


def key_name(config: ModelConfig) -> str:
    """Name of the setting that holds a model's API key, for messages."""
    named = (config.api_key or "").strip("${}")
    return named or PROVIDERS[config.provider].key_variable or "its `api_key`"


def is_ours(url: str | None) -> bool:
    """True if an address is this machine, where calls cost nothing."""
    host = urlsplit(url or "").hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
