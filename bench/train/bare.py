"""aiohttp and nothing else, as many calls as it is told: what this machine can do at all."""

import asyncio
import sys

import aiohttp

from bench.train.shape import AT_ONCE


async def run(url: str, calls: int) -> None:
    left = iter(range(calls))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def worker() -> None:
            for n in left:
                text = f"## Context\n[DOC] Number {n}.\n\n## Question\nWhat is number {n}?"
                messages = [
                    {"role": "system", "content": "Answer the question."},
                    {"role": "user", "content": text},
                ]
                body = {"model": "student", "messages": messages}
                async with session.post(f"{url}/chat/completions", json=body) as response:
                    (await response.json())["choices"][0]["message"]["content"]

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
