"""The SDK of OpenAI, as its own pages have it: on httpx, or on aiohttp."""

# pyright: basic, reportMissingImports=false
# the SDK is not in this environment

import asyncio

import openai

from bench.arms.calling import SYSTEM, keep_calling
from bench.reading import Order, Reading, read_order, tell


async def run(order: Order) -> Reading:
    http = openai.DefaultAioHttpClient() if order.task == "aiohttp" else None
    async with openai.AsyncOpenAI(base_url=order.url, api_key="none", http_client=http) as client:

        async def call(text: str) -> str:
            reply = await client.chat.completions.create(
                model="m",
                messages=[
                    {"role": "system", "content": SYSTEM},
                    {"role": "user", "content": text},
                ],
                max_tokens=200,
            )
            return reply.choices[0].message.content or ""

        return await keep_calling(order, call)


if __name__ == "__main__":
    tell(asyncio.run(run(read_order())))
