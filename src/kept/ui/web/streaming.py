"""What streams and slow work need of the server."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request

T = TypeVar("T")


def gone(request: Request) -> Callable[[], Awaitable[bool]]:
    """Whether nobody listens any more, or the server is about to end."""

    async def look() -> bool:
        return request.app.state.ending() or await request.is_disconnected()

    return look


async def in_thread(work: Callable[[], T]) -> T:
    """Have it done beside the server, which goes on answering."""
    return await asyncio.to_thread(work)
