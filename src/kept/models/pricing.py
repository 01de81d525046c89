"""What a request to a model can cost, asked of whoever may know."""

from typing import Protocol, runtime_checkable

from kept.core.model import ModelRequest
from kept.core.ports import Model


@runtime_checkable
class Pricing(Protocol):
    """A model that knows what a request can cost at most."""

    def worst_usd(self, request: ModelRequest) -> float | None:
        """The most that a reply can cost; None where that is not known."""
        ...


def worst_usd(model: Model, request: ModelRequest) -> float | None:
    """The most that a reply can cost; None where nobody can tell."""
    return model.worst_usd(request) if isinstance(model, Pricing) else None
