"""A question to a model that proposes: with all that fits, and once more where it went wrong."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure
from kept.models.ask import ask
from kept.models.structured_output import ReplyRules
from kept.models.window import tokens_of
from kept.proposers.proposers_fitting import Fitted, Item, fit

OURS = ReplyRules(ignore_extra_keys=True)
"""For a schema of Kept's own: what it does not name is not read."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked."""

    model: Model
    request: ModelRequest
    """What every request has in common; its messages are what the model is told beforehand."""
    room: int | None = None
    """Tokens that a request may have; None where that is not known."""
    rules: ReplyRules = OURS


class Heard(NamedTuple):
    """What was asked in the end, and answered."""

    request: ModelRequest
    reply: ModelReply
    shown: Fitted


async def ask_fitted(asked: Asked, items: Sequence[Item], scope: Scope) -> Heard | Failure:
    """Ask with all that fits; where that was too much after all, once more with half of it."""
    told = asked.request
    fixed = sum(tokens_of(message.text) for message in told.messages)
    fixed += tokens_of(json.dumps(told.schema))
    shown = fit(items, None if asked.room is None else asked.room - fixed)
    request = _showing(told, shown)
    reply = await _ask(asked, request, scope)
    if isinstance(reply, Failure) and reply.kind == "context":
        half = fit(items, shown.tokens // 2)
        if len(half.items) < len(shown.items):
            shown, request = half, _showing(told, half)
            reply = await _ask(asked, request, scope)
    return reply if isinstance(reply, Failure) else Heard(request, reply, shown)


async def _ask(asked: Asked, request: ModelRequest, scope: Scope) -> ModelReply | Failure:
    return await ask(scope, asked.model, request, rules=asked.rules)


def once_more(request: ModelRequest, said: str, words: str) -> ModelRequest:
    """The same request behind an answer that cannot be used, with what is wrong with it."""
    more = (Message("assistant", said), Message("user", words))
    return replace(request, messages=(*request.messages, *more))


def _showing(told: ModelRequest, shown: Fitted) -> ModelRequest:
    return replace(told, messages=(*told.messages, shown.message()))
