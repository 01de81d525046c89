"""HTTP server of scripted replies and faults.

The server itself: a thread of its own, so that any program may talk to it.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Self

from aiohttp import web

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.testing.server import chat, embeddings, messages, responses
from kept.testing.server.script import Fault, Faults, Replies, Script, Seen, Wire

_WIRES: dict[str, ModuleType] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    # embeddings share the errors of chat
    "embeddings": chat,
}
DRIP = 8
"""Bytes per write of a dripping reply."""

PAGE = "<html><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True)
class Speaker:
    """Response writer for one request."""

    request: web.Request
    seen: Seen

    async def reply(self, reply: ModelReply) -> web.StreamResponse:
        """Send a reply in the form of its protocol."""
        parts = self._parts(reply)
        if self.seen.streamed:
            return await self._send(parts)
        return self._json(parts[0])

    async def fault(self, fault: Fault, reply: ModelReply) -> web.StreamResponse:
        """Send a fault, or a delayed reply."""
        if fault.kind == "status":
            return self._error(fault)
        if fault.kind == "wrong_type":
            return web.Response(text=PAGE, content_type="text/html")
        if fault.kind == "body":
            usual = "text/event-stream" if self.seen.streamed else "application/json"
            return web.Response(body=fault.body, content_type=fault.content_type or usual)
        if fault.kind == "huge":
            return await self._send([b" " * fault.size], json_too=True)
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
            return await self.reply(reply)
        if fault.kind == "empty":
            wire = _WIRES[self.seen.wire]
            if self.seen.streamed:
                return await self._send(wire.empty_stream(self.seen))
            return self._json(json.dumps(wire.empty(self.seen)).encode())
        if fault.kind == "gives_up":
            return await self._send(self._given_up(fault, self._parts(reply)))
        return await self._broken(fault, self._parts(reply))

    def _given_up(self, fault: Fault, parts: list[bytes]) -> list[bytes]:
        told = json.dumps(_WIRES[self.seen.wire].error(fault.message, 500, fault.code)).encode()
        if not self.seen.streamed:
            return [told]
        return [*parts[: len(parts) // 2], b"event: error\ndata: " + told + b"\n\n"]

    async def _broken(self, fault: Fault, parts: list[bytes]) -> web.StreamResponse:
        whole = b"".join(parts)
        if fault.kind == "drip":
            drops = [whole[start : start + DRIP] for start in range(0, len(whole), DRIP)]
            return await self._send(drops, pause=fault.seconds)
        half = [whole[: len(whole) // 2]]
        if fault.kind == "truncated":
            return await self._send(half)
        response = await self._begin(len(whole))
        await response.write(half[0])
        if fault.kind == "stall":
            await asyncio.sleep(fault.seconds)
        if self.request.transport is not None:
            self.request.transport.abort()
        return response

    def _parts(self, reply: ModelReply) -> list[bytes]:
        if self.seen.wire == "embeddings":
            return [json.dumps(embeddings.whole(self.seen)).encode()]
        wire = _WIRES[self.seen.wire]
        if self.seen.streamed:
            return list(wire.stream(self.seen, reply))
        return [json.dumps(wire.whole(self.seen, reply)).encode()]

    def _error(self, fault: Fault) -> web.Response:
        wire = _WIRES[self.seen.wire]
        headers = {"x-request-id": f"req-{self.seen.number}"}
        if fault.retry_after is not None:
            headers["retry-after"] = f"{fault.retry_after:g}"
        told = wire.error(fault.message, fault.status, fault.code)
        return web.json_response(told, status=fault.status, headers=headers)

    def _json(self, body: bytes) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def _send(
        self, parts: Iterable[bytes], pause: float = 0.0, json_too: bool = False
    ) -> web.StreamResponse:
        """Send parts one by one, without a content length."""
        response = await self._begin(None, json_too)
        for part in parts:
            await response.write(part)
            if pause:
                await asyncio.sleep(pause)
        await response.write_eof()
        return response

    async def _begin(self, length: int | None, json_too: bool = False) -> web.StreamResponse:
        response = web.StreamResponse()
        streamed = self.seen.streamed and not json_too
        response.content_type = "text/event-stream" if streamed else "application/json"
        if length is not None and not streamed:
            response.content_length = length
        await response.prepare(self.request)
        return response


_ENDS: tuple[tuple[str, Wire], ...] = (
    ("/chat/completions", "chat"),
    ("/responses", "responses"),
    ("/messages", "messages"),
    ("/embeddings", "embeddings"),
)
"""Protocols by the end of the path, as providers differ in how it begins."""

MOST_BYTES = 64 << 20
"""Maximum bytes of a request."""

TURN = 0.01
"""Seconds for pending work of the event loop; sockets are closed two turns later."""


class ModelServer:
    """Model provider on loopback: `with ModelServer(...) as server:`."""

    def __init__(
        self,
        replies: Replies = (),
        *,
        faults: Faults = (),
        latency: float = 0.0,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.latency = latency
        """Seconds before any answer."""
        self.held: Callable[[Seen], bool] = lambda seen: False
        """Predicate for requests to hold back; it is polled until it is false."""
        self.log: list[Seen] = []
        """Every request, in order of arrival."""
        self.most_at_once = 0
        """Maximum number of concurrent requests so far."""
        self.port = port
        self._tls = tls
        self._script = Script(replies, faults)
        self._at_once = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="kept-model-server", daemon=True)
        self._ready = threading.Event()
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        """Base URL without the version, as Anthropic's clients expect it."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def v1(self) -> str:
        """Base URL with the version, as OpenAI's clients expect it."""
        return f"{self.url}/v1"

    @property
    def answered(self) -> list[Seen]:
        """Requests that got a complete reply."""
        return [seen for seen in self.log if seen.answer == "reply"]

    def start(self) -> None:
        """Start listening; returns once the server is ready."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Close the server and cancel open requests."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.05, handler_cancellation=True
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, backlog=1024, ssl_context=self._tls)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        # accept pending connections before closing all, or they would hang unanswered
        await site.stop()
        await asyncio.sleep(TURN)
        await runner.cleanup()
        await asyncio.sleep(TURN)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        wire: Wire | None = next((wire for end, wire in _ENDS if path.endswith(end)), None)
        if request.method != "POST" or wire is None:
            return await _aside(request, path)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            body: dict[str, Any] = await request.json()
            headers = {name.lower(): value for name, value in request.headers.items()}
            seen = Seen(len(self.log), wire, request.path_qs, headers, body)
            self.log.append(seen)
            return await self._answer(Speaker(request, seen), seen)
        finally:
            self._at_once -= 1

    async def _answer(self, speaker: Speaker, seen: Seen) -> web.StreamResponse:
        try:
            await asyncio.sleep(self.latency)
            while self.held(seen):
                await asyncio.sleep(TURN)
            return await self._say(speaker, seen)
        except (asyncio.CancelledError, ConnectionError):
            seen.answer = "given up"
            raise

    async def _say(self, speaker: Speaker, seen: Seen) -> web.StreamResponse:
        fault = self._script.fault(seen)
        # such a fault uses up no reply of the script; embeddings are computed from the request
        reply: ModelReply | Fault = ModelReply("half of this never comes", Usage(calls=1))
        if seen.wire != "embeddings" and (fault is None or fault.answers):
            reply = self._script.reply(seen)
        if isinstance(reply, Fault):
            fault, reply = reply, ModelReply("half of this never comes", Usage(calls=1))
        # set before sending: a client may read the log as soon as it has its reply
        seen.answer = "reply" if fault is None or fault.answers else str(fault)
        return await (speaker.fault(fault, reply) if fault else speaker.reply(reply))


async def _aside(request: web.Request, path: str) -> web.Response:
    """Answer auxiliary requests: the list of models, the token count of a text."""
    if path.endswith("/messages/count_tokens"):
        return web.json_response({"input_tokens": len(await request.text()) // 4 + 1})
    if path.endswith("/models"):
        known = {"id": "scripted", "object": "model", "created": 1700000000, "owned_by": "kept"}
        return web.json_response({"object": "list", "data": [known]})
    missing = {"message": f"there is no {request.path}", "type": "not_found_error", "code": None}
    return web.json_response({"error": missing}, status=404)
