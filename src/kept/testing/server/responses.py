"""OpenAI responses, as used by codex."""

import json
from collections.abc import Iterator
from typing import Any

from kept.core.llm import ModelReply
from kept.testing.server.chat import error
from kept.testing.server.script import Seen, id_of, pieces

__all__ = ["empty", "empty_stream", "error", "stream", "whole"]


def whole(seen: Seen, reply: ModelReply) -> dict[str, Any]:
    """Complete reply as one JSON object."""
    cut = reply.finish == "length"
    return _envelope(seen) | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": list(_output(seen, reply)),
        "usage": _usage(reply),
    }


def empty(seen: Seen) -> dict[str, Any]:
    """A reply without output."""
    return _envelope(seen) | {"status": "completed", "output": []}


def stream(seen: Seen, reply: ModelReply) -> Iterator[bytes]:
    """Reply as a stream of numbered events."""
    events = [_started(seen), *_items(seen, reply), _ended(whole(seen, reply))]
    yield from _numbered(events)


def empty_stream(seen: Seen) -> Iterator[bytes]:
    """A stream without output."""
    yield from _numbered([_started(seen), _ended(empty(seen))])


def _started(seen: Seen) -> dict[str, Any]:
    made: dict[str, Any] = {"status": "in_progress", "output": []}
    begun = _envelope(seen) | made
    return {"type": "response.created", "response": begun}


def _ended(response: dict[str, Any]) -> dict[str, Any]:
    return {"type": f"response.{response['status']}", "response": response}


def _items(seen: Seen, reply: ModelReply) -> Iterator[dict[str, Any]]:
    for n, item in enumerate(_output(seen, reply)):
        at = {"output_index": n, "item_id": item["id"]}
        bare: dict[str, Any] = {"content": []} if item["type"] == "message" else {_given(item): ""}
        begun = item | {"status": "in_progress"} | bare
        yield {"type": "response.output_item.added", "output_index": n, "item": begun}
        yield from _message(item, at) if item["type"] == "message" else _call(item, at)
        yield {"type": "response.output_item.done", "output_index": n, "item": item}


def _message(item: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    (part,) = item["content"]
    here = at | {"content_index": 0}
    key = "refusal" if part["type"] == "refusal" else "text"
    name = "response.refusal" if key == "refusal" else "response.output_text"
    yield {"type": "response.content_part.added", **here, "part": part | {key: ""}}
    for piece in pieces(part[key]):
        yield {"type": f"{name}.delta", **here, "delta": piece}
    yield {"type": f"{name}.done", **here, key: part[key]}
    yield {"type": "response.content_part.done", **here, "part": part}


def _call(item: dict[str, Any], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    given = _given(item)
    custom = item["type"] == "custom_tool_call"
    name = "response.custom_tool_call_input" if custom else "response.function_call_arguments"
    for piece in pieces(item[given]):
        yield {"type": f"{name}.delta", **at, "delta": piece}
    yield {"type": f"{name}.done", **at, given: item[given]}


def _given(item: dict[str, Any]) -> str:
    return "input" if item["type"] == "custom_tool_call" else "arguments"


def _output(seen: Seen, reply: ModelReply) -> Iterator[dict[str, Any]]:
    if reply.text or not reply.tool_calls:
        refused = {"type": "refusal", "refusal": reply.text}
        said: dict[str, Any] = {"type": "output_text", "text": reply.text, "annotations": []}
        content = [refused if reply.finish == "refused" else said]
        message = {"type": "message", "id": id_of(seen, "msg_"), "status": "completed"}
        yield message | {"role": "assistant", "content": content}
    for n, call in enumerate(reply.tool_calls):
        id_ = id_of(seen, f"fc_{n}")
        # a tool with free-text input is called by another kind of item
        custom = seen.tools.get(call.name) == "custom"
        kind, given = ("custom_tool_call", "input") if custom else ("function_call", "arguments")
        item = {"type": kind, "id": id_, "call_id": call.id, "name": call.name}
        yield item | {given: call.arguments, "status": "completed"}


def _usage(reply: ModelReply) -> dict[str, Any]:
    used = reply.usage
    return {
        "input_tokens": used.tokens_in,
        "input_tokens_details": {"cached_tokens": used.tokens_cached},
        "output_tokens": used.tokens_out,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used.tokens_in + used.tokens_out,
    }


def _envelope(seen: Seen) -> dict[str, Any]:
    return {
        "id": id_of(seen, "resp_"),
        "object": "response",
        "created_at": 1700000000,
        "model": seen.model,
        "error": None,
        "tools": [],
        "parallel_tool_calls": True,
    }


def _numbered(events: list[dict[str, Any]]) -> Iterator[bytes]:
    for number, event in enumerate(events):
        data = json.dumps(event | {"sequence_number": number})
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()
