"""Requests that leave at once, also where aiohttp would have them wait for everybody else's turn.

Before Python 3.12 aiohttp has the body of a request sent by a task of its own, whose turn comes
after all that is ready already. Where many replies arrive together, none of the requests that
follow leaves before the last of those replies is dealt with: 64 calls in flight leave in bursts,
further apart each time, and the provider waits.
"""

import sys
import types
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from aiohttp import ClientRequest

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import Connection

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
