"""A model behind the OpenAI chat protocol, on loopback: for programs that speak nothing else.

It listens on 127.0.0.1 alone and has no key. Web pages cannot use it: a request must be JSON and
name a loopback host, which a page of another origin cannot do without being asked first.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from aiohttp import web

from kept.core.model import Message, ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure

HOST = "127.0.0.1"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LARGEST = 16 * 1024 * 1024
"""Bytes of a request."""


async def start_server(model: Model, port: int) -> tuple[web.AppRunner, int]:
    """Listen; what to clean up afterwards, and the port, which is any free one for 0."""
    app = web.Application(client_max_size=LARGEST, middlewares=[_only_us])
    handlers = _Handlers(model)
    app.router.add_get("/v1/models", handlers.models)
    app.router.add_post("/v1/chat/completions", handlers.chat)
    # a client that hangs up cancels its request
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, HOST, port)
    await site.start()
    return runner, cast("int", runner.addresses[0][1])


@web.middleware
async def _only_us(request: web.Request, handler: Any) -> web.StreamResponse:  # noqa: ANN401 # aiohttp's
    if (request.host.rpartition(":")[0] or request.host) not in LOOPBACK:
        return _error(403, f"`{request.host}` is not this machine")
    return await handler(request)


class _Handlers:
    def __init__(self, model: Model) -> None:
        self._model = model

    async def models(self, request: web.Request) -> web.Response:
        entry = {"id": self._model.name, "object": "model", "owned_by": "kept"}
        return web.json_response({"object": "list", "data": [entry]})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        if request.content_type != "application/json":
            return _error(415, "the body must be application/json")
        try:
            body = json.loads(await request.read())
            asked = _request(body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _error(400, f"cannot read the request: {error!r}")
        reply = await self._model.complete(asked)
        if isinstance(reply, Failure):
            return _failed(reply)
        if body.get("stream"):
            return await _streamed(request, self._model.name, reply)
        return web.json_response(_completion(self._model.name, reply))


def _request(body: Mapping[str, Any]) -> ModelRequest:
    if body.get("tools") or body.get("n", 1) != 1:
        raise ValueError("neither tools nor several choices can be had here")
    stop = body.get("stop") or ()
    return ModelRequest(
        tuple(Message(said["role"], _text(said.get("content"))) for said in body["messages"]),
        schema=_schema(body.get("response_format") or {}),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        seed=body.get("seed"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
    )


def _text(content: Any) -> str:  # noqa: ANN401 # whatever a client sends
    """Content may be a list of parts, of which only texts can be read here."""
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part["type"] != "text":
            raise ValueError(f"a part of the type {part['type']} cannot be read here")
    return "".join(part["text"] for part in content)


def _schema(form: Mapping[str, Any]) -> Mapping[str, object]:
    match form.get("type", "text"):
        case "text":
            return {}
        case "json_object":
            return {"type": "object"}
        case "json_schema":
            return form["json_schema"]["schema"]
        case other:
            raise ValueError(f"there is no response_format of the type {other}")


def _completion(name: str, reply: ModelReply) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply.text}
    choice = {"index": 0, "message": message, "finish_reason": reply.finish}
    return {**_head(name, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def _head(name: str, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-kept", "object": kind, "created": 0, "model": name}


def _usage(reply: ModelReply) -> dict[str, Any]:
    used = reply.usage
    return {
        "prompt_tokens": used.tokens_in,
        "completion_tokens": used.tokens_out,
        "total_tokens": used.tokens_in + used.tokens_out,
        "prompt_tokens_details": {"cached_tokens": used.tokens_cached},
    }


async def _streamed(request: web.Request, name: str, reply: ModelReply) -> web.StreamResponse:
    """The whole answer as one piece: who asks for a stream gets one, and nothing earlier."""
    head = _head(name, "chat.completion.chunk")
    delta = {"role": "assistant", "content": reply.text}
    pieces: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]},
        {**head, "choices": [], "usage": _usage(reply)},
    ]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(f"data: {json.dumps(piece)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


def _failed(failure: Failure) -> web.Response:
    if failure.kind == "context":
        return _error(400, failure.message, "context_length_exceeded")
    return _error(400 if failure.kind == "harness" else 500, failure.message)


def _error(status: int, message: str, code: str | None = None) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "code": code}
    return web.json_response({"error": error}, status=status)
