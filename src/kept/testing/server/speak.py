"""Replies and faults put on the wire."""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from aiohttp import web

from kept.core.model import ModelReply
from kept.testing.server import chat, embeddings, messages, responses
from kept.testing.server.fault import Fault
from kept.testing.server.seen import Seen

_WIRES: dict[str, ModuleType] = {
    "chat": chat,
    "responses": responses,
    "messages": messages,
    # whose errors are those of chat
    "embeddings": chat,
}
DRIP = 8
"""Bytes of a reply that drips, at a time."""

PAGE = "<html><body><h1>502 Bad Gateway</h1></body></html>"


@dataclass(frozen=True, slots=True)
class Speaker:
    """Says one thing to one request."""

    request: web.Request
    seen: Seen

    async def reply(self, reply: ModelReply) -> web.StreamResponse:
        """As the protocol has it."""
        parts = self._parts(reply)
        if self.seen.streamed:
            return await self._send(parts)
        return self._json(parts[0])

    async def fault(self, fault: Fault, reply: ModelReply) -> web.StreamResponse:
        """Anything but a reply, or a reply that takes its time."""
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
        """Piece by piece; of pieces that make up one JSON text, the length is not told."""
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
