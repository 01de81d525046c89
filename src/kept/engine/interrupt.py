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
        # not `asyncio.wait`: it takes several times as long, and a run waits once for every step
        running = asyncio.get_running_loop()
        woken: asyncio.Future[None] = running.create_future()

        def wake(_: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        both = (work, self._polite)
        for one in both:
            one.add_done_callback(wake)
        timer = None if seconds is None else running.call_later(seconds, wake)
        try:
            await woken
        finally:
            for one in both:
                one.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()

    async def race_now(self, work: "asyncio.Future[Any]") -> None:
        """Until the work is done or someone insists; then the work is cancelled."""
        await asyncio.wait((work, self._now), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
