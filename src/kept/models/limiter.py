"""How fast one provider is asked: one limiter for all who ask it.

Requests and tokens a minute where they are known; else as fast as the provider lets us. On a 429
the number of calls in flight is halved and nobody begins before the time that the provider names;
every reply lets a little more through again.
"""

import asyncio
import time
from collections import deque
from weakref import WeakKeyDictionary

START = float("inf")
"""Calls in flight at first: nothing is known against any number of them."""


class Bucket:
    """So much a minute, a second's worth at once."""

    def __init__(self, per_minute: float) -> None:
        self.rate = per_minute / 60
        self._room = max(1.0, self.rate)
        self._level = self._room
        self._then = time.monotonic()

    def wait(self, amount: float) -> float:
        """Take so much; seconds until it may be used. Those who come after wait longer."""
        now = time.monotonic()
        self._level = min(self._room, self._level + (now - self._then) * self.rate)
        self._then = now
        self._level -= amount
        return max(0.0, -self._level / self.rate)

    def give_back(self, amount: float) -> None:
        """So much was not used after all."""
        self._level = min(self._room, self._level + amount)


class Limiter:
    """Lets calls begin."""

    def __init__(self) -> None:
        self.window = START
        """Calls in flight at most."""
        self.in_flight = 0
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._quiet_until = 0.0
        self._halved = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def limit(self, requests: float | None, tokens: float | None) -> None:
        """Hear of limits a minute; the stricter one counts."""
        self._requests = _stricter(self._requests, requests)
        self._tokens = _stricter(self._tokens, tokens)

    async def begin(self, tokens: int) -> float:
        """Wait until a call of about so many tokens may be made; when that is."""
        while self.in_flight >= self.window:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                # it may have had its turn already, which then is someone else's
                if turn in self._waiting:
                    self._waiting.remove(turn)
                self._wake()
                raise
        self.in_flight += 1
        try:
            await self._pace(tokens)
        except BaseException:
            self.end()
            raise
        return time.monotonic()

    async def _pace(self, tokens: int) -> None:
        wait = self._requests.wait(1) if self._requests else 0.0
        if self._tokens:
            wait = max(wait, self._tokens.wait(tokens))
        if wait:
            await asyncio.sleep(wait)
        while (quiet := self._quiet_until - time.monotonic()) > 0:
            await asyncio.sleep(quiet)

    def end(self, guessed: int = 0, used: int | None = None) -> None:
        """A try is over; what it used, where that is known, takes the place of the guess."""
        self.in_flight -= 1
        if used is not None and self._tokens:
            self._tokens.give_back(guessed - used)
        self._wake()

    def went_well(self) -> None:
        """A reply arrived: one more may be in flight after a window of them."""
        if self.window < START:
            self.window += 1 / self.window
            self._wake()

    def too_fast(self, began: float, after: float | None) -> None:
        """A 429 to a call that began then, and has ended: fewer at once, nobody before it is time.

        Those in flight together are refused together: the first of them halves the window, and the
        others show how many the provider still serves.
        """
        now = time.monotonic()
        if after:
            self._quiet_until = max(self._quiet_until, now + after)
        if began > self._halved:
            self._halved = now
            self.window = max(1.0, min(self.window, self.in_flight + 1) / 2)
        else:
            self.window = max(1.0, min(self.window, self.in_flight))

    def _wake(self) -> None:
        free = self.window - self.in_flight
        while self._waiting and free >= 1:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                free -= 1


def _stricter(bucket: Bucket | None, per_minute: float | None) -> Bucket | None:
    if per_minute is None or (bucket is not None and bucket.rate <= per_minute / 60):
        return bucket
    return Bucket(per_minute)


_LIMITERS: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Limiter]] = WeakKeyDictionary()


def limiter_of(address: str) -> Limiter:
    """The one for this address; an event loop has its own, since nothing is shared between two."""
    loop = asyncio.get_running_loop()
    ours = _LIMITERS.get(loop)
    if ours is None:
        ours = _LIMITERS[loop] = {}
    found = ours.get(address)
    if found is None:
        found = ours[address] = Limiter()
    return found
