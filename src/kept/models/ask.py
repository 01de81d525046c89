"""One model call in a scope: journalled, paid for, checked against its schema."""

import asyncio
import hashlib
import time
from dataclasses import fields, replace

from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import FREE, Failure
from kept.core.text import count
from kept.models.cache import CachedModel
from kept.models.prices import worst_usd
from kept.models.scripted import ScriptedModel
from kept.models.structured_output import ANY, ReplyRules, settle

_FIELDS = tuple(one.name for one in fields(ModelRequest))


async def ask(
    scope: Scope,
    model: Model,
    request: ModelRequest,
    repeat: int = 0,
    rules: ReplyRules = ANY,
) -> ModelReply | Failure:
    """Return a model's reply; with a schema, JSON that satisfies it or a `Failure`.

    Every call is journalled by itself, including repeated ones. `repeat` numbers equal requests,
    for a model whose replies are cached for other runs. A reply that does not meet the rules is
    neither cached nor taken from the cache.
    """
    made: list[ModelRequest] = []
    fresh: list[ModelReply] = []

    async def do(one: ModelRequest) -> ModelReply | Failure:
        made.append(one)
        began = time.monotonic()
        if isinstance(model, CachedModel):
            reply = model.kept(one, repeat, lambda found: rules.is_met(found, one))
            if reply is None:
                reply = await model.fresh(one)
                if isinstance(reply, ModelReply) and rules.is_met(reply, one):
                    fresh.append(reply)
        else:
            reply = await model.complete(one)
        if isinstance(reply, Failure):
            return reply
        seconds = round(time.monotonic() - began, 4)
        return ModelReply(reply.text, reply.usage, reply.finish, reply.tool_calls, seconds)

    def keep(one: ModelRequest) -> None:
        # only once it is journalled: a run killed in between would get the reply for free
        if fresh and isinstance(model, CachedModel):
            model.keep(one, repeat, fresh[0])

    async def call(one: ModelRequest) -> ModelReply | Failure:
        known_by = {"model": model.name, **{name: getattr(one, name) for name in _FIELDS}}
        made.clear()
        fresh.clear()
        try:
            reply = await scope.call(known_by, ModelReply, lambda: do(one), worst_usd(model, one))
        except asyncio.CancelledError:
            keep(one)  # the reply came after the cancellation, but it is journalled
            raise
        keep(one)
        if not made and isinstance(model, ScriptedModel) and isinstance(reply, ModelReply):
            model.heard(one)
        return reply

    answer = await settle(request, call, rules)
    # the scope has counted every call; the sum would be counted twice
    return replace(answer, usage=FREE) if isinstance(answer, Failure) else answer


async def ask_within(
    seconds: float, scope: Scope, model: Model, request: ModelRequest, rules: ReplyRules = ANY
) -> ModelReply | Failure:
    """Call `ask`; return an infrastructure failure if the answer takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await ask(scope, model, request, rules=rules)
    except TimeoutError:
        message = f"{model.name} did not answer within {count(seconds, 'second')}"
        return Failure("timeout", "infrastructure", message)


def draw_seed(*draw: object) -> int:
    """Reproducible seed from identifying values, distinct for each combination."""
    text = "\0".join(map(str, draw))
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big") >> 1
