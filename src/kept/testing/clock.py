"""A clock that stands still unless somebody sleeps.

Sleepers wake in order of time, and the clock jumps to the next one only when everything else has
had its turn: an hour of waiting takes no time, and what happens first is not a matter of luck.
"""

import asyncio
import heapq

PATIENCE = 10
"""Turns of the event loop without a new sleeper before the clock jumps."""


class FakeClock:
    """Implements `kept.core.ports.Clock`."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._start = start
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._watching: asyncio.AbstractEventLoop | None = None
        self.naps: list[float] = []
        """Every length of time that anybody slept, in order."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return self._start + self._now

    def monotonic(self) -> float:
        """Seconds since this clock was made."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass, and wake whoever has slept long enough."""
        self._now += seconds
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Wait for time to pass."""
        self.naps.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, len(self.naps), sleeper))
        if self._watching is not loop:
            self._watching = loop
            loop.call_soon(self._watch, loop, len(self.naps), 0)
        await sleeper

    def _watch(self, loop: asyncio.AbstractEventLoop, naps: int, turns: int) -> None:
        """Jump to the next sleeper's time once nobody else has anything to do."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)
        if not self._sleepers:
            self._watching = None
            return
        if naps != len(self.naps):
            turns = 0
        elif turns >= PATIENCE:
            self.advance(max(0.0, self._sleepers[0][0] - self._now))
            turns = 0
        loop.call_soon(self._watch, loop, len(self.naps), turns + 1)
