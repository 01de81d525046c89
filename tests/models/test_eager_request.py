"""Requests that are sent before other tasks run."""

import asyncio
import time

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.models.client import make
from kept.models.eager_request import start_now
from kept.models.providers import ModelConfig
from kept.testing.server import ModelServer

HELLO = ModelRequest((Message("user", "hello"),))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "in pieces"])
def test_a_request_leaves_before_others_have_had_their_turn(stream: bool):
    with ModelServer([ModelReply("one"), ModelReply("two")]) as server:
        at = ModelConfig(
            provider="openai_compatible",
            model="any",
            base_url=server.v1,
            api_key="k",
            stream=stream,
        )
        model = make(at)

        async def keep_everyone_else_waiting() -> int:
            end = time.monotonic() + 5
            while len(server.log) < 2 and time.monotonic() < end:
                time.sleep(0.005)  # nobody else may have a turn
            return len(server.log)

        async def scenario() -> tuple[int, object]:
            await model.complete(HELLO)  # a connection is there now
            asked = asyncio.create_task(model.complete(HELLO))
            seen = await asyncio.create_task(keep_everyone_else_waiting())
            return seen, await asked

        seen, reply = asyncio.run(scenario())
    assert seen == 2
    assert isinstance(reply, ModelReply)
    assert reply.text == "two"


def test_work_that_need_not_wait_is_done_at_once():
    done: list[str] = []

    async def work() -> None:
        done.append("all of it")

    rest = start_now(work())
    assert done == ["all of it"]
    asyncio.run(rest)
    assert done == ["all of it"]


def test_work_that_waits_goes_on_where_it_was():
    done: list[str] = []

    async def work(*gates: "asyncio.Future[None]") -> None:
        for n, gate in enumerate(gates):
            done.append(f"before {n}")
            await gate
        done.append("end")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        gates = [loop.create_future() for _ in range(2)]
        task = asyncio.create_task(start_now(work(*gates)))
        assert done == ["before 0"]
        for gate in gates:
            loop.call_soon(gate.set_result, None)
        await task

    asyncio.run(scenario())
    assert done == ["before 0", "before 1", "end"]


def test_what_is_cancelled_while_it_waits_hears_of_it():
    heard: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    async def scenario() -> None:
        task = asyncio.create_task(start_now(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert heard == ["cancelled"]


def test_what_goes_wrong_after_a_wait_is_told_to_whoever_waits():
    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def scenario() -> None:
        with pytest.raises(ValueError, match="no"):
            await asyncio.create_task(start_now(work()))

    asyncio.run(scenario())
