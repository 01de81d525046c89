"""A request to stop: politely once, at once the second time."""

import asyncio
from typing import Any


class Interrupt:
    """Called by a signal handler, heeded by the loop. Made inside a running event loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._polite: asyncio.Future[None] = loop.create_future()
        self._now: asyncio.Future[None] = loop.create_future()

    def __call__(self) -> None:
        """Ask to stop; a second call insists."""
        if not self._polite.done():
            self._polite.set_result(None)
        elif not self._now.done():
            self._now.set_result(None)

    @property
    def asked(self) -> bool:
        """Whether anyone asked."""
        return self._polite.done()

    async def race(self, work: "asyncio.Future[Any]", seconds: float | None = None) -> None:
        """Until the work is done, someone asks to stop, or time is up."""
        both = (work, self._polite)
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def race_now(self, work: "asyncio.Future[Any]") -> None:
        """Until the work is done or someone insists; then the work is cancelled."""
        await asyncio.wait((work, self._now), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
