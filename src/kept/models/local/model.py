"""Local models on llama.cpp: engine, model, and an OpenAI-compatible loopback server.

There is no key, no network and no price. One set of weights answers several requests at a time.
The same seed gives the same answer. The engine blocks; `LocalModel` keeps it off the event loop.

The server is for programs that speak only the OpenAI chat protocol. It listens on 127.0.0.1 and
has no key. Web pages cannot use it: a request must be JSON and name a loopback host. Browsers do
not send this to another origin without a preflight.
"""

import asyncio
import json
import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure, FailureKind, Usage
from kept.engine.user_code import Threads
from kept.errors import SetupError
from kept.models.local.process import LlamaProcess, Stop
from kept.models.providers import SHAPES, ModelConfig
from kept.models.weights import known, needed
from kept.settings import processors


class Engine:
    """Weights in memory, with `slots` places for requests, of `context` tokens each.

    Runs one single-threaded llama.cpp per processor, each in its own process. Threads of one
    llama.cpp synchronize at every step of every token, which takes most of the time on a busy
    machine. Two of them in one process evict each other's token table at every request with a
    schema, which costs as much as half an answer.
    """

    def __init__(self, weights: Path, slots: int, context: int) -> None:
        count = min(slots, processors())
        # the first processes take the slots left by the division
        self._shapes = [
            (weights, slots // count + (n < slots % count), context) for n in range(count)
        ]
        self._processes: list[LlamaProcess] = []
        self._lock = threading.Lock()
        self._starting = [threading.Lock() for _ in range(count)]
        self._calls = [0] * count
        # also at interpreter exit
        weakref.finalize(self, _close, self._processes)
        try:
            self._processes += (LlamaProcess(*shape) for shape in self._shapes)
            for process in self._processes:
                process.wait_until_ready()
        except BaseException:
            _close(self._processes)
            raise

    def chat(self, body: dict[str, Any], stop: Stop) -> list[dict[str, Any]]:
        """Return the chunks streamed in reply to an OpenAI request, until its end or `stop`.

        The key `schema` holds the JSON schema of the answer. Raises `ValueError` for a request that
        it does not understand, and `RuntimeError` if llama.cpp fails.
        """
        # choose the least busy process
        with self._lock:
            at = min(range(len(self._calls)), key=lambda n: self._calls[n])
            self._calls[at] += 1
        try:
            return self._process(at).chat(body, stop)
        finally:
            with self._lock:
                self._calls[at] -= 1

    def _process(self, at: int) -> LlamaProcess:
        with self._starting[at]:
            if self._processes[at].gone:
                # earlier callers got the error; restart it for this one
                self._processes[at].close()
                process = LlamaProcess(*self._shapes[at])
                try:
                    process.wait_until_ready()
                except BaseException:
                    process.close()
                    raise
                self._processes[at] = process
            return self._processes[at]


def _close(processes: list[LlamaProcess]) -> None:
    for process in processes:
        process.close_input()
    for process in processes:
        process.close()


_Key = tuple[Path, int, int]
_loaded: "weakref.WeakValueDictionary[_Key, Engine]" = weakref.WeakValueDictionary()
_loading = threading.Lock()


def engine_of(weights: Path, slots: int, context: int) -> Engine:
    """Engine of these weights, shared by all users and freed with the last of them."""
    key = (weights, slots, context)
    with _loading:
        engine = _loaded.get(key)
        if engine is None:
            engine = _loaded[key] = Engine(weights, slots, context)
        return engine


SLOTS = 4
"""Requests that are answered in parallel."""

CONTEXT = 2048
"""Tokens of one request, prompt and answer; the design size of our smallest model."""


def make(config: ModelConfig) -> "LocalModel":
    """Create the model of a config; raise `SetupError` if its weights are missing."""
    known_ones = (name for name in SHAPES if name != "effort")  # it has no reasoning
    said = {name: value for name in known_ones if (value := getattr(config, name)) is not None}
    return LocalModel(f"local/{known(config.model).name}", needed(config.model), said=said)


class LocalModel:
    """Implements `kept.core.ports.Model`; loads its weights with the first request."""

    def __init__(
        self,
        name: str,
        weights: Path,
        *,
        slots: int = SLOTS,
        context: int = CONTEXT,
        said: Mapping[str, Any] | None = None,
    ) -> None:
        """`said` holds defaults for sampling settings that requests leave open."""
        self.name = name
        self._said = said or {}
        self._weights = weights
        self._slots = slots
        self._context = context
        self._threads = Threads(slots, "kept-model")
        weakref.finalize(self, self._threads.close)
        self._engine: Engine | None = None

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """Return one reply. If cancelled, wait until the engine has stopped working on it."""
        images = any(message.images for message in request.messages)
        for what, present in (("tools", request.tools), ("images", images)):
            if present:
                message = f"{self.name} cannot be given {what}"
                return Failure("harness", "infrastructure", message)
        open_ones = {n: v for n, v in self._said.items() if getattr(request, n) is None}
        call = _Call(replace(request, **open_ones), asyncio.get_running_loop())
        try:
            chunks = await self._threads.call(self._answer, call)
        except asyncio.CancelledError:
            call.unwanted.set()
            if call.begun.is_set():
                await call.ended
            raise
        except SetupError as error:
            return Failure("harness", "infrastructure", str(error))
        except ValueError as error:
            message = f"{self.name} does not understand the request: {error}"
            return Failure("harness", "infrastructure", message)
        except RuntimeError as error:
            return Failure("server", "infrastructure", f"{self.name} failed: {error}")
        reply = _reply(self.name, chunks)
        if request.schema and isinstance(reply, ModelReply) and not _may_be_json(reply):
            # llama.cpp does not report that it dropped a schema
            message = f"{self.name} does not understand the schema of the request"
            return Failure("harness", "infrastructure", message, reply.text)
        return reply

    def _answer(self, call: "_Call") -> list[dict[str, Any]]:
        call.begun.set()
        try:
            if call.unwanted.is_set():
                return []
            if self._engine is None:
                self._engine = engine_of(self._weights, self._slots, self._context)
            return self._engine.chat(_body(call.request), call.unwanted.is_set)
        finally:
            call.tell_ended()


class _Call:
    """A request in progress, shared by the event loop and a worker thread."""

    def __init__(self, request: ModelRequest, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.unwanted = threading.Event()
        self.begun = threading.Event()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop

    def tell_ended(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            return  # the loop was closed meanwhile, so no task waits any more

    def _settle(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _may_be_json(reply: ModelReply) -> bool:
    """True if a reply is JSON, or may be the beginning of JSON where it was cut."""
    if reply.finish == "length":
        return reply.text[:1] in tuple('{["-0123456789tfn') or not reply.text
    try:
        json.loads(reply.text)
    except ValueError:
        return False
    return True


def _body(request: ModelRequest) -> dict[str, Any]:
    """Body of the request in llama.cpp's format, which is OpenAI's."""
    said = [{"role": message.role, "content": message.text} for message in request.messages]
    body: dict[str, Any] = {"messages": said}
    given = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_tokens,
        "seed": request.seed,
        "stop": list(request.stop) or None,
    }
    body |= {name: value for name, value in given.items() if value is not None}
    if request.schema:
        body["schema"] = dict(request.schema)
    return body


_KINDS: Mapping[str, FailureKind] = {"exceed_context_size_error": "context"}


def _reply(name: str, chunks: list[dict[str, Any]]) -> ModelReply | Failure:
    pieces: list[str] = []
    usage: dict[str, Any] = {}
    finish = ""
    for chunk in chunks:
        if "error" in chunk:
            return _failure(name, chunk["error"])
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            pieces.append(choice["delta"].get("content") or "")
            finish = choice["finish_reason"] or finish
    if not finish:
        return Failure("server", "infrastructure", f"{name} was cut off")
    details: Mapping[str, int] = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens", 0)
    taken = Usage(1, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), cached)
    return ModelReply("".join(pieces), taken, "length" if finish == "length" else "stop")


def _failure(name: str, error: Mapping[str, Any]) -> Failure:
    kind = _KINDS.get(error.get("type", ""))
    message = f"{name}: {error.get('message', 'unknown error')}"
    if kind is not None:
        return Failure(kind, "candidate", message)
    refused = error.get("code", 500) < 500
    return Failure("harness" if refused else "server", "infrastructure", message, json.dumps(error))


HOST = "127.0.0.1"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LARGEST = 16 * 1024 * 1024
"""Maximum bytes of a request."""


async def start_server(model: Model, port: int) -> tuple[web.AppRunner, int]:
    """Start the server; return its runner for the cleanup, and the port (0 picks a free one)."""
    app = web.Application(client_max_size=LARGEST, middlewares=[_only_us])
    handlers = _Handlers(model)
    app.router.add_get("/v1/models", handlers.models)
    app.router.add_post("/v1/chat/completions", handlers.chat)
    # a client that disconnects cancels its request
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, HOST, port)
    await site.start()
    return runner, cast("int", runner.addresses[0][1])


@web.middleware
async def _only_us(request: web.Request, handler: Any) -> web.StreamResponse:  # noqa: ANN401 # aiohttp's
    # guards against DNS rebinding: a web page's request carries the page's own host name
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
            if reply.kind == "context":
                return _error(400, reply.message, "context_length_exceeded")
            return _error(400 if reply.kind == "harness" else 500, reply.message)
        if body.get("stream"):
            return await _streamed(request, self._model.name, reply)
        message = {"role": "assistant", "content": reply.text}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish}
        head = _head(self._model.name, "chat.completion")
        return web.json_response({**head, "choices": [choice], "usage": _reply_usage(reply)})


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
    """Text of a content, which may be a list of parts; only text parts are supported."""
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


def _head(name: str, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-kept", "object": kind, "created": 0, "model": name}


def _reply_usage(reply: ModelReply) -> dict[str, Any]:
    used = reply.usage
    return {
        "prompt_tokens": used.tokens_in,
        "completion_tokens": used.tokens_out,
        "total_tokens": used.tokens_in + used.tokens_out,
        "prompt_tokens_details": {"cached_tokens": used.tokens_cached},
    }


async def _streamed(request: web.Request, name: str, reply: ModelReply) -> web.StreamResponse:
    """Stream the whole answer as one piece, for clients that require a stream."""
    head = _head(name, "chat.completion.chunk")
    delta = {"role": "assistant", "content": reply.text}
    pieces: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]},
        {**head, "choices": [], "usage": _reply_usage(reply)},
    ]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for piece in pieces:
        await response.write(f"data: {json.dumps(piece)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response


def _error(status: int, message: str, code: str | None = None) -> web.Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "code": code}
    return web.json_response({"error": error}, status=status)
