"""The line to one address of a provider: its key, its pace, and trying again.

Trying again is done here and nowhere else: only here is known what the provider wants (a pause, a
new connection), and only the one call is repeated. A failure that leaves here was tried as often as
makes sense and says so (`Failure.tried`), so that the engine, which tries rollouts again, does not.
"""

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from kept.core.rollout import FREE, Failure, Usage
from kept.engine.scope import BOOKED
from kept.errors import SetupError
from kept.models.config import ModelConfig
from kept.models.entra import Entra
from kept.models.http import Endpoint, fetch_status
from kept.models.limiter import Limiter, limiter_of
from kept.models.providers import key_name, key_of
from kept.models.trouble import Trouble, lasting
from kept.settings import logins, proxy_for, variable

FIRST_WAIT = 0.5
"""Seconds before the second try; doubles with each further one, up to the longest."""
LONGEST_WAIT = 30.0
LATE = 3.0
"""Seconds that the reply to a cancelled call is waited for."""
MOST_PATIENCE = 120.0
"""Seconds that a provider may ask us to wait; one that wants more is given up."""

T = TypeVar("T")


def _nothing(message: str) -> bool:
    return False


def _unknown(size: int) -> float | None:
    return None


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One call: what is sent, how the answer is heard, what it took."""

    body: Callable[[], bytes]
    """Made anew for every try: what was learnt from an error changes it."""
    hear: Callable[[Mapping[str, str], bytes], Coroutine[Any, Any, T]]
    """Send a body with these headers; raises `Trouble`."""
    tokens: Callable[[T], int | None]
    """That an answer took, as the provider counts them; None where it does not."""
    learn: Callable[[str], bool] = _nothing
    """Whether an error says that something may be done without."""
    worst: Callable[[int], float | None] = _unknown
    """The most that a reply can cost to a body of so many bytes."""


class Line:
    """Calls to one address with one key."""

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
        """What must not be shown of the address."""

    async def probe(self, seconds: float) -> int:
        """The status that a plain GET is answered with; raises `Trouble` where there is none."""
        try:
            return await fetch_status(self.endpoint, await self._headers(), seconds)
        except Trouble as trouble:
            trouble.hide(self.logins)
            raise

    async def ask(self, question: Question[T]) -> T | Failure:
        """The answer, or why there is none after as many tries as make sense."""
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
                    tries -= 1
                    continue
                if trouble.failure.arrived and (booking := BOOKED.get()) is not None:
                    # it is paid for: the scope books it, and pays for another try
                    if trouble.again and booking.tries < self._config.tries:
                        return trouble.failure
                    return trouble.final(booking.tries)
                wait = _wait(tries, trouble.after)
                if not trouble.again or tries >= self._config.tries or wait > MOST_PATIENCE:
                    return trouble.final(tries, self.endpoint.url)
            await asyncio.sleep(wait)

    async def _once(self, question: Question[T], limiter: Limiter) -> T:
        body = question.body()
        headers = await self._headers()
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
                    # who wants too much patience is given up, and nobody else waits for that
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
    """The reply to a request that was sent; where that is booked, even if it is cancelled.

    It is to be paid for, so it is waited for a little. What has not come by then is taken for a
    reply that cannot be used.
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
    """What was sent in confidence; the version of a protocol was not."""
    return tuple(value for name, value in headers.items() if name != "anthropic-version")


def url_of(config: ModelConfig, path: str) -> str:
    """Where a provider has what a path names."""
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


def _wait(tries: int, after: float | None) -> float:
    """Seconds until the next try: what the provider says, else longer each time; never in step."""
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1))
    if after is not None:
        return after + random.uniform(0, min(1.0, 0.1 * after))
    return wait * random.uniform(0.5, 1.0)
