"""Models of Kept: what a proposer or a runner calls, limiter, tries and prices included.

`journalled` asks through a scope, as a run does, with the journal in memory.
"""

import asyncio

from bench.arms.calling import SYSTEM, keep_calling
from bench.reading import Order, Reading, read_order, tell
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.engine.replay import JournalScope
from kept.models.ask import ask
from kept.models.client import HttpModel
from kept.models.providers import ModelConfig, Price
from kept.testing import MemoryJournal

PROVIDERS = {"anthropic": "anthropic"}


async def run(order: Order) -> Reading:
    provider = PROVIDERS.get(order.task, "openai_compatible")
    model = HttpModel(
        ModelConfig(
            provider=provider,
            model="m",
            base_url=order.url,
            api_key="none",
            max_tokens=200,
            stream=order.task == "streamed",
            price=Price(input=1, output=4),
        )
    )
    scope = JournalScope(MemoryJournal(), "bench")

    async def call(text: str) -> str:
        request = ModelRequest((Message("system", SYSTEM), Message("user", text)))
        journalled = order.task == "journalled"
        reply = await (ask(scope, model, request) if journalled else model.complete(request))
        assert isinstance(reply, ModelReply), reply
        assert reply.usage.usd
        return reply.text

    return await keep_calling(order, call)


if __name__ == "__main__":
    tell(asyncio.run(run(read_order())))
