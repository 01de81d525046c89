"""Client for one provider endpoint: auth, rate limiter, retries.

The limiter is shared by all callers. It uses requests and tokens per minute where they are known.
On a 429 it halves the calls in flight and waits until the time that the provider names. Every
reply then raises the limit a little.

Retries of calls happen only here. Only this layer knows the provider's demands, such as a pause
or a new connection, and it repeats just one call. A failure that leaves here was retried enough
and says so (`Failure.tried`), so the engine, which retries rollouts, does not retry it.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

from kept.core.rollout import FREE, Failure, Usage
from kept.engine.replay import BOOKED
from kept.errors import SetupError
from kept.models.http import Endpoint, fetch_status
from kept.models.protocol import Trouble, lasting
from kept.models.providers import Entra, ModelConfig, key_name, key_of
from kept.settings import logins, proxy_for, variable

START = float("inf")
"""Initial limit of calls in flight: none, until the provider objects."""


class Bucket:
    """Token bucket: an amount per minute, with a burst of one second's worth."""

    def __init__(self, per_minute: float) -> None:
        self.rate = per_minute / 60
        self._room = max(1.0, self.rate)
        self._level = self._room
        self._then = time.monotonic()

    def wait(self, amount: float) -> float:
        """Take an amount; return the seconds until it may be used. Later callers wait longer."""
        now = time.monotonic()
        self._level = min(self._room, self._level + (now - self._then) * self.rate)
        self._then = now
        self._level -= amount
        return max(0.0, -self._level / self.rate)

    def give_back(self, amount: float) -> None:
        """Return an amount that was not used."""
        self._level = min(self._room, self._level + amount)


class Limiter:
    """Rate limiter: decides when calls may begin."""

    def __init__(self) -> None:
        self.window = START
        """Maximum calls in flight."""
        self.in_flight = 0
        self._requests: Bucket | None = None
        self._tokens: Bucket | None = None
        self._quiet_until = 0.0
        self._halved = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def limit(self, requests: float | None, tokens: float | None) -> None:
        """Set limits per minute; the stricter one wins."""
        self._requests = _stricter(self._requests, requests)
        self._tokens = _stricter(self._tokens, tokens)

    async def begin(self, tokens: int) -> float:
        """Wait until a call of about so many tokens may start; return the time of the start."""
        while self.in_flight >= self.window:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                # if the turn was granted already, `_wake` passes it on to another caller
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
        # the bucket level may go negative: the deficit is the wait of this and later calls
        wait = self._requests.wait(1) if self._requests else 0.0
        if self._tokens:
            wait = max(wait, self._tokens.wait(tokens))
        if wait:
            await asyncio.sleep(wait)
        while (quiet := self._quiet_until - time.monotonic()) > 0:
            await asyncio.sleep(quiet)

    def end(self, guessed: int = 0, used: int | None = None) -> None:
        """End a try; `used` tokens, if known, replace the guessed ones."""
        self.in_flight -= 1
        if used is not None and self._tokens:
            self._tokens.give_back(guessed - used)
        self._wake()

    def went_well(self) -> None:
        """Count a reply: after a whole window of them, one more call may be in flight."""
        if self.window < START:
            self.window += 1 / self.window
            self._wake()

    def too_fast(self, began: float, after: float | None) -> None:
        """Handle a 429 to a call that began then and has ended: fewer calls at once, and a pause.

        Concurrent calls are rejected together: the first of them halves the window, and the others
        show how many the provider still serves.
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
    """Limiter of this address; each event loop has its own, since they share nothing."""
    loop = asyncio.get_running_loop()
    ours = _LIMITERS.get(loop)
    if ours is None:
        ours = _LIMITERS[loop] = {}
    found = ours.get(address)
    if found is None:
        found = ours[address] = Limiter()
    return found


FIRST_WAIT = 0.5
"""Seconds before the second try; doubles with each further one, up to the longest."""
LONGEST_WAIT = 30.0
LATE = 3.0
"""Seconds to wait for the reply to a cancelled call."""
MOST_PATIENCE = 120.0
"""Maximum seconds that a provider may ask us to wait; after a longer demand the call fails."""

T = TypeVar("T")


def _nothing(message: str) -> bool:
    return False


def _unknown(size: int) -> float | None:
    return None


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One call: its body, and how to read the answer and its cost."""

    body: Callable[[], bytes]
    """Build the body, anew for every try: a lesson from an error changes it."""
    hear: Callable[[Mapping[str, str], bytes], Coroutine[Any, Any, T]]
    """Send a body with these headers; raises `Trouble`."""
    tokens: Callable[[T], int | None]
    """Tokens of an answer, as the provider counts them; None if it does not."""
    learn: Callable[[str], bool] = _nothing
    """Adjust to an error about an unsupported parameter; True if a retry makes sense."""
    worst: Callable[[int], float | None] = _unknown
    """Maximum cost of a reply to a body of so many bytes."""


