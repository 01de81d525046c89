"""OpenAI chat completions."""

import json
from collections.abc import Iterator
from typing import Any

from kept.core.llm import ModelReply
from kept.testing.server.script import Seen, id_of, pieces

_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool_calls"}


def whole(seen: Seen, reply: ModelReply) -> dict[str, Any]:
    """Complete reply as one JSON object."""
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "refusal": None}
    if reply.finish == "refused":
        message |= {"content": None, "refusal": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = _calls(reply)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
    made = {"object": "chat.completion", "choices": [choice], "usage": usage(reply)}
    return _envelope(seen) | made


def empty(seen: Seen) -> dict[str, Any]:
    """A reply without choices."""
    return _envelope(seen) | {"object": "chat.completion", "choices": []}


def stream(seen: Seen, reply: ModelReply) -> Iterator[bytes]:
    """Reply as a stream of events."""
    yield _chunk(seen, {"role": "assistant", "content": ""})
    field = "refusal" if reply.finish == "refused" else "content"
    for piece in pieces(reply.text):
        yield _chunk(seen, {field: piece})
    for n, call in enumerate(_calls(reply)):
        head = call["function"] | {"arguments": ""}
        yield _chunk(seen, {"tool_calls": [{"index": n, **call, "function": head}]})
        for piece in pieces(call["function"]["arguments"]):
            part = {"index": n, "function": {"arguments": piece}}
            yield _chunk(seen, {"tool_calls": [part]})
    yield _chunk(seen, {}, _finish(reply))
    options: dict[str, Any] = seen.body.get("stream_options") or {}
    if options.get("include_usage"):
        made: dict[str, Any] = {
            "object": "chat.completion.chunk",
            "choices": [],
            "usage": usage(reply),
        }
        yield _event(_envelope(seen) | made)
    yield b"data: [DONE]\n\n"


def empty_stream(seen: Seen) -> Iterator[bytes]:
    """A stream without choices."""
    yield _event(_envelope(seen) | {"object": "chat.completion.chunk", "choices": []})
    yield b"data: [DONE]\n\n"


def error(message: str, status: int, code: str | None) -> dict[str, Any]:
    """Error body."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def usage(reply: ModelReply) -> dict[str, Any]:
    """Token counts, with cached tokens as a detail."""
    used = reply.usage
    return {
        "prompt_tokens": used.tokens_in,
        "completion_tokens": used.tokens_out,
        "total_tokens": used.tokens_in + used.tokens_out,
        "prompt_tokens_details": {"cached_tokens": used.tokens_cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _calls(reply: ModelReply) -> list[dict[str, Any]]:
    return [
        {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
        for c in reply.tool_calls
    ]


def _finish(reply: ModelReply) -> str:
    # OpenAI ends a refusal like any other reply, and marks it by a field of its own
    return "tool_calls" if reply.tool_calls else _FINISH.get(reply.finish, "stop")


def _envelope(seen: Seen) -> dict[str, Any]:
    return {"id": id_of(seen, "chatcmpl-"), "created": 1700000000, "model": seen.model}


def _chunk(seen: Seen, delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _event(_envelope(seen) | {"object": "chat.completion.chunk", "choices": [choice]})


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()
