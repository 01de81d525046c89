"""The server speaks each protocol as its clients expect it, whole and streamed."""

import asyncio
import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.core.rollout import Usage
from kept.testing.server import Fault, ModelServer, Seen

HELLO = ModelReply(
    "hello from a script that is longer than one piece", Usage(1, 100, 12, tokens_cached=40)
)
CALL = ModelReply("", Usage(1, 9, 5), "tool_calls", (ToolCall("call_1", "shell", '{"cmd": "ls"}'),))

ASKED: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "responses": {"input": "hi"},
    "messages": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 10},
}


def post(server: ModelServer, path: str, body: dict[str, Any]) -> tuple[int, str, str]:
    """Status, content type and text of the answer."""

    async def send() -> tuple[int, str, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{server.v1}/{path}", json={"model": "m", **body}) as got,
        ):
            return got.status, got.content_type, await got.text()

    return asyncio.run(send())


def events(text: str) -> Iterator[dict[str, Any]]:
    for block in text.strip().split("\n\n"):
        data = next(line for line in block.splitlines() if line.startswith("data: "))
        if data != "data: [DONE]":
            yield json.loads(data.removeprefix("data: "))


def test_a_chat_reply_has_its_text_its_end_and_its_usage():
    with ModelServer([HELLO]) as server:
        status, kind, text = post(server, "chat/completions", ASKED["chat/completions"])
    body = json.loads(text)
    assert (status, kind) == (200, "application/json")
    assert body["choices"][0]["message"]["content"] == HELLO.text
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 40


def test_a_chat_stream_adds_up_to_the_reply_and_ends_with_its_usage():
    asked = ASKED["chat/completions"] | {"stream": True, "stream_options": {"include_usage": True}}
    with ModelServer([HELLO]) as server:
        _, kind, text = post(server, "chat/completions", asked)
    chunks = list(events(text))
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert kind == "text/event-stream"
    assert "".join(delta.get("content", "") for delta in deltas) == HELLO.text
    assert chunks[-1]["usage"]["completion_tokens"] == 12
    assert text.endswith("data: [DONE]\n\n")


def test_a_streamed_tool_call_comes_in_pieces_of_json():
    with ModelServer([CALL]) as server:
        _, _, text = post(server, "chat/completions", ASKED["chat/completions"] | {"stream": True})
    parts = [
        call
        for chunk in events(text)
        for call in chunk["choices"][0]["delta"].get("tool_calls", [])
    ]
    assert parts[0]["function"]["name"] == "shell"
    assert "".join(part["function"]["arguments"] for part in parts) == '{"cmd": "ls"}'


def test_a_response_is_streamed_as_numbered_events_and_completed_with_the_whole():
    with ModelServer([HELLO]) as server:
        _, _, text = post(server, "responses", ASKED["responses"] | {"stream": True})
    told = list(events(text))
    deltas = [event["delta"] for event in told if event["type"] == "response.output_text.delta"]
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert "".join(deltas) == HELLO.text
    assert told[-1]["type"] == "response.completed"
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == HELLO.text
    assert told[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"] == 40


@pytest.mark.parametrize(
    ("tool", "kind", "given"),
    [
        ({"type": "function", "name": "shell"}, "function_call", "arguments"),
        ({"type": "custom", "name": "shell"}, "custom_tool_call", "input"),
    ],
)
def test_a_response_calls_a_tool_in_the_way_it_was_offered(
    tool: dict[str, str], kind: str, given: str
):
    with ModelServer([CALL]) as server:
        _, _, text = post(
            server, "responses", ASKED["responses"] | {"tools": [tool], "stream": True}
        )
    item = next(e["item"] for e in events(text) if e["type"] == "response.output_item.done")
    assert item["type"] == kind
    assert item[given] == '{"cmd": "ls"}'
    assert item["call_id"] == "call_1"


def test_an_anthropic_message_counts_what_came_from_a_cache_apart():
    with ModelServer([HELLO]) as server:
        _, _, text = post(server, "messages", ASKED["messages"])
    body = json.loads(text)
    assert body["content"] == [{"type": "text", "text": HELLO.text}]
    assert body["stop_reason"] == "end_turn"
    assert body["usage"]["input_tokens"] == 60
    assert body["usage"]["cache_read_input_tokens"] == 40


def test_an_anthropic_stream_opens_and_closes_each_block():
    with ModelServer([CALL]) as server:
        _, _, text = post(server, "messages", ASKED["messages"] | {"stream": True})
    told = list(events(text))
    parts = [e["delta"]["partial_json"] for e in told if e["type"] == "content_block_delta"]
    assert [e["type"] for e in told if not e["type"].endswith("_delta")] == [
        *("message_start", "ping", "content_block_start", "content_block_stop", "message_stop")
    ]
    assert json.loads("".join(parts)) == {"cmd": "ls"}
    assert told[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("path", ASKED)
def test_content_may_be_a_list_of_parts(path: str):
    part = "input_text" if path == "responses" else "text"
    content = [{"type": part, "text": "one"}, {"type": "image"}, {"type": part, "text": "two"}]
    key = "input" if path == "responses" else "messages"
    with ModelServer(lambda seen: seen.text) as server:
        post(server, path, {key: [{"role": "user", "content": content}], "max_tokens": 5})
        assert server.log[0].text == "one\ntwo"


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("chat/completions", {"messages": [{"role": "tool", "content": "a file"}]}),
        ("responses", {"input": [{"type": "function_call_output", "output": "a file"}]}),
        (
            "messages",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "tool_result", "content": "a file"}]}
                ]
            },
        ),
    ],
)
def test_a_script_can_tell_that_a_tool_was_used(path: str, asked: dict[str, Any]):
    def script(seen: Seen) -> str:
        return "done" if seen.tool_results == ("a file",) else "not yet"

    with ModelServer(script) as server:
        assert "done" in post(server, path, asked)[2]


