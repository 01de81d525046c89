"""aiohttp request whose body is sent at once, for Python 3.11 (decision 0040).

Before Python 3.12 aiohttp sends a request body in a task of its own, queued behind all ready
tasks. When many replies arrive together, no follow-up request leaves before the last reply is
processed: 64 calls in flight leave in bursts, ever further apart, and the provider waits. This
module imports aiohttp; `http.py` loads it with the first call.
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


class EagerRequest(ClientRequest):
    """A request that starts to write its body in the turn that makes it."""

    def write_bytes(
        self,
        writer: "AbstractStreamWriter",
        conn: "Connection",
        content_length: int | None = None,
    ) -> Work:
        """Start to write, and return the coroutine for the rest, which is mostly empty."""
        return start_now(super().write_bytes(writer, conn, content_length))


REQUEST: type[ClientRequest] = ClientRequest if sys.version_info >= (3, 12) else EagerRequest
"""Request class of a session; newer Pythons start the task of a body at once."""


def start_now(work: Work) -> Work:
    """Run a coroutine until it first waits; return a coroutine for the rest."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return _nothing()
    return _rest(work, waits_for)


async def _nothing() -> None:
    """Return at once: the coroutine has ended already."""


async def _rest(work: Work, waits_for: object) -> None:
    # `await` cannot drive a started coroutine, but it can drive this generator-based one
    await _steps(work, waits_for)


@types.coroutine
def _steps(work: Work, waits_for: object) -> Generator[Any, Any, None]:
    """Drive a started coroutine as `await` would, which needs one that is not started."""
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
