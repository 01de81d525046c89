"""Roles of models in a run, and their caches and probes."""

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
"""Roles of models that only proposers use, where `connect_role` connects them."""

ENDLESS = ("openai_compatible", "ollama")
"""Providers that get no limit of a reply unless the config sets one."""


_OFF = ContextVar("the call cache is off", default=False)


@contextmanager
def without_cache() -> Generator[None]:
    """Make `connect_role` use no cache, whatever a config says."""
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


def connect_uncached(config: ModelConfig) -> Model:
    """Connect a model that is cached only if its config says `cache: true`.

    For runs that are meant to differ when they are repeated.
    """
    return connect_role("target", config) if config.cache else connect(config)


def connect_role(role: Role, config: ModelConfig) -> Model:
    """Connect the model of a role, with its cache; raise `SetupError` if something is missing."""
    model = connect(config)
    if not is_kept(role, config):
        return model
    probe = Probe(config) if PROVIDERS[config.provider].speech != "none" else None
    # opened with the first request, not here
    opened = partial(_opened, cache_home() / "calls.db")
    return CachedModel(model, opened, address(config) or "", probe)


@lru_cache(maxsize=4)
def _opened(path: Path) -> CallCache:
    """Open the cache once for all models of a process."""
    return CallCache(path)


def is_kept(role: Role, config: ModelConfig) -> bool:
    """True if replies are cached for other runs; by default not for a target that samples."""
    if config.cache is not None or _OFF.get():
        return bool(config.cache) and not _OFF.get()
    # scripted replies cost nothing, and a target's replies vary unless its temperature is 0
    return config.provider != "scripted" and (role != "target" or config.temperature == 0)


def probes_of(
    asked: Iterable[ModelConfig | None], named: Iterable[tuple[Role, ModelConfig | None]] = ()
) -> tuple[Probe, ...]:
    """Return one probe per endpoint; `named` are models that `connect_role` connects.

    A model with cached replies is probed before its first request without one. A run whose replies
    are all cached thus needs no endpoint.
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
    """Return probes of connected models; other objects have no endpoint to probe."""
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
    """Merge probes by address; one is spared or left out only if all of its address are."""
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
    """True if the cost of a call is known; calls that are not sent anywhere are free."""
    # an embedding model has no price for output
    known = rates_of(config) or embedding_rates_of(config)
    return PROVIDERS[config.provider].speech == "none" or known is not None


def is_free(config: ModelConfig) -> bool:
    """True if calls are free of charge."""
    rates = rates_of(config)
    return PROVIDERS[config.provider].speech == "none" if rates is None else rates == FREE_OF_CHARGE


def unbounded(config: ModelConfig) -> str | None:
    """Setting that is missing for calls to have a maximum cost; None if there is none."""
    if not is_priced(config):
        return "price"
    rates = rates_of(config)
    endless = config.max_tokens is None and config.provider in ENDLESS
    return "max_tokens" if endless and rates and rates.output.most else None
