"""A server of tools as people write them with the SDK.

`python sdk_server.py` speaks over pipes, `python sdk_server.py PORT` over HTTP in both ways.
"""

import asyncio
import sys

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop", log_level="CRITICAL")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def hang(text: str = "") -> str:
    """Wait."""
    await asyncio.sleep(120)
    return text


@server.tool()
def large() -> str:
    """Say too much."""
    return "x" * 50_000_000


if __name__ == "__main__":
    if len(sys.argv) == 1:
        server.run("stdio")
    else:
        app = server.streamable_http_app()
        app.router.routes.extend(server.sse_app().routes)
        uvicorn.run(app, port=int(sys.argv[1]), log_level="critical")
