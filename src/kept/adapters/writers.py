"""`reflection_lm` as who writes new texts: a model by its name, or a function with its price."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kept.adapters.authors import CallableModel, ModelAuthor
from kept.adapters.starting import OwnTerms, limits_of
from kept.errors import SetupError
from kept.models.connect import connect
from kept.models.providers import config_of
from kept.models.roles import unbounded
from kept.models.window import room_of


def author_of(
    lm: str | Callable[..., Any], terms: OwnTerms, settings: Mapping[str, Any] | None = None
) -> ModelAuthor:
    """Who writes; refuses a limit of money that could not be kept with it."""
    if not isinstance(lm, str):
        return ModelAuthor(CallableModel(lm, usd=usd_per_call(terms)))
    config = replace(config_of(lm), **(settings or {}))
    if limited(terms) and unbounded(config) is not None:
        message = f"what a call of `{config.name}` costs at most is not known"
        hint = "leave `max_usd` out, or give a function and its `usd_per_call`"
        raise SetupError(message, hint=hint)
    return ModelAuthor(connect(config), room_of(config))


def usd_per_call(terms: OwnTerms) -> float | None:
    """What a call of a function that writes costs at most, as it is told."""
    price = terms.get("usd_per_call")
    if price is None and limited(terms):
        message = "what a function that writes costs is not known, so `max_usd` could not be kept"
        hint = "give `usd_per_call`, the most that one call of it may cost"
        raise SetupError(message, hint=hint)
    return price


def limited(terms: OwnTerms) -> bool:
    """Whether there is a limit of money."""
    budget = limits_of(terms)
    return budget is not None and budget.max_usd is not None
