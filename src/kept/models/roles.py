"""Which model does what in a run."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, get_args

from kept.core.ports import Model
from kept.models.cache import CachedModel, CallCache
from kept.models.config import ModelConfig
from kept.models.connect import connect
from kept.models.prices import FREE_OF_CHARGE, embedding_rates_of, rates_of
from kept.models.probe import Probe
from kept.models.providers import PROVIDERS, address
from kept.settings import cache_home

Role = Literal["optimizer", "target", "critic", "applier", "judge", "manager", "worker"]
ROLES: tuple[Role, ...] = get_args(Role)

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
    # a run begins without a look at an endpoint whose replies may all be cached
    probe = Probe(config) if config.cache and PROVIDERS[config.provider].speech != "none" else None
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
