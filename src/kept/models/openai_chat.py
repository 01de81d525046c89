"""Wire protocol of OpenAI's chat completions, which most model servers support."""

import base64
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, json

from kept.core.llm import Finish, Message, ModelRequest, ToolCall, parts_of
from kept.models.protocol import Habits, Heard, Taken, is_count, mapping

_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "refused",
}


class _Part(Struct):
    text: str | None = None


_Content = str | list[_Part] | None
_Arguments = str | dict[str, Any] | None
"""JSON text; some servers send the object itself."""


class _Function(Struct):
    name: Annotated[str, Meta(min_length=1)]
    arguments: _Arguments = None


class _Call(Struct):
    function: _Function
    id: str | None = None


class _Message(Struct):
    content: _Content | UnsetType = UNSET
    refusal: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(Struct):
    message: _Message
    finish_reason: str | None = None


class _Reply(Struct):
    """Fields that are read of a reply; all others are ignored."""

    choices: list[_Choice] | None = None


class _FunctionPiece(Struct):
    name: str | None = None
    arguments: _Arguments = None


class _CallPiece(Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionPiece | None = None


class _Delta(Struct):
    content: _Content = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _ChoicePiece(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(Struct):
    """Fields that are read of a stream event."""

    choices: list[_ChoicePiece] | None = None


class Chat:
    """OpenAI chat completions."""

    def body(self, model: str, request: ModelRequest, habits: Habits) -> dict[str, Any]:
        """Body of a request."""
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
        """Parsed reply; None if it is empty.

        Raises `msgspec.ValidationError` for a body that breaks the protocol.
        """
        choices = convert(body, _Reply).choices
        if not choices:
            return None
        message = choices[0].message
        if choices[0].finish_reason == "error":
            # sent by gateways whose server failed: the reply is incomplete
            raise ValidationError("`finish_reason` is `error` - at `$.choices[0]`")
        calls = tuple(
            ToolCall(c.id or "", c.function.name, _arguments(c.function.arguments) or "{}")
            for c in message.tool_calls or ()
        )
        if message.content is UNSET and not calls and not message.refusal:
            raise ValidationError("Object missing required field `content` - at `$.choices[0]`")
        finish = _FINISH.get(choices[0].finish_reason or "", "stop")
        refusal = message.refusal or ""
        if finish == "refused":
            refusal = refusal or "its filter of contents stopped the reply"
        end: Finish = "tool_calls" if calls else finish
        text = "" if message.content is UNSET else _text(message.content)
        usage = mapping(body.get("usage"))
        return Heard(text, end, calls, _taken(usage), refusal, usage)

    def taken(self, body: Mapping[str, Any]) -> Taken | None:
        """Token counts of a reply; None if they are missing or impossible."""
        return _taken(mapping(body.get("usage")))

    async def gather(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """Body of the complete reply, from stream events; None if the stream ended too early.

        Raises `msgspec.ValidationError` for an event that breaks the protocol.
        """
        texts: dict[str, list[str]] = {"content": [], "refusal": []}
        calls: dict[int, dict[str, Any]] = {}
        finish, usage, begun = None, {}, False
        async for event in events:
            if "error" in event:
                return event
            usage = mapping(event.get("usage")) or usage
            for choice in (convert(event, _Chunk).choices or ())[:1]:
                begun = True
                finish = choice.finish_reason or finish
                delta = choice.delta or _Delta()
                texts["content"].append(_text(delta.content))
                texts["refusal"].append(delta.refusal or "")
                for piece in delta.tool_calls or ():
                    _add_call(calls, piece)
        # begun but not finished: the stream was cut
        if begun and finish is None:
            return None
        message = {name: "".join(pieces) or None for name, pieces in texts.items()}
        message |= {"tool_calls": [calls[n] for n in sorted(calls)]}
        choice = {"message": message, "finish_reason": finish}
        return {"choices": [choice] if begun else [], "usage": usage}


def strict(schema: object) -> bool:
    """True if a schema meets OpenAI's conditions for strict enforcement."""
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
        behind = (image for image in message.images if image.at is None)
        content = []
        for part in (*parts_of(message), *behind):
            if isinstance(part, str):
                content.append({"type": "text", "text": part})
                continue
            url = f"data:{part.media_type};base64,{base64.b64encode(part.data).decode()}"
            detail = {"detail": part.detail} if part.detail else {}
            content.append({"type": "image_url", "image_url": {"url": url, **detail}})
    told: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        told["content"] = content or None
        told["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    return told


def _text(content: _Content) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text or "" for part in content)


def _arguments(given: _Arguments) -> str:
    return json.encode(given).decode() if isinstance(given, dict) else given or ""


def _add_call(calls: dict[int, dict[str, Any]], piece: _CallPiece) -> None:
    # pieces of one call share its index; some servers leave out the index of a single call
    whole = calls.setdefault(
        piece.index or 0, {"id": "", "function": {"name": "", "arguments": ""}}
    )
    whole["id"] = piece.id or whole["id"]
    if piece.function is not None:
        whole["function"]["name"] += piece.function.name or ""
        whole["function"]["arguments"] += _arguments(piece.function.arguments)


def _taken(usage: Mapping[str, Any]) -> Taken | None:
    asked, said = usage.get("prompt_tokens"), usage.get("completion_tokens")
    cached = mapping(usage.get("prompt_tokens_details")).get("cached_tokens") or 0
    if not (is_count(asked) and is_count(said) and is_count(cached)):
        return None
    return Taken(asked, said, cached)
