"""What is read of a server's answers over HTTP: as much as is told, whatever it sends.

The SDK reads an answer whole before anybody can look at it. Here it is cut while it comes in: in
the place of one that is too long stands the error that says so, as over pipes.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

import httpx2

from kept.evaluators.tools.mcp_stdio import MOST_LINE, Line, in_place

MOST_EVENT = 1024 * 1024 - 1024
"""Bytes of one message of the older transport, a little less than its client takes."""

_DATA = b"data:"

Hook = Callable[[httpx2.Response], Awaitable[None]]


def client_of(
    headers: Mapping[str, str], timeout: httpx2.Timeout | None = None, most: int = MOST_LINE
) -> httpx2.AsyncClient:
    """A client that reads no more of a message than so many bytes."""
    from mcp.shared._httpx_utils import create_mcp_http_client

    # what is packed may be large when nobody can see it
    client = create_mcp_http_client({**headers, "Accept-Encoding": "identity"}, timeout)
    client.event_hooks = {**client.event_hooks, "response": [_bounding(most)]}
    return client


def _bounding(most: int) -> Hook:
    async def bound(response: httpx2.Response) -> None:
        asked = _id_of(response.request)
        inner = response.stream
        assert isinstance(inner, httpx2.AsyncByteStream)
        kind = response.headers.get("content-type", "").lower()
        if response.headers.get("content-encoding", "identity") != "identity":
            del response.headers["content-encoding"]
            response.headers["content-type"] = "application/json"
            words = "the answer is packed, which was not asked for"
            response.stream = _Cut(inner, _said(in_place(asked, words)))
        elif kind.startswith("text/event-stream"):
            response.stream = _Cut(inner, _events(inner, asked, most))
        else:
            response.stream = _Cut(inner, _whole(inner, asked, most))

    return bound


class _Cut(httpx2.AsyncByteStream):
    """A stream of which only some is handed on."""

    def __init__(self, inner: httpx2.AsyncByteStream, parts: AsyncGenerator[bytes]) -> None:
        self._inner = inner
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part

    async def aclose(self) -> None:
        await self._parts.aclose()
        await self._inner.aclose()


async def _said(text: bytes) -> AsyncGenerator[bytes]:
    yield text


async def _whole(
    inner: httpx2.AsyncByteStream, asked: bytes | None, most: int
) -> AsyncGenerator[bytes]:
    """One message."""
    parts: list[bytes] = []
    size = 0
    async for part in inner:
        size += len(part)
        if size > most:
            yield in_place(asked, _too_long(most))
            return
        parts.append(part)
    yield b"".join(parts)


async def _events(
    inner: httpx2.AsyncByteStream, asked: bytes | None, most: int
) -> AsyncGenerator[bytes]:
    """Messages as they come, a line each."""
    line = Line(most)
    async for part in inner:
        *ends, rest = part.split(b"\n")
        for end in ends:
            line.add(end)
            if not line.too_long:
                yield line.whole() + b"\n"
            elif found := in_place(line.whose(_DATA), _too_long(most)):
                # a stream of many answers: of this one the end is awaited, and nothing kept
                yield _DATA + found + b"\n"
            line = Line(most)
        line.add(rest)
        if line.too_long and asked is not None:
            yield _DATA + in_place(asked, _too_long(most)) + b"\n\n"
            return
    if not line.too_long:
        yield line.whole()


def _too_long(most: int) -> str:
    return f"the answer has more than {round(most / 1024**2)} MiB, which is too long to be told"


def _id_of(request: httpx2.Request) -> bytes | None:
    """Whose answer a response is, as it stands in JSON; None where that is not known."""
    if request.method != "POST":
        return None
    try:
        found = json.loads(request.content).get("id")
    except (ValueError, AttributeError):
        return None
    return None if found is None else json.dumps(found).encode()