class Line:
    """Client for one address with one key."""

    def __init__(self, config: ModelConfig, path: str, entra: Entra | None = None) -> None:
        url = url_of(config, path)
        self._config = config
        self._entra = entra or Entra(identity=config.identity, scope=config.token_scope)
        self.endpoint = Endpoint(
            config.name,
            url,
            {"content-type": "application/json"},
            key_name(config),
            config.timeout,
            config.stall,
            proxy_for(url),
        )
        self.logins = logins(url)
        """Credentials in the address, which must not be shown."""

    async def probe(self, seconds: float) -> int:
        """Return the status of a plain GET; raise `Trouble` if there is no response."""
        try:
            return await fetch_status(self.endpoint, await self._headers(), seconds)
        except Trouble as trouble:
            trouble.hide(self.logins)
            raise

    async def ask(self, question: Question[T]) -> T | Failure:
        """Return the answer, or the failure after all tries."""
        limiter = limiter_of(self._config.base_url or "")
        limiter.limit(self._config.requests_per_minute, self._config.tokens_per_minute)
        tries = 0
        while True:
            tries += 1
            try:
                return await self._once(question, limiter)
            except SetupError as error:
                return Failure("harness", "infrastructure", str(error), tried=True)
            except Trouble as trouble:
                if trouble.failure.kind == "harness" and question.learn(trouble.failure.message):
                    # the body changed, so this does not count as a try
                    tries -= 1
                    continue
                if trouble.failure.arrived and (booking := BOOKED.get()) is not None:
                    # the reply is paid for: the scope books it, and pays for another try
                    if trouble.again and booking.tries < self._config.tries:
                        return trouble.failure
                    return trouble.final(booking.tries)
                # jitter, so that clients do not retry in step
                if trouble.after is not None:
                    wait = trouble.after + random.uniform(0, min(1.0, 0.1 * trouble.after))
                else:
                    longest = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1))
                    wait = longest * random.uniform(0.5, 1.0)
                if not trouble.again or tries >= self._config.tries or wait > MOST_PATIENCE:
                    return trouble.final(tries, self.endpoint.url)
            await asyncio.sleep(wait)

    async def _once(self, question: Question[T], limiter: Limiter) -> T:
        body = question.body()
        headers = await self._headers()
        # rough estimate: four bytes per token, and 256 tokens of reply
        guessed = len(body) // 4 + 256
        began = await limiter.begin(guessed)
        try:
            heard = await _to_its_end(question.hear(headers, body))
        except BaseException as error:
            limiter.end()
            if isinstance(error, Trouble):
                if error.failure.arrived and error.failure.usage == FREE:
                    error.arrive(Usage(1, usd=question.worst(len(body)) or 0.0))
                error.hide((*secrets_of(headers), *self.logins))
                if error.failure.kind == "rate_limit":
                    # a demand that exceeds our patience fails this call, and must not delay others
                    patient = error.after is not None and error.after <= MOST_PATIENCE
                    limiter.too_fast(began, error.after if patient else None)
            raise
        limiter.end(guessed, question.tokens(heard))
        limiter.went_well()
        return heard

    async def _headers(self) -> dict[str, str]:
        key = key_of(self._config)
        if self._config.provider == "anthropic":
            return {"x-api-key": key or "", "anthropic-version": "2023-06-01"}
        if self._config.provider == "azure_openai":
            if key:
                return {"api-key": key}
            key = await self._entra.token(self.endpoint.url, time.time())
        return {"authorization": f"Bearer {key}"} if key else {}


async def _to_its_end(exchange: Coroutine[Any, Any, T]) -> T:
    """Wait for the reply to a request that was sent, even if a booked call is cancelled.

    The reply is paid for, so we wait for it a few seconds. A later one counts as a reply that
    cannot be used.
    """
    booking = BOOKED.get()
    if booking is None:
        return await exchange
    under_way = asyncio.ensure_future(exchange)
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        booking.late = True
        with suppress(asyncio.CancelledError):
            await asyncio.wait({under_way}, timeout=LATE)
        if under_way.done() and not under_way.cancelled():
            return under_way.result()
        under_way.cancel()
        words = "the call was given up before its reply had arrived"
        raise lasting(words, kind="timeout").arrive() from None


def secrets_of(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Header values that are secret: all but the version of the protocol."""
    return tuple(value for name, value in headers.items() if name != "anthropic-version")


def url_of(config: ModelConfig, path: str) -> str:
    """URL of a path at a provider."""
    base = config.base_url or ""
    if config.provider == "anthropic":
        return f"{base.removesuffix('/v1')}/v1/{path}"
    if config.provider != "azure_openai":
        return f"{base}/{path}"
    version = config.api_version or variable("AZURE_OPENAI_API_VERSION")
    root = base.removesuffix("/openai/v1").removesuffix("/openai")
    if version is None:
        return f"{root}/openai/v1/{path}"
    deployment = quote(config.model, safe="")
    return f"{root}/openai/deployments/{deployment}/{path}?api-version={quote(version)}"
