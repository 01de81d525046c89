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
"""Maximum bytes of one reply: no model's answer is longer."""

CONNECT = 20.0
"""Seconds for establishing a connection."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address, headers and timeouts of a model's requests."""

    name: str
    """Name of the model, for messages."""
    url: str
    headers: Mapping[str, str]
    key: str
    """Name of the setting that holds the API key, for messages."""
    timeout: float
    stall: float
    proxy: str | None = None


async def post(endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the JSON of the response; raise `Trouble`."""
    async with _exchange(endpoint, headers, body, endpoint.timeout) as response:
        return await _whole(endpoint, response)


async def fetch_status(endpoint: Endpoint, headers: Mapping[str, str], seconds: float) -> int:
    """Return the status of a GET without reading its body; raise `Trouble` if nothing answers."""
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
    """Raise the matching `Trouble` for a response that is no answer."""
    if response.status != 200:
        raw = await response.content.read(1 << 16)
        headers = {name.lower(): value for name, value in response.headers.items()}
        raise of_status(endpoint.name, response.status, headers, raw, endpoint.key)
    kind = response.content_type
    if kind not in ("application/json", "text/event-stream"):
        raise passing("server", f"`{endpoint.name}` answered with {kind}, which is not JSON")


def _trouble(endpoint: Endpoint, error: BaseException, *, arrived: bool = False) -> BaseException:
    """Translate an error of the HTTP library to `Trouble`; return any other unchanged.

    `arrived` is True once a reply has begun, which is paid for even if it is unusable.
    """
    from aiohttp import ClientError

    found = error
    if isinstance(error, ClientError | TimeoutError | OSError):
        found = of_error(endpoint.name, error)
    return found.arrive() if arrived and isinstance(found, Trouble) else found


async def events(
    endpoint: Endpoint, headers: Mapping[str, str], body: bytes
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the JSON of each event; raise `Trouble`, also after a long silence."""
    async with _exchange(endpoint, headers, body, endpoint.stall) as response:
        left, count = b"", 0
        while piece := await response.content.readany():
            count += len(piece)
            _bound(endpoint, count)
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                # the name of an event is in its data too, so the other lines add nothing
                if line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data and data != b"[DONE]":
                        yield _decoded(endpoint, data)


@asynccontextmanager
async def _exchange(
    endpoint: Endpoint, headers: Mapping[str, str], body: bytes, silence: float
) -> "AsyncGenerator[ClientResponse]":
    """Send a request and yield its response; raise `Trouble` for every error."""
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
            # close instead of release: unread data would spoil the connection for the next request
            response.close()
        found = _trouble(endpoint, error, arrived=arrived)
        if found is error:
            raise
        raise found from error
    response.release()


@lru_cache(maxsize=64)
def _timeout(total: float, silence: float) -> "ClientTimeout":
    from aiohttp import ClientTimeout

    # a silence allowed for the whole time needs no timer of its own, which every piece would reset
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
    """Session of this event loop, closed when the loop ends."""
    loop = asyncio.get_running_loop()
    held = _SESSIONS.get(loop)
    if held is None:
        life = _live()
        # the first step of this generator never waits, so no other task can create a second session
        held = _SESSIONS[loop] = (life, await anext(life))
    return held[1]


async def _live() -> _Life:
    """Keep a session until the event loop closes its async generators, as `asyncio.run` does.

    The `Model` port has no `close`, since every runner and proposer would have to pass it on.
    """
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector

    from kept.models.eager_request import REQUEST

    loop = asyncio.get_running_loop()
    # `limit=0`: the limiter bounds concurrent calls. No `trust_env`: for each call it would search
    # for proxies, and for passwords in ~/.netrc, in a thread. No call leaves a cookie for the next.
    session = ClientSession(
        connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar(), request_class=REQUEST
    )
    try:
        yield session
    finally:
        _SESSIONS.pop(loop, None)
        await session.close()


__all__ = ["Endpoint", "Trouble", "events", "post"]
