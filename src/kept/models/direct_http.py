"""Fast request path of aiohttp: requests are written directly to a connection.

The rest of `ClientSession.post` serves redirects, cookies, uploads and logins. It takes half of the
CPU time of a call, and calls to models need none of it (decision 0080). Unusual requests, such as
an address with a login, use the session. This module imports aiohttp; `http.py` loads it with the
first call.

Before Python 3.12 aiohttp sends a request body in a task of its own, queued behind all ready
tasks. When many replies arrive together, no follow-up request leaves before the last reply is
processed. Then 64 calls in flight leave in bursts, ever further apart, and the provider waits. So
bodies are sent at once here.
"""

import asyncio
import sys
import types
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import (
    BaseConnector,
    ClientConnectionError,
    ClientError,
    ClientRequest,
    ClientTimeout,
    http,
)
from yarl import URL

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import Connection
    from aiohttp.streams import StreamReader

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
