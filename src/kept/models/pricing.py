"""What a request to a model can cost, asked of whoever may know."""

from typing import Protocol, cast

from kept.core.model import ModelRequest
from kept.core.ports import Model


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
