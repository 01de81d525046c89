"""One question to a model, in a scope: journalled, paid for, held to its schema."""

from dataclasses import asdict

from kept.core.model import ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.models.cache import CachedModel
from kept.models.pricing import worst_usd
from kept.models.structured import settle


async def ask(
    scope: Scope, model: Model, request: ModelRequest, repeat: int = 0
) -> ModelReply | Failure:
    """What a model answers; with a schema, JSON that satisfies it or a `Failure`.

    Every question is journalled by itself, also one that has to be asked again. `repeat` numbers
    the draws of one request, for a model whose replies are kept.
    """

    async def do(one: ModelRequest) -> ModelReply | Failure:
        if isinstance(model, CachedModel):
            return await model.draw(one, repeat)
        return await model.complete(one)

    async def call(one: ModelRequest) -> ModelReply | Failure:
        known_by = {"model": model.name, **asdict(one)}
        return await scope.call(known_by, ModelReply, lambda: do(one), worst_usd(model, one))

    return await settle(request, call)
