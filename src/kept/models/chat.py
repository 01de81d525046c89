"""The protocol of OpenAI's chat completions, which most servers of models speak."""

import base64
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kept.core.model import Finish, Message, ModelRequest, ToolCall
from kept.models.speech import Habits, Heard, Taken, mapping, maps, number

_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refused",
}


class Chat:
    """OpenAI chat completions."""

    def body(self, model: str, request: ModelRequest, habits: Habits) -> dict[str, Any]:
        """A request."""
        limit = "max_tokens" if habits.old_limit else "max_completion_tokens"
        said: tuple[tuple[str, Any], ...] = (
            ("temperature", request.temperature),
            ("top_p", request.top_p),
            (limit, request.max_tokens),
            ("seed", request.seed if habits.seed else None),
            ("stop", list(request.stop) or None),
            ("reasoning_effort", request.effort),
        )
        body: dict[str, Any] = {"model": model, "messages": [_message(m) for m in request.messages]}
        for name, value in said:
            if value is not None:
                body[name] = value
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": dict(tool.parameters),
                    },
                }
                for tool in request.tools
            ]
        if request.schema and habits.schema:
            named = {
                "name": "reply",
                "schema": dict(request.schema),
                "strict": strict(request.schema),
            }
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body

    def heard(self, body: Mapping[str, Any]) -> Heard | None:
        """A reply; None where there is nothing in it."""
        choices = maps(body.get("choices"))
        if not choices:
            return None
        message = mapping(choices[0].get("message"))
        wanted = message.get("tool_calls")
        calls = tuple(_call(call) for call in maps(wanted)) if wanted else ()
        text = _text(message.get("content"))
        finish = _FINISH.get(str(choices[0].get("finish_reason")), "stop")
        refusal = str(message.get("refusal") or "")
        if finish == "refused":
            refusal = refusal or "its filter of contents stopped the reply"
        end: Finish = "tool_calls" if calls else finish
        return Heard(text, end, calls, _taken(mapping(body.get("usage"))), refusal)

    async def gather(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """The whole reply of a stream; None when the stream ended before it."""
        texts: dict[str, list[str]] = {"content": [], "refusal": []}
        calls: dict[int, dict[str, Any]] = {}
        finish, usage, begun = None, {}, False
        async for event in events:
            if "error" in event:
                return event
            usage = mapping(event.get("usage")) or usage
            for choice in maps(event.get("choices"))[:1]:
                begun = True
                delta = mapping(choice.get("delta"))
                finish = choice.get("finish_reason") or finish
                for name, pieces in texts.items():
                    if isinstance(delta.get(name), str):
                        pieces.append(delta[name])
                for part in maps(delta.get("tool_calls")):
                    _add_call(calls, part)
        if begun and finish is None:
            return None
        message = {name: "".join(pieces) or None for name, pieces in texts.items()}
        message |= {"tool_calls": [calls[n] for n in sorted(calls)]}
        choice = {"message": message, "finish_reason": finish}
        return {"choices": [choice] if begun else [], "usage": usage}


def strict(schema: object) -> bool:
    """Whether a schema keeps OpenAI's rules for being enforced to the letter."""
    if isinstance(schema, Mapping):
        known = mapping(dict(schema))  # pyright: ignore[reportUnknownArgumentType] # any document
        if known.get("type") == "object" or "properties" in known:
            properties = mapping(known.get("properties"))
            if known.get("additionalProperties") is not False:
                return False
            if set(properties) != set(known.get("required") or ()):
                return False
        return all(strict(value) for value in known.values())
    if isinstance(schema, list | tuple):
        return all(strict(item) for item in schema)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] # any document
    return True


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.answers, "content": message.text}
    content: Any = message.text
    if message.images:
        content = [{"type": "text", "text": message.text}] if message.text else []
        content += [
            {"type": "image_url", "image_url": {"url": _data_url(image.media_type, image.data)}}
            for image in message.images
        ]
    told: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        told["content"] = content or None
        told["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    return told


def _data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text") or "") for part in maps(content))


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = mapping(call.get("function"))
    arguments = str(function.get("arguments") or "{}")
    return ToolCall(str(call.get("id") or ""), str(function.get("name") or ""), arguments)


def _add_call(calls: dict[int, dict[str, Any]], part: Mapping[str, Any]) -> None:
    whole = calls.setdefault(
        number(part.get("index")), {"id": "", "function": {"name": "", "arguments": ""}}
    )
    whole["id"] = part.get("id") or whole["id"]
    for name, piece in mapping(part.get("function")).items():
        if isinstance(piece, str):
            whole["function"][name] = whole["function"].get(name, "") + piece


def _taken(usage: Mapping[str, Any]) -> Taken:
    details = usage.get("prompt_tokens_details")
    return Taken(
        number(usage.get("prompt_tokens")),
        number(usage.get("completion_tokens")),
        number(mapping(details).get("cached_tokens")) if details else 0,
    )
