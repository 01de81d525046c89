"""What a request to a model can cost, asked of whoever may know."""

import logging
from functools import lru_cache
from typing import Protocol, cast, runtime_checkable

from kept.core.model import ModelRequest
from kept.core.ports import Model

BYTES = 4
"""Of a request, for each of its tokens: as English has them."""

REPLY = 200
"""Tokens of a reply that is neither a word nor an essay."""

log = logging.getLogger("kept")


@runtime_checkable
class Pricing(Protocol):
    """A model that knows what a request can cost at most."""

    def worst_usd(self, request: ModelRequest) -> float | None:
        """The most that a reply can cost; None where that is not known."""
        ...


def worst_usd(model: Model, request: ModelRequest) -> float | None:
    """The most that a reply can cost; None where nobody can tell."""
    if not hasattr(model, "worst_usd"):
        return None
    # to hold a model against a protocol with `isinstance` takes as long as the answer itself
    return cast("Pricing", model).worst_usd(request)


@runtime_checkable
class Usual(Protocol):
    """A model that can say what a request costs when nothing is unusual about its reply."""

    def usual_usd(self, request: ModelRequest) -> float | None:
        """With a reply of `REPLY` tokens; None where the price is not known."""
        ...


def usual_usd(model: Model, request: ModelRequest) -> float | None:
    """What a request costs with a reply of `REPLY` tokens; None where nobody can tell."""
    return model.usual_usd(request) if isinstance(model, Usual) else None


@lru_cache(maxsize=1024)
def warn_of_usage(name: str, where: str) -> None:
    """Warn of token counts that cannot be true, once for each model and address."""
    log.warning(
        "`%s` at %s reports token counts that cannot be true; such replies are charged at their "
        "worst case",
        name,
        where,
    )
