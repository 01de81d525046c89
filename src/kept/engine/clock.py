"""Time as it passes; the fake one is in `kept.testing`."""

import asyncio
from time import monotonic, time


class SystemClock:
    """Implements `kept.core.ports.Clock`."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time()

    # read twice for every rollout, so it is the function itself
    monotonic = staticmethod(monotonic)
    """Seconds that never run backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
