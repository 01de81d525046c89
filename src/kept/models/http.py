"""JSON over HTTP with aiohttp: whole or streamed responses.

Proxies of the environment are used (`HTTPS_PROXY`, `NO_PROXY`), and certificates in SSL_CERT_FILE
are trusted. Redirects are not followed: a key goes only to its intended address.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

from kept.core.untyped import is_dict
from kept.models.protocol import Trouble, decode, lasting, of_error, of_status, passing

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession, ClientTimeout

MOST_BYTES = 32 << 20
"""Of one reply: nothing that a model says is longer."""

CONNECT = 20.0
"""Seconds until a connection stands."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where questions go, and what goes with each of them."""

    name: str
    """Of the model, for messages."""
    url: str
    headers: Mapping[str, str]
    key: str
    """The name of where the key comes from, for messages."""
    timeout: float
    stall: float
    proxy: str | None = None


async def post(endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """The JSON that answers; raises `Trouble`."""
    async with _exchange(endpoint, headers, body, endpoint.timeout) as response:
        return await _whole(endpoint, response)


async def fetch_status(endpoint: Endpoint, headers: Mapping[str, str], seconds: float) -> int:
    """The status of a GET, whose body is not read; raises `Trouble` where nothing answers."""
    session = await _session()
    try:
        async with session.get(
            endpoint.url,
            headers={**endpoint.headers, **headers},
            timeout=_timeout(seconds, seconds),
            proxy=endpoint.proxy,
            allow_redirects=False,
        ) as response:
            return response.status
    except Exception as error:
        found = _trouble(endpoint, error)
        if found is error:
            raise
        raise found from error


async def _whole(endpoint: Endpoint, response: "ClientResponse") -> dict[str, Any]:
    content = response.content
    raw = await content.readany()
    if not content.at_eof():
        pieces = bytearray(raw)
        while piece := await content.readany():
            pieces += piece
            _bound(endpoint, len(pieces))
        raw = bytes(pieces)
    _bound(endpoint, len(raw))
    return _decoded(endpoint, raw)


async def _look_at(endpoint: Endpoint, response: "ClientResponse") -> None:
    """Raise what a response without an answer stands for."""
    if response.status != 200:
        raw = await response.content.read(1 << 16)
        headers = {name.lower(): value for name, value in response.headers.items()}
        raise of_status(endpoint.name, response.status, headers, raw, endpoint.key)
    kind = response.content_type
    if kind not in ("application/json", "text/event-stream"):
        raise passing("server", f"`{endpoint.name}` answered with {kind}, which is not JSON")


def _trouble(endpoint: Endpoint, error: BaseException, *, arrived: bool = False) -> BaseException:
    """What an error of the HTTP library means; any other is what it is.

    `arrived` says that a reply had begun: whatever is wrong with it, it is to be paid for.
    """
    from aiohttp import ClientError

    found = error
    if isinstance(error, ClientError | TimeoutError | OSError):
        found = of_error(endpoint.name, error)
    return found.arrive() if arrived and isinstance(found, Trouble) else found


async def events(
    endpoint: Endpoint, headers: Mapping[str, str], body: bytes
) -> AsyncGenerator[dict[str, Any]]:
    """The JSON of each event that answers; raises `Trouble`, also when nothing comes for long."""
    async with _exchange(endpoint, headers, body, endpoint.stall) as response:
        left, count = b"", 0
        while piece := await response.content.readany():
            count += len(piece)
            _bound(endpoint, count)
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                # the name of an event stands in its data too, so the other lines say nothing new
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data and data != b"[DONE]":
                        yield _decoded(endpoint, data)


@asynccontextmanager
async def _exchange(
    endpoint: Endpoint, headers: Mapping[str, str], body: bytes, silence: float
) -> "AsyncGenerator[ClientResponse]":
    """A request and its response, with everything that can go wrong as `Trouble`."""
    session = await _session()
    response: ClientResponse | None = None
    try:
        response = await session.post(
            endpoint.url,
            data=body,
            headers={**endpoint.headers, **headers},
            timeout=_timeout(endpoint.timeout, silence),
            proxy=endpoint.proxy,
            allow_redirects=False,
        )
        await _look_at(endpoint, response)
        yield response
    except BaseException as error:
        arrived = response is not None and response.status == 200
        if response is not None:
            # a reply that was not read to its end takes its connection with it
            response.close()
        found = _trouble(endpoint, error, arrived=arrived)
        if found is error:
            raise
        raise found from error
    response.release()


@lru_cache(maxsize=64)
def _timeout(total: float, silence: float) -> "ClientTimeout":
    from aiohttp import ClientTimeout

    # a silence that may last as long as all of it needs no clock of its own, set with every piece
    return ClientTimeout(
        total=total, sock_connect=CONNECT, sock_read=silence if silence < total else None
    )


def _bound(endpoint: Endpoint, size: int) -> None:
    if size > MOST_BYTES:
        what = f"`{endpoint.name}` answered with more than {MOST_BYTES >> 20} MiB"
        raise lasting(what, kind="limit")


def _decoded(endpoint: Endpoint, raw: bytes) -> dict[str, Any]:
    try:
        found = decode(raw)
        if not is_dict(found):
            raise ValueError(f"no object but a {type(found).__name__}")
    except ValueError as error:
        shown = raw[:200].decode("utf-8", "replace")
        raise passing(
            "server", f"`{endpoint.name}` answered with JSON that is {error}", shown
        ) from error
    return found


_Life: TypeAlias = "AsyncGenerator[ClientSession, None]"
_SESSIONS: "WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_Life, ClientSession]]" = (
    WeakKeyDictionary()
)


async def _session() -> "ClientSession":
    """The session of this event loop, which is closed when the loop ends."""
    loop = asyncio.get_running_loop()
    held = _SESSIONS.get(loop)
    if held is None:
        life = _live()
        # the first step of this generator never waits, so no other task can make a second one
        held = _SESSIONS[loop] = (life, await anext(life))
    return held[1]


async def _live() -> _Life:
    """A session until the event loop shuts its generators down, as `asyncio.run` does at its end.

    The port of a model has no `close`, which every runner and proposer would have to hand on.
    """
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector

    from kept.models.eager_request import REQUEST

    loop = asyncio.get_running_loop()
    # the limiter says how many calls there are at once; `trust_env` would look for proxies, and
    # for passwords in ~/.netrc, in a thread for every call; no call leaves a cookie for the next
    session = ClientSession(
        connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar(), request_class=REQUEST
    )
    try:
        yield session
    finally:
        _SESSIONS.pop(loop, None)
        await session.close()


__all__ = ["Endpoint", "Trouble", "events", "post"]
