"""The protocol of Anthropic's messages."""

import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from kept.core.model import Finish, Message, ModelRequest, ToolCall
from kept.models.speech import Habits, Heard, Taken, mapping, maps, number

_FINISH: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "refused",
}
WORTH_KEEPING = 4_000
"""Characters from which a beginning is marked: Anthropic caches 1,024 tokens or more."""

MARK = {"type": "ephemeral"}


class Messages:
    """Anthropic messages."""

    def body(self, model: str, request: ModelRequest, habits: Habits) -> dict[str, Any]:
        """A request; what is the same in every call stands first, and is marked to be cached."""
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
            body["system"] = [_kept(system)]
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
        """A reply; None where there is nothing in it."""
        blocks = maps(body.get("content"))
        text = "".join(str(b.get("text") or "") for b in blocks if b.get("type") == "text")
        calls = tuple(_call(block) for block in blocks if block.get("type") == "tool_use")
        finish = _FINISH.get(str(body.get("stop_reason")), "stop")
        taken = _taken(mapping(body.get("usage")))
        if not text and not calls and not taken.tokens_out and finish == "stop":
            return None
        refusal = (text or "it would not answer") if finish == "refused" else ""
        end: Finish = "tool_calls" if calls else finish
        return Heard(text, end, calls, taken, refusal)

    async def gather(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """The whole reply of a stream; None when the stream ended before it."""
        blocks: dict[int, dict[str, Any]] = {}
        whole: dict[str, Any] = {}
        usage: dict[str, Any] = {}
        done = False
        async for event in events:
            index = number(event.get("index"))
            match event.get("type"):
                case "message_start":
                    usage |= mapping(mapping(event.get("message")).get("usage"))
                case "content_block_start":
                    blocks[index] = mapping(event.get("content_block")) | {"json": ""}
                case "content_block_delta":
                    _add(blocks.setdefault(index, {"json": ""}), mapping(event.get("delta")))
                case "message_delta":
                    whole |= mapping(event.get("delta"))
                    usage |= mapping(event.get("usage"))
                case "error":
                    return event
                case "message_stop":
                    done = True
                case _:
                    pass
        if not done:
            return None
        return {**whole, "content": [blocks[n] for n in sorted(blocks)], "usage": usage}


def _add(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    if delta.get("type") == "text_delta":
        block["text"] = str(block.get("text") or "") + str(delta.get("text") or "")
    elif delta.get("type") == "input_json_delta":
        block["json"] += str(delta.get("partial_json") or "")


def _kept(text: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": text}
    if len(text) >= WORTH_KEEPING:
        block["cache_control"] = MARK
    return block


def _turns(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Turns of user and assistant: what tools gave back is said by the user, all of it at once."""
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
        # a conversation that grows: the next turn begins with all of this
        turns[-1]["content"][-1]["cache_control"] = MARK
    return turns


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.answers, "content": message.text}
        return [result]
    blocks: list[dict[str, Any]] = [
        _image(image.media_type, image.data) for image in message.images
    ]
    if message.text:
        blocks.append({"type": "text", "text": message.text})
    blocks += [
        {"type": "tool_use", "id": c.id, "name": c.name, "input": _given(c.arguments)}
        for c in message.tool_calls
    ]
    return blocks


def _given(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        # the protocol has room for an object only, and the tool has said what was wrong with it
        return {"unreadable": arguments}


def _image(media_type: str, data: bytes) -> dict[str, Any]:
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}
    return {"type": "image", "source": source}


def _call(block: Mapping[str, Any]) -> ToolCall:
    given = block.get("json") or msgspec.json.encode(block.get("input") or {}).decode()
    return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), str(given))


def _taken(usage: Mapping[str, Any]) -> Taken:
    cached = number(usage.get("cache_read_input_tokens"))
    written = number(usage.get("cache_creation_input_tokens"))
    fresh = number(usage.get("input_tokens"))
    return Taken(fresh + cached + written, number(usage.get("output_tokens")), cached, written)
