"""The server itself: a thread of its own, so that any program may talk to it."""

import asyncio
import ssl
import threading
from collections.abc import Callable
from typing import Any, Self

from aiohttp import web

from kept.core.model import ModelReply
from kept.core.rollout import Usage
from kept.testing.server.fault import Fault
from kept.testing.server.script import Faults, Replies, Script
from kept.testing.server.seen import Seen, Wire
from kept.testing.server.speak import Speaker

_ENDS: tuple[tuple[str, Wire], ...] = (
    ("/chat/completions", "chat"),
    ("/responses", "responses"),
    ("/messages", "messages"),
    ("/embeddings", "embeddings"),
)
"""By how a path ends, since every provider has its own beginning."""

MOST_BYTES = 64 << 20
"""Of a request."""

TURN = 0.01
"""Seconds in which the event loop does what is due: sockets are closed in the turn after next."""


class ModelServer:
    """A provider of models on loopback, between `with ModelServer(...) as server:` and its end."""

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
        """Seconds before anything is answered."""
        self.held: Callable[[Seen], bool] = lambda seen: False
        """True of a request that is to wait; it is asked again until it is false."""
        self.log: list[Seen] = []
        """Every request, in the order of arrival."""
        self.most_at_once = 0
        """Requests that were under way at the same time, at most."""
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
        """Where it is, without the version: what Anthropic's clients are told."""
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def v1(self) -> str:
        """Where it is, with the version: what OpenAI's clients are told."""
        return f"{self.url}/v1"

    @property
    def answered(self) -> list[Seen]:
        """The requests that had a whole reply."""
        return [seen for seen in self.log if seen.answer == "reply"]

    def start(self) -> None:
        """Listen; returns when that is so."""
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Close, whatever is under way."""
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
        # whoever is at the door is let in before all are sent away, or would be left standing there
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
        # what never comes is not taken from the script, and vectors are made of what was asked
        reply: ModelReply | Fault = ModelReply("half of this never comes", Usage(calls=1))
        if seen.wire != "embeddings" and (fault is None or fault.answers):
            reply = self._script.reply(seen)
        if isinstance(reply, Fault):
            fault, reply = reply, ModelReply("half of this never comes", Usage(calls=1))
        # before it is sent: a client that has its reply may look at the log
        seen.answer = "reply" if fault is None or fault.answers else str(fault)
        return await (speaker.fault(fault, reply) if fault else speaker.reply(reply))


async def _aside(request: web.Request, path: str) -> web.Response:
    """What clients ask besides: which models there are, how long a text is."""
    if path.endswith("/messages/count_tokens"):
        return web.json_response({"input_tokens": len(await request.text()) // 4 + 1})
    if path.endswith("/models"):
        known = {"id": "scripted", "object": "model", "created": 1700000000, "owned_by": "kept"}
        return web.json_response({"object": "list", "data": [known]})
    missing = {"message": f"there is no {request.path}", "type": "not_found_error", "code": None}
    return web.json_response({"error": missing}, status=404)
