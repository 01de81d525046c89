"""The machine's own speed: the evaluator in a plain loop, with and without a line written for each.

`instant` with a folder writes one JSON line a rollout, each to the kernel before the next begins:
less than any journal can do. `slow` keeps all workers busy all the time.
"""

import asyncio
import json
import os
import time
from pathlib import Path

from bench.reading import Order, Reading, Stopwatch, read_order, tell
from bench.world import EVALUATOR_SECONDS, SEED, line, score


async def evaluate(text: str, case: int) -> float:
    return score(text)


async def instant(order: Order) -> Reading:
    descriptor = -1
    if order.folder:
        path = Path(order.folder) / "lines.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    watch = Stopwatch()
    for number in range(order.rollouts):
        step, case = divmod(number, order.cases)
        value = await evaluate(SEED + line(step, order.one_in), case)
        if descriptor >= 0:
            row = {"step": step, "case": case, "score": value}
            os.write(descriptor, json.dumps(row).encode() + b"\n")
    return watch.read(order.rollouts)


async def slow(order: Order) -> Reading:
    done = 0
    end = time.perf_counter() + order.seconds

    async def work() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await asyncio.sleep(EVALUATOR_SECONDS)
            score(SEED)
            done += 1

    watch = Stopwatch()
    await asyncio.gather(*(work() for _ in range(order.workers)))
    return watch.read(done)


def main() -> None:
    order = read_order()
    task = {"instant": instant, "slow": slow}[order.task]
    tell(asyncio.run(task(order)))


if __name__ == "__main__":
    main()
