"""One question to a model, in a scope: journalled, paid for, held to its schema."""

from dataclasses import asdict
from typing import Protocol, runtime_checkable

from kept.core.model import ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.models.structured import settle


@runtime_checkable
class Pricing(Protocol):
    """A model that knows what a request can cost at most."""

    def worst_usd(self, request: ModelRequest) -> float | None:
        """The most that a reply can cost; None where that is not known."""
        ...


def worst_usd(model: Model, request: ModelRequest) -> float | None:
    """The most that a reply can cost; None where nobody can tell."""
    return model.worst_usd(request) if isinstance(model, Pricing) else None


async def ask(scope: Scope, model: Model, request: ModelRequest) -> ModelReply | Failure:
    """What a model answers; with a schema, JSON that satisfies it or a `Failure`.

    Every question is journalled by itself, also one that has to be asked again.
    """

    async def call(one: ModelRequest) -> ModelReply | Failure:
        known_by = {"model": model.name, **asdict(one)}
        most = worst_usd(model, one)
        return await scope.call(known_by, ModelReply, lambda: model.complete(one), most)

    return await settle(request, call)
