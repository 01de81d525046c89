"""aiohttp and nothing else, asked as often and as many at once: what server and machine allow.

`bare.py URL CASES AT_ONCE`
"""

import asyncio
import sys

import aiohttp


async def run(url: str, cases: int, at_once: int) -> None:
    left = iter(range(cases))

    async def work(session: aiohttp.ClientSession) -> None:
        for number in left:
            messages = [
                {"role": "system", "content": "You answer in one word."},
                {"role": "user", "content": f"What is question {number}?"},
            ]
            body = {"model": "gpt-5-mini", "messages": messages}
            async with session.post(f"{url}/chat/completions", json=body) as response:
                assert (await response.json())["choices"]

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(work(session) for _ in range(at_once)))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
