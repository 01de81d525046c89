"""So many at once and no more, in whatever event loop it is asked for."""

import asyncio


class Turns:
    """Outlives an event loop, as the processes do that it is for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def take(self) -> asyncio.Semaphore:
        """To be entered while a turn lasts."""
        loop = asyncio.get_running_loop()
        if self._of is None or self._of[0] is not loop:
            self._of = (loop, asyncio.Semaphore(self._most))
        return self._of[1]
