"""Time as it passes; the fake one is in `kept.testing`."""

import asyncio
import time


class SystemClock:
    """Implements `kept.core.ports.Clock`."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never run backwards."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
