"""aiohttp and nothing else: what this machine can do at all."""

import asyncio

import aiohttp

from bench.arms.calling import SYSTEM, keep_calling
from bench.reading import Order, Reading, read_order, tell


async def run(order: Order) -> Reading:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def call(text: str) -> str:
            messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
            body = {"model": "m", "messages": messages, "max_tokens": 200}
            async with session.post(f"{order.url}/chat/completions", json=body) as response:
                return (await response.json())["choices"][0]["message"]["content"]

        return await keep_calling(order, call)


if __name__ == "__main__":
    tell(asyncio.run(run(read_order())))
