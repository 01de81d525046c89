"""Threads for a user's blocking code: a call that hangs holds one for ever, so they are counted."""

import asyncio
import threading

import pytest

from kept import RunError
from kept.engine.user_code import HANGING, Threads


def test_calls_that_hang_are_bounded():
    release = threading.Event()

    threads = Threads(8)

    async def hang() -> int:
        for number in range(HANGING + 10):
            call = asyncio.ensure_future(threads.call(release.wait))
            await asyncio.sleep(0)
            call.cancel()
            try:
                await call
            except asyncio.CancelledError:
                continue
            except RunError as error:
                assert "hang" in error.message
                return number
        return -1

    try:
        assert asyncio.run(hang()) == HANGING
    finally:
        release.set()
        threads.close()


def test_calls_that_end_are_not_counted_however_many_there_are():
    async def many() -> list[int]:
        threads = Threads(8)
        found = [await threads.call(abs, -n) for n in range(3 * HANGING)]
        threads.close()
        return found

    assert asyncio.run(many())[-1] == 3 * HANGING - 1


@pytest.mark.parametrize("late", [1, HANGING])
def test_calls_that_were_late_and_ended_count_no_more(late: int):
    release = threading.Event()

    threads = Threads(8)

    async def whole() -> int:
        calls = [asyncio.ensure_future(threads.call(release.wait)) for _ in range(late)]
        await asyncio.sleep(0.05)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        release.set()
        for _ in range(100):
            try:
                return await threads.call(abs, -1)
            except RunError:
                await asyncio.sleep(0.02)
        return 0

    assert asyncio.run(whole()) == 1
    threads.close()
