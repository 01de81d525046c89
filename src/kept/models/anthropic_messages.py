"""Wire protocol of Anthropic's Messages API."""

import base64
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, convert

from kept.core.llm import Finish, Image, Message, ModelRequest, ToolCall, parts_of
from kept.models.protocol import Habits, Heard, Taken, is_count, mapping

_FINISH: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refused",
}
WORTH_KEEPING = 4_000
"""Minimum characters of a prefix to mark for caching: Anthropic caches 1,024 tokens or more."""

MARK = {"type": "ephemeral"}


class _Reply(Struct):
    """Fields that are read of a reply; only text and tool-use blocks are used."""

    content: list[dict[str, Any]]
    stop_reason: str | None = None


class _Text(Struct):
    text: str


class _ToolUse(Struct):
    name: Annotated[str, Meta(min_length=1)]
    id: str
    input: dict[str, Any] = {}
    json: str = ""
    """Input of a streamed tool call, collected piece by piece."""


class _BlockStart(Struct):
    index: int
    content_block: dict[str, Any]


class _BlockDelta(Struct):
    index: int
    delta: dict[str, Any]


class _Json(Struct):
    partial_json: str


class _MessageDelta(Struct):
    delta: dict[str, Any]


class Messages:
    """Anthropic messages."""

    def body(self, model: str, request: ModelRequest, habits: Habits) -> dict[str, Any]:
        """Body of a request; parts that are equal in every call come first, marked for caching."""
        system = "\n\n".join(m.text for m in request.messages if m.role == "system")
        said: dict[str, Any] = {
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_sequences": list(request.stop) or None,
        }
        body: dict[str, Any] = {"model": model, "max_tokens": request.max_tokens}
        body |= {name: value for name, value in said.items() if value is not None}
        if request.tools:
            body["tools"] = [
                {"name": t.name, "description": t.description, "input_schema": dict(t.parameters)}
                for t in request.tools
            ]
        if system:
            block: dict[str, Any] = {"type": "text", "text": system}
            if len(system) >= WORTH_KEEPING:
                block["cache_control"] = MARK
            body["system"] = [block]
        body["messages"] = _turns(request.messages)
        output: dict[str, Any] = {}
        if request.effort is not None:
            output["effort"] = "low" if request.effort == "minimal" else request.effort
        if request.schema and habits.schema:
            output["format"] = {"type": "json_schema", "schema": dict(request.schema)}
        if output:
            body["output_config"] = output
        return body

    def heard(self, body: Mapping[str, Any]) -> Heard | None:
        """Parsed reply; None if it is empty.

        Raises `msgspec.ValidationError` for a body that breaks the protocol.
        """
        reply = convert(body, _Reply)
        blocks = reply.content
        text = "".join(convert(b, _Text).text for b in blocks if b.get("type") == "text")
        uses = (convert(b, _ToolUse) for b in blocks if b.get("type") == "tool_use")
        calls = tuple(
            ToolCall(use.id, use.name, use.json or msgspec.json.encode(use.input).decode())
            for use in uses
        )
        finish = _FINISH.get(reply.stop_reason or "", "stop")
        usage = mapping(body.get("usage"))
        taken = _taken(usage)
        silent = taken is None or not taken.tokens_out
        if not text and not calls and silent and finish == "stop":
            return None
        refusal = (text or "it would not answer") if finish == "refused" else ""
        end: Finish = "tool_calls" if calls else finish
        return Heard(text, end, calls, taken, refusal, usage)

    def taken(self, body: Mapping[str, Any]) -> Taken | None:
        """Token counts of a reply; None if they are missing or impossible."""
        return _taken(mapping(body.get("usage")))

    async def gather(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """Body of the complete reply, from stream events; None if the stream ended too early.

        Raises `msgspec.ValidationError` for an event that breaks the protocol.
        """
        blocks: dict[int, dict[str, Any]] = {}
        whole: dict[str, Any] = {}
        usage: dict[str, Any] = {}
        done = False
        async for event in events:
            match event.get("type"):
                case "message_start":
                    usage |= mapping(mapping(event.get("message")).get("usage"))
                case "content_block_start":
                    start = convert(event, _BlockStart)
                    blocks[start.index] = start.content_block | {"json": ""}
                case "content_block_delta":
                    piece = convert(event, _BlockDelta)
                    block, delta = blocks.get(piece.index, {}), piece.delta
                    # `convert` raises if the block is missing or of another type, which breaks the
                    # protocol
                    if delta.get("type") == "text_delta":
                        block["text"] = convert(block, _Text).text + convert(delta, _Text).text
                    elif delta.get("type") == "input_json_delta":
                        block["json"] = block.get("json", "") + convert(delta, _Json).partial_json
                case "message_delta":
                    whole |= convert(event, _MessageDelta).delta
                    usage |= mapping(event.get("usage"))
                case "error":
                    return event if event.get("error") else {"error": "it does not say why"}
                case "message_stop":
                    done = True
                case _:
                    pass
        if not done:
            return None
        return {**whole, "content": [blocks[n] for n in sorted(blocks)], "usage": usage}


def _turns(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Alternating turns of user and assistant; tool results are user turns, merged into one."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message))
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if len(turns) > 1 and turns[-1]["content"]:
        # mark the end of a growing conversation: the next request starts with all of this
        turns[-1]["content"][-1]["cache_control"] = MARK
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.answers, "content": message.text}
        return [result]
    before = (image for image in message.images if image.at is None)
    blocks = [_block(part) for part in (*before, *parts_of(message))]
    for c in message.tool_calls:
        try:
            given = msgspec.json.decode(c.arguments or "{}", type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            # the protocol allows only objects, and the tool has reported the error already
            given = {"unreadable": c.arguments}
        blocks.append({"type": "tool_use", "id": c.id, "name": c.name, "input": given})
    return blocks


def _block(part: str | Image) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    data = base64.b64encode(part.data).decode()
    return {
        "type": "image",
        "source": {"type": "base64", "media_type": part.media_type, "data": data},
    }


def _taken(usage: Mapping[str, Any]) -> Taken | None:
    fresh, said = usage.get("input_tokens"), usage.get("output_tokens")
    cached = usage.get("cache_read_input_tokens") or 0
    # `input_tokens` excludes cached and written tokens, while `Taken.tokens_in` includes them
    written = usage.get("cache_creation_input_tokens") or 0
    if not (is_count(fresh) and is_count(said) and is_count(cached) and is_count(written)):
        return None
    return Taken(fresh + cached + written, said, cached, written)
