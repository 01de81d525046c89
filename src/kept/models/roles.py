"""Which model does what in a run."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, get_args

from kept.core.ports import Model
from kept.models.cache import CachedModel, CallCache
from kept.models.client import Probe, connect
from kept.models.prices import FREE_OF_CHARGE, embedding_rates_of, rates_of
from kept.models.providers import PROVIDERS, ModelConfig, address
from kept.settings import cache_home

Role = Literal["optimizer", "target", "critic", "applier", "judge", "manager", "worker"]
ROLES: tuple[Role, ...] = get_args(Role)

PROPOSING: tuple[Role, ...] = ("optimizer", "critic", "applier")
"""Roles of models that only proposers ask, where `connect_role` connects them."""

ENDLESS = ("openai_compatible", "ollama")
"""Providers that are told no length of a reply unless somebody says one."""


_OFF = ContextVar("the call cache is off", default=False)


@contextmanager
def without_cache() -> Generator[None]:
    """Have `connect_role` give no model a cache, whatever its config says."""
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


def connect_uncached(config: ModelConfig) -> Model:
    """A model whose replies are cached only where its config says `cache: true`.

    For runs that are meant to differ when they are run again.
    """
    return connect_role("target", config) if config.cache else connect(config)


def connect_role(role: Role, config: ModelConfig) -> Model:
    """The model of a role, with its cache; a `SetupError` where it lacks something."""
    model = connect(config)
    if not is_kept(role, config):
        return model
    probe = Probe(config) if PROVIDERS[config.provider].speech != "none" else None
    opened = partial(_opened, cache_home() / "calls.db")
    return CachedModel(model, opened, address(config) or "", probe)


@lru_cache(maxsize=4)
def _opened(path: Path) -> CallCache:
    """One for all models of a process."""
    return CallCache(path)


def is_kept(role: Role, config: ModelConfig) -> bool:
    """Whether replies are kept for other runs: not those that a run draws to measure by."""
    if config.cache is not None or _OFF.get():
        return bool(config.cache) and not _OFF.get()
    return config.provider != "scripted" and (role != "target" or config.temperature == 0)


def probes_of(
    asked: Iterable[ModelConfig | None], named: Iterable[tuple[Role, ModelConfig | None]] = ()
) -> tuple[Probe, ...]:
    """One probe for each endpoint; `named` are models that `connect_role` connects.

    A model with cached replies is probed before its first request without one, so that a run whose
    replies are all cached needs no endpoint.
    """
    found: list[Probe] = []
    for role, config in [*((None, config) for config in asked), *named]:
        if config is not None and PROVIDERS[config.provider].speech != "none":
            caches = (
                bool(config.cache) and not _OFF.get() if role is None else is_kept(role, config)
            )
            spared = (partial(_has_replies, config),) if caches else ()
            found.append(Probe(config, role in PROPOSING, spared))
    return _by_endpoint(found)


def probes_of_models(models: Iterable[object]) -> tuple[Probe, ...]:
    """The same for models that are connected; what is no model of ours has no endpoint to probe."""
    found: list[Probe] = []
    for model in models:
        config = getattr(model, "config", None)
        if isinstance(model, CachedModel):
            if model.probe is not None:
                found.append(replace(model.probe, spared=(model.has_replies,)))
        elif isinstance(config, ModelConfig) and PROVIDERS[config.provider].speech != "none":
            found.append(Probe(config))
    return _by_endpoint(found)


def _by_endpoint(probes: Iterable[Probe]) -> tuple[Probe, ...]:
    """One for each address: it is spared or left out only where each of them is."""
    found: dict[str, Probe] = {}
    for probe in probes:
        at = address(probe.config) or ""
        if (other := found.get(at)) is not None:
            spared = (*other.spared, *probe.spared) if other.spared and probe.spared else ()
            probe = replace(other, proposes=other.proposes and probe.proposes, spared=spared)
        found[at] = probe
    return tuple(found.values())


def _has_replies(config: ModelConfig) -> bool:
    cache = _opened(cache_home() / "calls.db")
    return cache.has_model(address(config) or "", config.name)


def is_priced(config: ModelConfig) -> bool:
    """Whether what a call costs is known; nobody charges for one that is not sent anywhere."""
    # a model that embeds has no price for what it says
    known = rates_of(config) or embedding_rates_of(config)
    return PROVIDERS[config.provider].speech == "none" or known is not None


def is_free(config: ModelConfig) -> bool:
    """Whether nobody charges for a call."""
    rates = rates_of(config)
    return PROVIDERS[config.provider].speech == "none" if rates is None else rates == FREE_OF_CHARGE


def unbounded(config: ModelConfig) -> str | None:
    """What would have to be said for calls to have a worst case; None when nothing is."""
    if not is_priced(config):
        return "price"
    rates = rates_of(config)
    endless = config.max_tokens is None and config.provider in ENDLESS
    return "max_tokens" if endless and rates and rates.output.most else None
