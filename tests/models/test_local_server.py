"""The OpenAI chat protocol on loopback, asked over real HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.rollout import Failure, Usage
from kept.models.local.model import start_server
from kept.testing import ScriptedModel

Ask = Callable[[aiohttp.ClientSession, str], Awaitable[Any]]
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def served(model: Any, ask: Ask) -> Any:
    async def run() -> Any:
        runner, port = await start_server(model, 0)
        try:
            async with aiohttp.ClientSession() as session:
                return await ask(session, f"http://127.0.0.1:{port}/v1")
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def post(body: Any, **how: Any) -> Ask:
    async def ask(session: aiohttp.ClientSession, base: str) -> tuple[int, Any]:
        async with session.post(f"{base}/chat/completions", json=body, **how) as response:
            return response.status, json.loads(await response.read())

    return ask


def test_a_request_reaches_the_model_whole_and_the_reply_comes_back():
    usage = Usage(calls=1, tokens_in=7, tokens_out=3, tokens_cached=2)
    model = ScriptedModel([ModelReply('{"a":1}', usage, "length")])
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    body = {
        "model": "any",
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": parts}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 9,
        "seed": 3,
        "stop": "end",
    }
    status, reply = served(model, post(body))
    assert status == 200
    assert model.requests == [
        ModelRequest(
            (Message("system", "be brief"), Message("user", "one two")),
            schema=schema,
            temperature=0.5,
            top_p=0.9,
            max_tokens=9,
            seed=3,
            stop=("end",),
        )
    ]
    (choice,) = reply["choices"]
    assert choice["message"] == {"role": "assistant", "content": '{"a":1}'}
    assert choice["finish_reason"] == "length"
    assert reply["usage"]["total_tokens"] == 10
    assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_the_model_is_listed():
    async def ask(session: aiohttp.ClientSession, base: str) -> Any:
        async with session.get(f"{base}/models") as response:
            return await response.json()

    assert [one["id"] for one in served(ScriptedModel([], name="m"), ask)["data"]] == ["m"]


def test_who_asks_for_a_stream_gets_events():
    async def ask(session: aiohttp.ClientSession, base: str) -> list[str]:
        async with session.post(f"{base}/chat/completions", json={**HELLO, "stream": True}) as got:
            assert got.content_type == "text/event-stream"
            return (await got.text()).split("\n\n")

    lines = served(ScriptedModel(["hi there"]), ask)
    assert lines[-2:] == ["data: [DONE]", ""]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    text = "".join(c["delta"].get("content", "") for event in events for c in event["choices"])
    assert text == "hi there"
    assert events[-1]["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Failure("context", "candidate", "too long"), 400, "context_length_exceeded"),
        (Failure("harness", "infrastructure", "no tools"), 400, None),
        (Failure("server", "infrastructure", "cut off"), 500, None),
    ],
)
def test_a_failure_is_an_error_of_the_protocol(failure: Failure, status: int, code: str | None):
    got, reply = served(ScriptedModel([failure]), post(HELLO))
    assert got == status
    assert reply["error"]["message"] == failure.message
    assert reply["error"]["code"] == code


REFUSED: list[Any] = [
    [],
    {},
    {"messages": [{"content": "no role"}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
    {**HELLO, "tools": [{"type": "function"}]},
    {**HELLO, "n": 2},
    {**HELLO, "response_format": {"type": "yaml"}},
]


@pytest.mark.parametrize("body", REFUSED)
def test_a_request_that_cannot_be_served_is_refused_and_no_model_is_asked(body: Any):
    model = ScriptedModel(["never"])
    status, reply = served(model, post(body))
    assert status == 400
    assert "cannot read the request" in reply["error"]["message"]
    assert model.calls == 0


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        # what a page of another origin may send without being asked first
        ({"Content-Type": "text/plain"}, 415),
        # and what one sends that has its own name point at loopback
        ({"Host": "evil.example:80"}, 403),
    ],
)
def test_a_web_page_cannot_use_it(headers: dict[str, str], status: int):
    model = ScriptedModel(["never"])

    async def ask(session: aiohttp.ClientSession, base: str) -> int:
        full = {"Content-Type": "application/json", **headers}
        url = f"{base}/chat/completions"
        async with session.post(url, data=json.dumps(HELLO), headers=full) as response:
            return response.status

    assert served(model, ask) == status
    assert model.calls == 0


def test_a_client_that_hangs_up_cancels_its_request():
    class Slow:
        name = "slow"

        def __init__(self) -> None:
            self.ended = asyncio.Event()
            self.begun = asyncio.Event()

        async def complete(self, request: ModelRequest) -> ModelReply | Failure:
            self.begun.set()
            try:
                await asyncio.sleep(600)
            finally:
                self.ended.set()
            raise AssertionError("nobody waits that long")

    model = Slow()

    async def ask(session: aiohttp.ClientSession, base: str) -> bool:
        task = asyncio.create_task(session.post(f"{base}/chat/completions", json=HELLO))
        await model.begun.wait()
        task.cancel()
        await asyncio.wait_for(model.ended.wait(), 10)
        return True

    assert served(model, ask)
