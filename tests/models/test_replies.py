"""Whatever a server sends, a reply or a typed failure comes out, and money stays within bounds."""

import asyncio
import copy
import json
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest, ToolOffer
from kept.core.rollout import Failure
from kept.models import endpoint as endpoint_module
from kept.models.client import HttpModel
from kept.models.embeddings import HttpEmbedder
from kept.models.providers import ModelConfig, Price
from kept.testing.server import Fault, ModelServer
from tests.models.worlds import ASK, client, config

WIRES = ("openai", "openai, streamed", "anthropic", "anthropic, streamed")
PRICE = Price(input=3, output=15)
DEEP = b"[" * 100_000 + b"]" * 100_000
TOOLED = ModelRequest(
    (Message("user", "what is the weather"),),
    tools=(ToolOffer("weather", "tells the weather", {"type": "object"}),),
    max_tokens=50,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits between tries are tested by themselves."""
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT", 0.001)


def ask_for(which: str, bodies: list[bytes], **given: Any) -> list[ModelReply | Failure]:
    """One call for each body, which is all that the server ever answers to it."""
    sent = iter(bodies)

    async def story(server: ModelServer) -> list[ModelReply | Failure]:
        made = client(which, server, **{"tries": 1, "price": PRICE, **given})
        return [await made.complete(TOOLED) for _ in bodies]

    with ModelServer(faults=lambda seen: Fault("body", body=next(sent))) as server:
        return asyncio.run(story(server))


# Valid bodies, from which the others are made.


def chat_reply(**message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": "yes", "refusal": None, **message}
    choice = {"index": 0, "message": said, "finish_reason": "stop", "logprobs": None}
    details = {"cached_tokens": 2, "audio_tokens": 0}
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": details}
    return {"id": "c-1", "object": "chat.completion", "choices": [choice], "usage": usage}


CALL = {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": '{"at": 1}'}}


def chat_chunks(call: bool = False) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"content": "ye"}]
    deltas += [{"content": "s"}, {"tool_calls": [{"index": 0, **CALL}]} if call else {}]
    rows: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    rows.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return [*rows, {"choices": [], "usage": chat_reply()["usage"]}]


USE = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"at": 1}}


def anthropic_reply(*more: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 2}
    content = [{"type": "text", "text": "yes"}, *more]
    return {"type": "message", "content": content, "stop_reason": "end_turn", "usage": usage}


def anthropic_events(call: bool = False) -> list[dict[str, Any]]:
    text = {"type": "text", "text": ""}
    usage = anthropic_reply()["usage"]
    rows: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": text},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "y"}},
        {"type": "content_block_stop", "index": 0},
    ]
    if call:
        piece = {"type": "input_json_delta", "partial_json": '{"at": 1}'}
        rows.append({"type": "content_block_start", "index": 1, "content_block": USE})
        rows.append({"type": "content_block_delta", "index": 1, "delta": piece})
    ending = {"stop_reason": "end_turn"}
    rows.append({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 3}})
    return [*rows, {"type": "message_stop"}]


VALID: dict[str, Callable[[bool], list[dict[str, Any]]]] = {
    "openai": lambda call: [chat_reply(**({"tool_calls": [CALL]} if call else {}))],
    "openai, streamed": chat_chunks,
    "anthropic": lambda call: [anthropic_reply(*([USE] if call else []))],
    "anthropic, streamed": anthropic_events,
}
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 5, -1, 10**9, 10**25, 0.5, -1e300, "", "x", "\0", "é" * 300),
    *([], {}, [1], [[]], [{}], {"x": 1}, {"text": 5}, [None, None], {"type": "text"}),
)


def encoded(rows: list[Any], streamed: bool) -> bytes:
    if not streamed:
        return json.dumps(rows[0]).encode()
    lines = [f"data: {json.dumps(row)}\n\n" for row in rows]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    keys: list[Any] = [*node] if isinstance(node, dict) else [*range(len(node))]
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def spoiled(draw: random.Random, which: str) -> bytes:
    """A valid body with something wrong, in its values or in its bytes."""
    rows: list[Any] = copy.deepcopy(VALID[which](draw.random() < 0.5))
    for _ in range(draw.choice((0, 1, 1, 1, 2, 4))):
        found = list(places(rows))
        node, key = found[draw.randrange(len(found))]
        if draw.random() < 0.25 and node is not rows:
            del node[key]
        else:
            node[key] = copy.deepcopy(draw.choice(JUNK))
    raw = bytearray(encoded(rows, "streamed" in which))
    for _ in range(draw.choice((0, 0, 0, 1, 3))):
        at = draw.randrange(len(raw) + 1)
        match draw.randrange(5):
            case 0:
                raw[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                raw[at:at] = draw.choice((b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\0", b"\xef\xbb"))
            case 2:
                del raw[at:]
            case 3:
                del raw[at : at + draw.randrange(40)]
            case _:
                raw[at:at] = draw.choice((DEEP, b"[" * 3000, b'{"a":' * 500, b"9" * 5000, b"data:"))
    return bytes(raw)


def assert_only_typed_failures(count: int, seed: int) -> None:
    draw = random.Random(seed)
    kinds: set[str] = set()
    for which in WIRES:
        bodies = [spoiled(draw, which) for _ in range(count // len(WIRES))]
        for body, answer in zip(bodies, ask_for(which, bodies), strict=True):
            if isinstance(answer, Failure):
                kinds.add(answer.kind)
                blamed = answer.kind in ("refused", "empty")
                assert answer.blame == ("candidate" if blamed else "infrastructure"), body
            # what is journalled must be JSON and UTF-8, and what is charged be in bounds
            json.dumps(getattr(answer, "text", "")).encode()
            str(answer).encode()
            assert 0 <= answer.usage.usd < 0.01, body
            assert answer.usage.tokens_in >= 0, body
    assert {"server", "network"} <= kinds


@pytest.mark.slow
def test_of_spoiled_replies_only_typed_failures_come_out():
    assert_only_typed_failures(480, seed=27)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_of_ten_thousand_spoiled_replies_only_typed_failures_come_out(seed: int):
    assert_only_typed_failures(2_800, seed)


BAD = {
    "a byte that is not UTF-8": b'{"choices": [{"message": {"content": "\xff"}}]}',
    "nested 100,000 deep": b'{"choices": ' + DEEP + b"}",
    "nested 900 deep": b'{"error": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a list": b"[]",
    "nothing at all": b"",
    "half a character": b'{"choices": [{"message": {"content": "\\ud800"}}]}',
}


@pytest.mark.slow
@pytest.mark.parametrize("which", WIRES)
@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_a_reply_that_cannot_be_read_is_retried_and_then_recorded(which: str, body: bytes):
    raw = b"data: " + body + b"\n\n" if "streamed" in which else body
    with ModelServer(["yes"], faults=[Fault("body", body=raw)]) as server:
        reply = asyncio.run(client(which, server).complete(ASK))
        assert isinstance(reply, ModelReply)
        assert len(server.log) == 2
    with ModelServer(faults=lambda seen: Fault("body", body=raw)) as server:
        failure = asyncio.run(client(which, server, tries=3).complete(ASK))
        assert len(server.log) == 3
    assert isinstance(failure, Failure)
    assert (failure.blame, failure.tried) == ("infrastructure", True)
    assert failure.kind in ("server", "network")


def with_message(**message: Any) -> dict[str, Any]:
    return chat_reply(**message)


def with_choice(**choice: Any) -> dict[str, Any]:
    body = chat_reply()
    body["choices"][0] |= choice
    return body


BREACHES: dict[str, dict[str, Any]] = {
    "content is a number": with_message(content=5),
    "content is an object": with_message(content={}),
    "content is a list of texts": with_message(content=["x"]),
    "a part of content is no text": with_message(content=[{"type": "text", "text": 5}]),
    "the message is a text": with_choice(message="x"),
    "the message is empty": with_choice(message={}),
    "there is no message": with_choice(message=None),
    "tool calls are a text": with_message(tool_calls="x"),
    "a tool call is a text": with_message(tool_calls=["x"]),
    "a tool call has no name": with_message(tool_calls=[{"id": "1", "function": {}}]),
    "arguments are a number": with_message(
        tool_calls=[{"id": "1", "function": {"name": "weather", "arguments": 5}}]
    ),
    "the refusal is a number": with_message(content=None, refusal=5),
    "the reason to stop is a number": with_choice(finish_reason=5),
    "the reason to stop is an error": with_message(content="") | with_choice(finish_reason="error"),
    "choices are a text": {"choices": "x"},
    "a choice is a text": {"choices": ["x"]},
}
ANTHROPIC_BREACHES: dict[str, dict[str, Any]] = {
    "content is a number": {**anthropic_reply(), "content": 5},
    "content is a text": {**anthropic_reply(), "content": "x"},
    "content is missing": {"type": "message", "stop_reason": "end_turn"},
    "a block is a text": {**anthropic_reply(), "content": ["x"]},
    "a text is a number": {**anthropic_reply(), "content": [{"type": "text", "text": 5}]},
    "a text is missing": {**anthropic_reply(), "content": [{"type": "text"}]},
    "a tool has no name": anthropic_reply({"type": "tool_use", "id": "1", "input": {}}),
    "an input is a text": anthropic_reply({**USE, "input": "x"}),
    "the reason to stop is a number": {**anthropic_reply(), "stop_reason": 5},
}


def chunk(**delta: Any) -> list[dict[str, Any]]:
    return [{"choices": [{"delta": delta}]}, *chat_chunks()]


STREAMED_BREACHES: dict[str, list[dict[str, Any]]] = {
    "content is a number": chunk(content=5),
    "tool calls are a text": chunk(tool_calls="x"),
    "a name is a number": chunk(tool_calls=[{"index": 0, "function": {"name": 5}}]),
    "no name ever comes": chunk(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
    "an index is a text": chunk(tool_calls=[{"index": "x", **CALL} | {"index": "x"}]),
    "the delta is a text": [{"choices": [{"delta": "x"}]}, *chat_chunks()],
    "the reason to stop is an error": [{"choices": [{"delta": {}, "finish_reason": "error"}]}],
}
DELTA = {"type": "content_block_delta", "index": 0}
ANTHROPIC_STREAMED_BREACHES: dict[str, list[dict[str, Any]]] = {
    "a text is a number": [
        *anthropic_events()[:2],
        {**DELTA, "delta": {"type": "text_delta", "text": 5}},
        *anthropic_events()[2:],
    ],
    "a piece without its block": [
        {**DELTA, "delta": {"type": "text_delta", "text": "x"}},
        *anthropic_events(),
    ],
    "a delta is a text": [
        *anthropic_events()[:2],
        {**DELTA, "delta": "x"},
        *anthropic_events()[2:],
    ],
    "a block is a text": [
        {"type": "content_block_start", "index": 0, "content_block": "x"},
        *anthropic_events(),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "breaches"),
    [
        ("openai", {name: [body] for name, body in BREACHES.items()}),
        ("openai, streamed", STREAMED_BREACHES),
        ("anthropic", {name: [body] for name, body in ANTHROPIC_BREACHES.items()}),
        ("anthropic, streamed", ANTHROPIC_STREAMED_BREACHES),
    ],
    ids=WIRES,
)
def test_a_breach_of_protocol_is_never_the_candidates_fault(
    which: str, breaches: dict[str, list[dict[str, Any]]]
):
    bodies = [encoded(rows, "streamed" in which) for rows in breaches.values()]
    for name, answer in zip(breaches, ask_for(which, bodies), strict=True):
        assert isinstance(answer, Failure), name
        assert (answer.kind, answer.blame) == ("server", "infrastructure"), name


@pytest.mark.slow
@pytest.mark.parametrize("which", WIRES)
def test_what_the_others_are_made_from_is_a_reply(which: str):
    bodies = [encoded(VALID[which](call), "streamed" in which) for call in (False, True)]
    plain, called = ask_for(which, bodies)
    assert isinstance(plain, ModelReply)
    assert plain.text.startswith("y")
    assert (plain.usage.tokens_out, plain.usage.tokens_cached) == (3, 2)
    assert isinstance(called, ModelReply)
    assert [call.name for call in called.tool_calls] == ["weather"]
    assert json.loads(called.tool_calls[0].arguments) == {"at": 1}


@pytest.mark.slow
def test_arguments_that_are_sent_as_an_object_are_taken():
    call = {"id": "t", "function": {"name": "weather", "arguments": {"at": 1}}}
    (answer,) = ask_for("openai", [json.dumps(chat_reply(tool_calls=[call])).encode()])
    assert isinstance(answer, ModelReply)
    assert answer.tool_calls[0].arguments == '{"at":1}'


def usage_of(which: str, tokens_in: Any, tokens_out: Any, cached: Any = 0) -> bytes:
    if which == "openai":
        usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        body = chat_reply() | {
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}}
        }
    else:
        usage = {"input_tokens": tokens_in, "output_tokens": tokens_out}
        body = anthropic_reply() | {"usage": {**usage, "cache_read_input_tokens": cached}}
    return json.dumps(body).encode()


ODD: tuple[tuple[Any, ...], ...] = (
    *((-5, 3), (9, -3), (10**7, 3), (9, 10**7), (10**25, 3), ("9", 3), (9.5, 3), (9, True)),
    *((9, 0), (0, 3), (9, None), ([], {}), (9, 200), (9, 3, -1), (9, 3, "x")),
)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["openai", "anthropic"])
def test_usage_that_cannot_be_true_counts_as_missing(which: str, caplog: pytest.LogCaptureFixture):
    bodies = [usage_of(which, *odd) for odd in ODD]
    with caplog.at_level(logging.WARNING, "kept"):
        answers = ask_for(which, bodies)
    with ModelServer() as server:
        worst = client(which, server, price=PRICE).worst_usd(TOOLED)
    for odd, answer in zip(ODD, answers, strict=True):
        assert isinstance(answer, ModelReply)
        found = answer.usage
        assert (found.calls, found.tokens_in, found.tokens_out) == (1, 0, 0), odd
        assert found.usd == pytest.approx(worst), odd
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == 1
    assert "token counts that cannot be true" in warned[0]


@pytest.mark.slow
def test_without_a_limit_on_its_length_an_uncounted_reply_costs_its_bytes():
    (answer,) = ask_for("openai_compatible", [usage_of("openai", -1, 5)])
    assert answer.usage.usd > 0
    untold = ModelRequest((Message("user", "x"),))
    with ModelServer(faults=lambda seen: Fault("body", body=usage_of("openai", -1, 5))) as server:
        made = client("openai_compatible", server, price=PRICE)
        assert made.worst_usd(untold) is None
        answer = asyncio.run(made.complete(untold))
    assert answer.usage.usd == pytest.approx((made_bytes(server) * 3 + 3 * 15) / 1e6)


def made_bytes(server: ModelServer) -> int:
    return len(json.dumps(server.log[0].body, separators=(",", ":")).encode())


VECTORS: dict[str, Any] = {
    "data is a text": "x",
    "an item is a text": ["x", "y"],
    "too few": [{"index": 0, "embedding": [1.0]}],
    "a vector is a text": [{"index": 0, "embedding": "x"}, {"index": 1, "embedding": [1.0]}],
    "a vector has a text": [{"index": 0, "embedding": ["x"]}, {"index": 1, "embedding": [1.0]}],
    "an index twice": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [2.0]}],
    "an index too many": [{"index": 0, "embedding": [1.0]}, {"index": 7, "embedding": [2.0]}],
    "an index is a text": [{"index": "x", "embedding": [1.0]}, {"index": 1, "embedding": [2.0]}],
    "a number is too large": [{"embedding": [10**400]}, {"embedding": [2.0]}],
}


@pytest.mark.slow
@pytest.mark.parametrize("data", VECTORS.values(), ids=VECTORS)
def test_vectors_that_cannot_be_used_are_a_failure_of_the_server(data: Any):
    body = json.dumps({"data": data}).encode()
    with ModelServer(faults=lambda seen: Fault("body", body=body)) as server:
        made = HttpEmbedder(config("openai", server, tries=2, model="text-embedding-3-small"))
        failure = asyncio.run(made.embed(["one", "two"]))
        assert len(server.log) == 2
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("server", "infrastructure")


@pytest.mark.slow
def test_vectors_are_charged_at_their_worst_case_where_their_count_cannot_be_true():
    data = [{"index": n, "embedding": [1.0]} for n in (1, 0)]
    for tokens in (-5, 10**6, "x", 2.5):
        body = json.dumps({"data": data, "usage": {"prompt_tokens": tokens}}).encode()
        with ModelServer(faults=lambda seen, body=body: Fault("body", body=body)) as server:
            made = HttpEmbedder(config("openai", server, model="text-embedding-3-small"))
            answer = asyncio.run(made.embed(["one", "two"]))
        assert not isinstance(answer, Failure)
        assert answer.usage.usd == made.worst_usd(["one", "two"])


RAW = {
    "an error nested deep": (b"500 no", b"[" * 60_000),
    "an error nested 900 deep": (b"500 no", b'{"error": ' + b"[" * 900 + b"]" * 900 + b"}"),
    "an error that is no text": (b"500 no", b"\xff\xfe"),
    "an error that is a number": (b"500 no", b"5"),
    "a chunk that is none": (b"200 OK\r\ntransfer-encoding: chunked", b"zz\r\n{}"),
    "gzip that is none": (b"200 OK\r\ncontent-encoding: gzip", b"{}{}{}{}{}{}{}{}"),
    "a length that is none": (b"200 OK\r\ncontent-length: x", b"{}"),
    "fewer bytes than told": (b"200 OK\r\ncontent-length: 99", b"{}"),
    "a header that is none": (b"200 OK\r\n\0\xff", b"{}"),
    "a status that is none": (b"abc", b"{}"),
    "a status beyond all": (b"99999 OK", b"{}"),
    "a content type that is none": (b"200 OK\r\ncontent-type: ;;/\xff", b"{}"),
}


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_whatever_comes_over_the_wire_is_a_typed_failure(provider: str, stream: bool):
    for name, (head, body) in RAW.items():
        failure = asyncio.run(_answered_with(b"HTTP/1.1 " + head, body, provider, stream))
        assert isinstance(failure, Failure), name
        assert failure.kind in ("server", "network"), name
        assert failure.blame == "infrastructure", name


async def _answered_with(
    head: bytes, body: bytes, provider: str, stream: bool
) -> ModelReply | Failure:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        kind = b"" if b"content-type" in head else b"content-type: application/json\r\n"
        writer.write(head + b"\r\n" + kind + b"connection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made = ModelConfig(provider=provider, model="m", base_url=url, api_key="${KEPT_TEST_KEY}")
        return await HttpModel(replace(made, tries=1, stream=stream)).complete(ASK)
