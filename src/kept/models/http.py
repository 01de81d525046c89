"""JSON over HTTP with aiohttp: whole or streamed responses, and a fast request path.

Proxies of the environment are used (`HTTPS_PROXY`, `NO_PROXY`), and certificates in SSL_CERT_FILE
are trusted. Redirects are not followed: a key goes only to its intended address.

Requests are written directly to an aiohttp connection. The rest of `ClientSession.post` serves
redirects, cookies, uploads and logins. It takes half of the CPU time of a call, and calls to
models need none of it (decision 0080). Unusual requests, such as an address with a login, use the
session.

Before Python 3.12 aiohttp sends a request body in a task of its own, queued behind all ready
tasks. When many replies arrive together, no follow-up request leaves before the last reply is
processed. Then 64 calls in flight leave in bursts, ever further apart, and the provider waits. So
bodies are sent at once here.
"""

import asyncio
import sys
import types
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from aiohttp import (
    BaseConnector,
    ClientConnectionError,
    ClientError,
    ClientRequest,
    ClientTimeout,
    http,
)
from yarl import URL

from kept.models.protocol import Trouble, decode, lasting, of_error, of_status, passing

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import Connection
    from aiohttp.streams import StreamReader


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
    _, direct = await _session()
    told = {**endpoint.headers, **headers}
    opening = direct.opening(endpoint.url, told) if endpoint.proxy is None else None
    if opening is None:
        async with _Exchange(endpoint, headers, body, endpoint.timeout) as response:
            return await _whole(endpoint, response)
    arrived = False
    try:
        async with asyncio.timeout(endpoint.timeout):
            answer = await direct.ask(opening, body, _timeout(endpoint.timeout, endpoint.timeout))
            arrived = answer.status == 200
            try:
                await _look_at(endpoint, answer)
                whole = await _whole(endpoint, answer)
            except BaseException:
                # a reply that was not read to its end takes its connection with it
                answer.close()
                raise
            answer.release()
            return whole
    except Exception as error:
        found = _trouble(endpoint, error, arrived=arrived)
        if found is error:
            raise
        raise found from error


