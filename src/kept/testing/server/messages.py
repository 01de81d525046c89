"""Anthropic messages."""

import json
from collections.abc import Iterator
from typing import Any

from kept.core.llm import ModelReply, ToolCall
from kept.testing.server.script import Seen, id_of, pieces

_FINISH = {"stop": "end_turn", "length": "max_tokens", "refused": "refusal"}


def whole(seen: Seen, reply: ModelReply) -> dict[str, Any]:
    """Complete reply as one JSON object."""
    content: list[dict[str, Any]] = []
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [_tool(call, json.loads(call.arguments or "{}")) for call in reply.tool_calls]
    end = {"content": content, "stop_reason": _finish(reply), "usage": usage(reply)}
    return _envelope(seen) | end


def empty(seen: Seen) -> dict[str, Any]:
    """A reply without content."""
    used = {"input_tokens": 1, "output_tokens": 0}
    return _envelope(seen) | {"content": [], "stop_reason": "end_turn", "usage": used}


def stream(seen: Seen, reply: ModelReply) -> Iterator[bytes]:
    """Reply as a stream of events."""
    yield _event("message_start", message=_begun(seen, usage(reply) | {"output_tokens": 1}))
    yield _event("ping")
    index = 0
    if reply.text:
        yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        for piece in pieces(reply.text):
            yield _event(
                "content_block_delta", index=0, delta={"type": "text_delta", "text": piece}
            )
        yield _event("content_block_stop", index=0)
        index = 1
    for n, call in enumerate(reply.tool_calls, index):
        yield _event("content_block_start", index=n, content_block=_tool(call, {}))
        for piece in pieces(call.arguments):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield _event("content_block_delta", index=n, delta=delta)
        yield _event("content_block_stop", index=n)
    yield from _end(_finish(reply), reply.usage.tokens_out)


def empty_stream(seen: Seen) -> Iterator[bytes]:
    """A stream without content."""
    used = {"input_tokens": 1, "output_tokens": 0}
    yield _event("message_start", message=_begun(seen, used))
    yield from _end("end_turn", 0)


def error(message: str, status: int, code: str | None) -> dict[str, Any]:
    """Error body."""
    names = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    names |= {429: "rate_limit_error", 529: "overloaded_error"}
    usual = "api_error" if status >= 500 else "invalid_request_error"
    kind = code or names.get(status, usual)
    return {"type": "error", "error": {"type": kind, "message": message}}


def usage(reply: ModelReply) -> dict[str, Any]:
    """Token counts; Anthropic counts cached input tokens separately."""
    used = reply.usage
    return {
        "input_tokens": used.tokens_in - used.tokens_cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": used.tokens_cached,
        "output_tokens": used.tokens_out,
    }


def _tool(call: ToolCall, given: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given}


def _finish(reply: ModelReply) -> str:
    return "tool_use" if reply.tool_calls else _FINISH.get(reply.finish, "end_turn")


def _envelope(seen: Seen) -> dict[str, Any]:
    return {
        "id": id_of(seen, "msg_"),
        "type": "message",
        "role": "assistant",
        "model": seen.model,
        "stop_reason": None,
        "stop_sequence": None,
    }


def _begun(seen: Seen, used: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"content": [], "usage": used}
    return _envelope(seen) | made


def _end(reason: str, tokens: int) -> Iterator[bytes]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage={"output_tokens": tokens})
    yield _event("message_stop")


def _event(kind: str, **data: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()
