"""What every arm of `bench.models` does: so many calls in flight, for so many seconds.

Imports the standard library only: peers run this in environments of their own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.reading import Order, Reading, Stopwatch

SYSTEM = "You are a careful assistant. " * 40
WARM_UP = 2
"""Calls of each worker before the clock starts: connections stand, and everything is imported."""


def question(number: int) -> str:
    return f"Question {number}: " + "what would you say to that? " * 20


async def keep_calling(order: Order, call: Callable[[str], Awaitable[str]]) -> Reading:
    """Every worker calls, and calls again."""
    done = 0
    end = 0.0

    async def work(first: int) -> None:
        nonlocal done
        number = first
        while time.perf_counter() < end:
            number += order.workers
            assert await call(question(number))
            done += 1

    for _ in range(WARM_UP):
        await asyncio.gather(*(call(question(n)) for n in range(order.workers)))
    watch = Stopwatch()
    end = time.perf_counter() + order.seconds
    await asyncio.gather(*(work(n) for n in range(order.workers)))
    return watch.read(done)
