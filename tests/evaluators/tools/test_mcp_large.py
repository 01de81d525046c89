"""Answers of 50 MB over HTTP, from a server that counts what it gets rid of."""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kept.core.llm import ToolAnswer
from kept.evaluators.tools.mcp import McpConfig, McpServer
from kept.evaluators.tools.mcp_transports import MOST_LINE
from tests.evaluators.tools.served import answer, tools_of

pytestmark = pytest.mark.slow

TOTAL = 50_000_000
PART = b"x" * 65_536
SLACK = 16 * 1024 * 1024
"""Bytes that are under way between two ends of a connection, at most."""

TOO_LONG = "the answer has more than 8 MiB, which is too long to be told"
KINDS = {"json": "application/json", "events": "text/event-stream", "refused": "application/json"}


class Sending:
    """A server whose tools say more than anybody wants to hear."""

    def __init__(self) -> None:
        self.sent = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            return web.Response(status=405)
        asked: dict[str, Any] = await request.json()
        number: int | None = asked.get("id")
        params: dict[str, Any] = asked.get("params") or {}
        if number is None:
            return web.Response(status=202)
        match asked["method"]:
            case "initialize":
                result: dict[str, Any] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
            case "tools/list":
                schema: dict[str, Any] = {"type": "object", "properties": {}}
                names = (*KINDS, "packed", "small")
                result = {"tools": [{"name": name, "inputSchema": schema} for name in names]}
            case "tools/call" if params["name"] in KINDS:
                return await self.large(request, number, params["name"])
            case "tools/call":
                result = {"content": [{"type": "text", "text": params["name"]}]}
            case method:
                error = {"code": -32601, "message": f"no method {method}"}
                return web.json_response({"jsonrpc": "2.0", "id": number, "error": error})
        whole = {"jsonrpc": "2.0", "id": number, "result": result}
        if params.get("name") == "packed":
            body = gzip.compress(web.json_response(whole).body)  # pyright: ignore[reportArgumentType] # bytes
            headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
            return web.Response(body=body, headers=headers)
        return web.json_response(whole)

    async def large(self, request: web.Request, number: int, kind: str) -> web.StreamResponse:
        status = 400 if kind == "refused" else 200
        response = web.StreamResponse(status=status, headers={"Content-Type": KINDS[kind]})
        await response.prepare(request)
        if kind == "events":
            await response.write(b"event: message\ndata: ")
        text = '"result":{"content":[{"type":"text","text":"'
        await response.write(f'{{"jsonrpc":"2.0","id":{number},{text}'.encode())
        while self.sent < TOTAL:
            # raises once the other end is gone
            await response.write(PART)
            self.sent += len(PART)
        await response.write(b'"}]}}\n\n')
        return response


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Sending, McpServer]]:
    sending = Sending()
    app = web.Application()
    app.router.add_route("*", "/mcp", sending.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    server = McpServer(McpConfig("shop", Path("/"), "http", url=url))
    try:
        yield sending, server
    finally:
        await server.close()
        await runner.cleanup()


async def asked(kind: str) -> tuple[ToolAnswer, ToolAnswer, int]:
    async with opened() as (sending, server):
        found = await tools_of(server)
        said = await answer(found[kind])
        sent = sending.sent
        return said, await answer(found["small"]), sent


@pytest.mark.parametrize("kind", KINDS)
def test_of_fifty_megabytes_no_more_is_read_than_is_told(kind: str):
    said, after, sent = asyncio.run(asked(kind))
    assert (said.text, said.wrong) == (TOO_LONG, True)
    assert sent < MOST_LINE + SLACK < TOTAL
    assert (after.text, after.wrong) == ("small", False), "the server is there as before"


def test_what_is_packed_is_not_unpacked():
    said, after, _ = asyncio.run(asked("packed"))
    assert (said.text, said.wrong) == ("the answer is packed, which was not asked for", True)
    assert after.text == "small"