def test_embeddings_of_texts_that_share_words_are_nearer():
    texts = ["a red house", "the red house", "nothing alike whatsoever"]
    with ModelServer() as server:
        _, _, plain = post(server, "embeddings", {"input": texts})
        _, _, packed = post(server, "embeddings", {"input": texts, "encoding_format": "base64"})
    one, near, far = (row["embedding"] for row in json.loads(plain)["data"])
    assert dot(one, near) > dot(one, far)
    raw = base64.b64decode(json.loads(packed)["data"][0]["embedding"])
    assert struct.unpack(f"<{len(one)}f", raw) == pytest.approx(one, abs=1e-6)


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_a_script_that_is_at_its_end_says_so():
    with ModelServer(["only one"]) as server:
        post(server, "chat/completions", ASKED["chat/completions"])
        status, _, text = post(server, "chat/completions", ASKED["chat/completions"])
    assert status == 400
    assert "the script ends after 1 replies" in text


def test_faults_come_before_replies_and_take_none_of_them():
    faults = [Fault("status", 429, retry_after=0.25), None]
    with ModelServer(["first"], faults=faults) as server:
        first = post(server, "chat/completions", ASKED["chat/completions"])
        then = post(server, "chat/completions", ASKED["chat/completions"])
        assert [seen.answer for seen in server.log] == ["429", "reply"]
    assert first[0] == 429
    assert "first" in then[2]


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_that_is_cut_or_truncated_never_arrives_whole(path: str, streamed: bool):
    faults = [Fault("truncated"), Fault("cut")]
    asked = ASKED[path] | {"stream": streamed}
    with ModelServer(["x"], faults=faults) as server:
        status, _, text = post(server, path, asked)
        assert status == 200
        ends = ("[DONE]", "message_stop", "response.completed")
        assert not any(end in text for end in ends)
        if not streamed:
            with pytest.raises(json.JSONDecodeError):
                json.loads(text)
        with pytest.raises(aiohttp.ClientError):
            post(server, path, asked)
        assert not server.answered


@pytest.mark.parametrize("path", ASKED)
def test_errors_are_told_in_the_words_of_each_provider(path: str):
    with ModelServer(faults=[Fault("status", 401, "who are you")]) as server:
        status, _, text = post(server, path, ASKED[path])
    assert status == 401
    assert json.loads(text)["error"]["message"] == "who are you"


def test_a_client_that_gives_up_is_not_counted_as_answered():
    async def impatient(server: ModelServer) -> None:
        timeout = aiohttp.ClientTimeout(total=0.1)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            with pytest.raises(TimeoutError):
                await session.post(f"{server.v1}/chat/completions", json=ASKED["chat/completions"])

    with ModelServer(["x"], latency=30) as server:
        asyncio.run(impatient(server))
    assert len(server.log) == 1
    assert not server.answered


def test_who_hangs_up_before_there_is_an_answer_has_given_up():
    async def hang_up(server: ModelServer) -> None:
        async with aiohttp.ClientSession() as session:
            asking = session.post(f"{server.v1}/responses", json={"model": "m", "input": "hi"})
            task = asyncio.ensure_future(asking)
            while not server.log:
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
        while not server.log[0].answer:
            await asyncio.sleep(0.001)

    with ModelServer([HELLO], latency=30) as server:
        asyncio.run(asyncio.wait_for(hang_up(server), 20))
    assert [seen.answer for seen in server.log] == ["given up"]