async def fetch_status(endpoint: Endpoint, headers: Mapping[str, str], seconds: float) -> int:
    """The status of a GET, whose body is not read; raises `Trouble` where nothing answers."""
    session, _ = await _session()
    told = {**endpoint.headers, **headers}
    try:
        async with session.get(
            endpoint.url,
            headers=told,
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


async def _whole(endpoint: Endpoint, response: "ClientResponse | Answer") -> dict[str, Any]:
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


async def _look_at(endpoint: Endpoint, response: "ClientResponse | Answer") -> None:
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
    async with _Exchange(endpoint, headers, body, endpoint.stall) as response:
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


class _Exchange:
    """A request and its response, with everything that can go wrong as `Trouble`."""

    def __init__(
        self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes, silence: float
    ) -> None:
        self._endpoint = endpoint
        self._headers = {**endpoint.headers, **headers}
        self._body = body
        self._silence = silence
        self._response: ClientResponse | None = None

    async def __aenter__(self) -> "ClientResponse":
        endpoint = self._endpoint
        try:
            session, _ = await _session()
            response = self._response = await session.post(
                endpoint.url,
                data=self._body,
                headers=self._headers,
                timeout=_timeout(endpoint.timeout, self._silence),
                proxy=endpoint.proxy,
                allow_redirects=False,
            )
            await _look_at(endpoint, response)
        except BaseException as error:
            raise self._trouble(error) from error
        return response

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._response is not None:
            # a reply that was not read to its end takes its connection with it
            self._response.release() if error is None else self._response.close()
        if error is not None:
            found = self._trouble(error)
            if found is not error:
                raise found from error

    def _trouble(self, error: BaseException) -> BaseException:
        if self._response is None:
            return _trouble(self._endpoint, error)
        self._response.close()
        return _trouble(self._endpoint, error, arrived=self._response.status == 200)


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
        if not isinstance(found, dict):
            raise ValueError(f"no object but a {type(found).__name__}")
    except ValueError as error:
        shown = raw[:200].decode("utf-8", "replace")
        raise passing(
            "server", f"`{endpoint.name}` answered with JSON that is {error}", shown
        ) from error
    return cast("dict[str, Any]", found)


_Ways: TypeAlias = "tuple[ClientSession, Direct]"
_Life: TypeAlias = "AsyncGenerator[_Ways, None]"
_SESSIONS: "WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_Life, _Ways]]" = WeakKeyDictionary()


async def _session() -> _Ways:
    """The one session of this event loop; whoever runs the loop closes it by ending the loop."""
    loop = asyncio.get_running_loop()
    held = _SESSIONS.get(loop)
    if held is None:
        life = _live()
        # the first step of a generator never waits here, so nobody can come in between
        held = _SESSIONS[loop] = (life, await anext(life))
    return held[1]


async def _live() -> _Life:
    """A session until the event loop shuts its generators down, as `asyncio.run` does at its end.

    The port of a model has no `close`, which every runner and proposer would have to hand on.
    """
    from aiohttp import ClientSession, DummyCookieJar, TCPConnector

    loop = asyncio.get_running_loop()
    # how many calls there are at once is for the limiter to say; `trust_env` would look for
    # proxies, and for passwords in ~/.netrc, in a thread for every call; no call leaves a cookie
    # for the next
    connector = TCPConnector(limit=0)
    session = ClientSession(connector=connector, cookie_jar=DummyCookieJar(), request_class=REQUEST)
    try:
        yield session, Direct(connector)
    finally:
        _SESSIONS.pop(loop, None)
        await session.close()


__all__ = ["Endpoint", "Trouble", "events", "post"]


MOST = 64
"""Addresses, each with its headers, whose requests begin as one before them."""
TOGETHER = 1 << 16
"""Bytes of a body that are copied behind its head, so that both leave at once."""
_INFORMING = frozenset(range(100, 200)) - {101}
"""Statuses that another one follows; after 101 the server speaks something else."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered, its body yet to be read."""

    status: int
    headers: Mapping[str, str]
    content: "StreamReader"
    _connection: "Connection"

    @property
    def content_type(self) -> str:
        """What the body is, without how it is written."""
        told = self.headers.get("Content-Type", "application/octet-stream")
        return told.partition(";")[0].strip().lower()

    def release(self) -> None:
        """All was read: the connection may be used again."""
        self._connection.release()

    def close(self) -> None:
        """It was not, or does not matter any more."""
        self._connection.close()


@dataclass(frozen=True, slots=True)
class Opening:
    """How requests to one address begin."""

    request: ClientRequest
    """That connections are asked for with."""
    head: bytes
    """Up to the length of the body."""


class Direct:
    """Asks over the connections of one session."""

    def __init__(self, connector: BaseConnector) -> None:
        self._connector = connector
        self._openings: dict[tuple[str, ...], Opening | None] = {}

    def opening(self, url: str, headers: Mapping[str, str]) -> Opening | None:
        """How a request begins; None for one that only the session can make."""
        known = (url, *headers, *headers.values())
        if known not in self._openings:
            if len(self._openings) >= MOST:
                self._openings.clear()
            self._openings[known] = _opening(url, headers)
        return self._openings[known]

    async def ask(self, opening: Opening, body: bytes, timeout: ClientTimeout) -> Answer:
        """What is answered to a body."""
        connection = await self._connector.connect(opening.request, [], timeout)
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None or transport.is_closing():
                raise ClientConnectionError("it was closed before anything was asked")
            protocol.set_response_params(read_until_eof=True)
            head = b"%b%d\r\n\r\n" % (opening.head, len(body))
            if len(body) <= TOGETHER:
                transport.write(head + body)
            else:
                transport.write(head)
                transport.write(body)
            while True:
                message, content = await protocol.read()
                if message.code not in _INFORMING:
                    return Answer(message.code, message.headers, content, connection)
        except http.HttpProcessingError as error:
            connection.close()
            raise ClientConnectionError(f"{error.code}, {error.message}") from error
        except BaseException:
            connection.close()
            raise


def _opening(url: str, headers: Mapping[str, str]) -> Opening | None:
    try:
        where = URL(url)
        if where.scheme not in ("http", "https") or where.user or where.password:
            return None
        loop = asyncio.get_running_loop()
        request = ClientRequest("POST", where, headers=dict(headers), loop=loop)
    except (ClientError, ValueError):
        return None  # the session says what is wrong
    request.headers.pop("Content-Length", None)  # of no body
    lines = [f"{name}: {value}" for name, value in request.headers.items()]
    if any("\r" in line or "\n" in line or "\0" in line for line in lines):
        return None
    target = request.url.raw_path_qs
    head = "\r\n".join((f"POST {target} HTTP/1.1", *lines, "Content-Length: "))
    return Opening(request, head.encode())


Work: TypeAlias = "types.CoroutineType[Any, Any, None]"


class PromptRequest(ClientRequest):
    """A request that is written as soon as it is asked for."""

    def write_bytes(
        self,
        writer: "AbstractStreamWriter",
        conn: "Connection",
        content_length: int | None = None,
    ) -> Work:
        """What is left to write; mostly nothing."""
        return begun(super().write_bytes(writer, conn, content_length))


REQUEST: type[ClientRequest] = ClientRequest if sys.version_info >= (3, 12) else PromptRequest
"""What a session makes of a call."""


def begun(work: Work) -> Work:
    """The rest of some work, now that it went on until it had to wait."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return _nothing()
    return _rest(work, waits_for)


async def _nothing() -> None:
    """Done already."""


async def _rest(work: Work, waits_for: object) -> None:
    await _steps(work, waits_for)


@types.coroutine
def _steps(work: Work, waits_for: object) -> Generator[Any, Any, None]:
    """Goes on with it as `await` would, which works only from the beginning."""
    while True:
        try:
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 # a cancellation, say, is the work's own
                waits_for = work.throw(error)
            else:
                waits_for = work.send(None)
        except StopIteration:
            return
