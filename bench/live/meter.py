"""The one way to the model: every arm's calls go through it, and no other has the key.

An arm is given an address on this machine that speaks as OpenAI does. Behind it each call is looked
up among those that were paid for, has its worst case set aside, and is counted with its reply.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from bench.live.ledger import Call, Ledger, Numbers, OutOfMoney
from bench.live.order import SPENT
from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure
from kept.models.local.model import HOST, start_server
from kept.models.prices import worst_usd


class Metered:
    """A model whose calls belong to one scope, with an allowance."""

    def __init__(self, model: Model, ledger: Ledger, scope: str, allowance: float) -> None:
        self.name = model.name
        self._model, self._ledger = model, ledger
        self._scope, self._allowance = scope, allowance
        self._numbers = Numbers()

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """A reply that was paid for, or a new one as long as there is money."""
        call = self._numbers.call(self._scope, request)
        known = self._ledger.reply(call)
        return _as_said(known if known is not None else await self._buy(call, request))

    async def _buy(self, call: Call, request: ModelRequest) -> ModelReply | Failure:
        worst = worst_usd(self._model, request)
        if worst is None:
            return Failure("harness", "infrastructure", f"`{self.name}` has no known price")
        try:
            await self._ledger.begin(call, worst, self._allowance)
        except OutOfMoney as error:
            return Failure("harness", "infrastructure", f"{SPENT}: {error}")
        return await self._ask(call, request, worst)

    async def _ask(self, call: Call, request: ModelRequest, worst: float) -> ModelReply | Failure:
        usd, keep = worst, None
        try:
            reply = await self._model.complete(request)
            if isinstance(reply, ModelReply) or reply.blame == "candidate":
                usd, keep = reply.usage.usd, reply
            elif reply.kind not in ("timeout", "network"):
                # an answer that broke off may have been charged for; a refusal to serve was not
                usd = reply.usage.usd
            return reply
        finally:
            self._ledger.end(call, usd, keep)


def _as_said(reply: ModelReply | Failure) -> ModelReply | Failure:
    """What was paid for is an answer, also where the model said nothing or would not."""
    if isinstance(reply, Failure) and reply.kind in ("empty", "refused"):
        return ModelReply(reply.detail, reply.usage)
    return reply


@asynccontextmanager
async def served(model: Metered) -> AsyncGenerator[str]:
    """Where an arm finds it, as long as the arm runs."""
    runner, port = await start_server(model, 0)
    try:
        yield f"http://{HOST}:{port}/v1"
    finally:
        await runner.cleanup()
