"""Spec sections shared by several kinds of specs: `models` (by role) and `sandbox`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticKnownError

from kept import settings
from kept.core.llm import Effort
from kept.core.untyped import is_dict
from kept.models.providers import (
    REFERENCE,
    SCOPE,
    ModelConfig,
    Price,
    check_provider,
    is_scope,
    parse,
)
from kept.sandbox.command import MIB, Limits, Network
from kept.spec.validate import Count, Finite, Seconds, SpecModel, Text, Texts

Positive = Annotated[Finite, Field(gt=0)]
Usd = Annotated[Finite, Field(ge=0)]


def reference(value: object) -> object:
    """Accept a key only as a reference to an environment variable, `${NAME}`."""
    if value is None or (isinstance(value, str) and REFERENCE.fullmatch(value)):
        return value
    # without the value: it may be a key
    raise ValueError("a key is kept in the environment, not in a file; write ${NAME} for it")


def open_address(value: str | None) -> str | None:
    """Refuse an address with a login: that is a secret."""
    if value is not None and settings.logins(REFERENCE.sub("", value).replace("://:@", "://")):
        # without the value, for the same reason
        raise ValueError(
            "a login is kept in the environment, not in a file; write ${NAME} for it, or for all "
            "of the address"
        )
    return value


def scope(value: str | None) -> str | None:
    """Check the scope of tokens."""
    if value is not None and not is_scope(value):
        raise ValueError(f"tokens of an Azure identity are for Azure alone, as in {SCOPE}")
    return value


def model_block(value: object) -> object:
    """Expand a text into a block; fill a block without provider and model from KEPT_MODEL."""
    if is_dict(value):
        given, named = value, settings.model()
        nameless = not {"provider", "model"} & given.keys()
        return {**_block_of(named), **given} if named and nameless else given
    if not isinstance(value, str):
        return value
    if not value:
        raise PydanticKnownError("string_too_short", {"min_length": 1})
    return _block_of(value)


def _block_of(text: str) -> dict[str, object]:
    provider, model = parse(text)
    return {"provider": provider, "model": model}


class PriceSpec(SpecModel):
    """US dollars per million tokens."""

    input: Usd
    output: Usd
    cached: Usd | None = None
    """Price of cached input tokens; by default the same as for others."""


class ModelSpec(SpecModel):
    """One model: its provider and address, request settings, limits and price."""

    provider: Annotated[Text, AfterValidator(check_provider)]
    model: Text
    base_url: Annotated[Text | None, AfterValidator(open_address)] = None
    api_key: Annotated[Text | None, BeforeValidator(reference)] = None
    """`${NAME}`; by default the provider's usual variable."""
    api_version: Text | None = None
    identity: Text | None = None
    """Client id of a managed identity, for machines with several."""
    token_scope: Annotated[Text | None, AfterValidator(scope)] = None
    """Scope of an identity's tokens, for clouds other than the public one."""
    # excluded from dumps, since the hashes of runs are made from them
    auth: Annotated[Literal["api_key", "identity"] | None, Field(exclude=True)] = None
    """Azure only: use only the key, or an identity even if there is a key; None for either."""
    temperature: Annotated[Finite, Field(ge=0)] | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    max_tokens: Count | None = None
    seed: int | None = None
    effort: Effort | None = None
    context_window: Count | None = None
    """Maximum tokens of input and output together, for models missing from the list."""
    stream: bool = False
    timeout_seconds: Seconds = 300.0
    """Timeout of one try."""
    stall_seconds: Seconds = 60.0
    """Maximum time without a byte before a stream is cut."""
    tries: Count = 6
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    price: PriceSpec | None = None
    """Price for models that the price list lacks or has wrong."""
    cache: bool | None = None
    """Keep replies for other runs; by default for all models but a target that samples."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Yield settings that the provider does not support."""
        provider = said.get("provider")
        for key in ("api_version", "identity", "token_scope", "auth"):
            if said.get(key) is not None and provider not in (None, "azure_openai"):
                yield f"`{key}` goes with `provider: azure_openai`"
        if said.get("auth") == "identity" and said.get("api_key") is not None:
            yield "`auth: identity` goes without a key, and there is an `api_key`"
        if said.get("seed") is not None and provider == "anthropic":
            yield "Anthropic takes no `seed`"

    @property
    def name(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.model}"

    def config(self, folder: Path) -> ModelConfig:
        """Convert to a `ModelConfig`; its paths are relative to `folder`."""
        said = self.model_dump(exclude={"timeout_seconds", "stall_seconds", "price"})
        price = None if self.price is None else Price(**self.price.model_dump())
        timeout, stall = self.timeout_seconds, self.stall_seconds
        asked: dict[str, Any] = {**said, "auth": self.auth, "timeout": timeout, "stall": stall}
        return ModelConfig(**asked, price=price, folder=folder)


RoleSpec = Annotated[ModelSpec, BeforeValidator(model_block)]


class ModelsSpec(SpecModel):
    """Models by role, each as `provider/model` or as a block."""

    optimizer: RoleSpec | None = None
    """Model that proposes changes; by default the one named by KEPT_MODEL."""
    target: RoleSpec | None = None
    """Model that the artifacts are written for."""
    critic: RoleSpec | None = None
    applier: RoleSpec | None = None
    judge: RoleSpec | None = None
    manager: RoleSpec | None = None
    worker: RoleSpec | None = None


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"`{name}` is not the name of a variable")
    return name


class SandboxSpec(SpecModel):
    """Access and limits of commands: files, network, variables, resources."""

    walls: Literal["auto", "required", "off"] = "auto"
    """`auto` uses bwrap if it works and reports if not; `required` fails without it."""
    network: Network = "none"
    env: Annotated[tuple[Annotated[Text, AfterValidator(_variable)], ...], Field(strict=False)] = ()
    """Environment variables that commands may see, besides a few harmless ones."""
    hidden: Texts = ()
    """Further files and folders that the runner must not see; the scorer sees them."""
    readable: Texts = ()
    """Files and folders that commands may read although they are known to hold secrets."""
    writable: Texts = ()
    """Files and folders that commands may really change."""
    cpu_seconds: Count | None = None
    memory_mb: Count | None = None
    file_mb: Count = 1024
    tree_mb: Count = 1024
    output_mb: Count = 16
    processes: Count = 512

    def limits(self, memory: int | None) -> Limits:
        """Limits of each command; `memory` (bytes, if known) applies without `memory_mb`."""
        return Limits(
            self.cpu_seconds,
            self.memory_mb * MIB if self.memory_mb else memory,
            self.file_mb * MIB,
            self.tree_mb * MIB,
            self.processes,
        )
