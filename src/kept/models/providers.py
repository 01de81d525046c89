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
"""A variable of the environment inside a text, as `${NAME}`."""

SHAPES = ("temperature", "top_p", "max_tokens", "seed", "effort")
"""What shapes a reply, and a config may say for requests that do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Of tokens that the provider had at hand; by default as any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model as a spec names it. Holds no secret: keys are read where they are used."""

    provider: str
    model: str
    base_url: str | None = None
    api_key: str | None = None
    """`${NAME}`; by default the variable that the provider is known by."""
    api_version: str | None = None
    """Of Azure; without it, its path `v1` is used, which needs none."""
    identity: str | None = None
    """The client id of a managed identity of Azure; by default the one that the machine has."""
    token_scope: str | None = None
    """What tokens of that identity are for; by default Azure's public cloud."""
    auth: Literal["api_key", "identity"] | None = None
    """Of Azure: by a key alone, or by an identity although there is a key; else as can be."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    effort: Effort | None = None
    context_window: int | None = None
    """Tokens that it can read and write at once, where the list does not say."""
    stream: bool = False
    """Whether replies are taken piece by piece, so that one that stalls is noticed early."""
    timeout: float = 300.0
    """Seconds for one try."""
    stall: float = 60.0
    """Seconds without a byte after which a stream is cut."""
    tries: int = 6
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    price: Price | None = None
    """Where it is not, or not rightly, in the list of prices."""
    cache: bool | None = None
    """Whether replies are kept for other runs; None leaves it to the role."""
    folder: Path = field(default_factory=Path.cwd)
    """Where paths begin."""

    @property
    def name(self) -> str:
        """As a spec spells it."""
        return f"{self.provider}/{self.model}"


def expand(text: str) -> str:
    """A text with its variables filled in; one that is not set is left as it stands."""
    return REFERENCE.sub(lambda found: settings.variable(found[1]) or found[0], text)


SCOPE = "https://cognitiveservices.azure.com/.default"
EARLY = 300.0
"""Seconds before its end at which a token is replaced."""

_HOSTS = (".azure.com", ".azure.us", ".azure.cn", ".azure-api.net")


class Entra:
    """Fetches tokens, and keeps each one as long as it lasts."""

    def __init__(
        self,
        credential: Any = None,  # noqa: ANN401 # what azure-identity makes
        *,
        identity: str | None = None,
        scope: str | None = None,
    ) -> None:
        """By a managed identity of that client id, for that scope; else by what there is."""
        self._credential = credential
        self._identity = identity
        self._scope = scope or SCOPE
        self._token = ""
        self._ends = 0.0

    async def token(self, url: str, now: float) -> str:
        """A token for an address of Azure, and for no other."""
        where = urlsplit(url)
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
    """Whether tokens may be asked for it: one of Azure's clouds, and nobody else's."""
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
    "local": Provider(maker="kept.models.local.model:make", needs_key=False),
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
