"""A model behind HTTP: asked, paced, tried again, counted.

Trying again is done here and nowhere else: only here is known what the provider wants (a pause, a
new connection), and only the one call is repeated. A failure that leaves here was tried as often as
makes sense and says so (`Failure.tried`), so that the engine, which tries rollouts again, does not.
"""

import asyncio
import json
import random
import time
from contextlib import aclosing
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec

from kept.core.model import ModelReply, ModelRequest
from kept.core.rollout import Failure, Usage
from kept.errors import SetupError
from kept.models.chat import Chat
from kept.models.config import SHAPES, ModelConfig
from kept.models.entra import Entra
from kept.models.http import Endpoint, events, post
from kept.models.limiter import Limiter, limiter_of
from kept.models.messages import Messages
from kept.models.prices import rates_of
from kept.models.providers import PROVIDERS, key_name, key_of, located
from kept.models.speech import Habits, Heard, Speech
from kept.models.structured import instructed
from kept.models.trouble import Trouble, hidden, passing, refused
from kept.settings import proxy_for, variable

FIRST_WAIT = 0.5
"""Seconds before the second try; doubles with each further one, up to the longest."""
LONGEST_WAIT = 30.0
MOST_PATIENCE = 120.0
"""Seconds that a provider may ask us to wait; one that wants more is given up."""

MOST_TOKENS = {"openai": 16_384, "azure_openai": 16_384, "anthropic": 8_192}
"""Of a reply, where nobody says: a call must end, and have a worst case, before it is made."""

PICTURE = 50_000
"""Tokens that no provider counts more than for a picture."""


class HttpModel:
    """A model of a provider."""

    def __init__(self, config: ModelConfig, *, entra: Entra | None = None) -> None:
        self.config = config
        self.name = config.name
        self.rates = rates_of(config)
        """None where the price is not known."""
        provider = PROVIDERS[config.provider]
        self._speech: Speech = Messages() if provider.speech == "messages" else Chat()
        # servers that only speak like OpenAI mostly know the older name
        self._habits = Habits(old_limit=not provider.prices)
        self._entra = entra or Entra(identity=config.identity, scope=config.token_scope)
        self._defaults: dict[str, Any] = {name: getattr(config, name) for name in SHAPES}
        self._defaults["max_tokens"] = config.max_tokens or MOST_TOKENS.get(config.provider)
        self._endpoint = Endpoint(
            config.name,
            _url(config),
            {"content-type": "application/json"},
            key_name(config),
            config.timeout,
            config.stall,
            proxy_for(_url(config)),
        )

    def worst_usd(self, request: ModelRequest) -> float | None:
        """The most that a reply can cost; None where that is not known.

        A token is a byte at least, so a request has no more of them than its JSON has bytes.
        """
        filled = self._filled(request)
        if self.rates is None or (filled.max_tokens is None and self.rates.output.most):
            return None
        pictures = sum(len(message.images) for message in filled.messages)
        tokens = len(self._body(filled)) + pictures * PICTURE
        return self.rates.worst(tokens, filled.max_tokens or 0)

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """One reply, or why there is none after as many tries as make sense."""
        filled = self._filled(request)
        limiter = limiter_of(self.config.base_url or "")
        limiter.limit(self.config.requests_per_minute, self.config.tokens_per_minute)
        tries = 0
        while True:
            tries += 1
            try:
                return self._priced(await self._once(filled, limiter), filled)
            except SetupError as error:
                return Failure("harness", "infrastructure", str(error), tried=True)
            except Trouble as trouble:
                kind = trouble.failure.kind
                if kind == "harness" and self._habits.learn(trouble.failure.message):
                    tries -= 1
                    continue
                wait = _wait(tries, trouble.after)
                if not trouble.again or tries >= self.config.tries or wait > MOST_PATIENCE:
                    return trouble.final(tries)
            await asyncio.sleep(wait)

    async def _once(self, request: ModelRequest, limiter: Limiter) -> Heard:
        body = self._body(request)
        headers = await self._headers()
        guessed = len(body) // 4 + 256
        began = await limiter.begin(guessed)
        try:
            heard = await self._hear(headers, body)
        except BaseException as error:
            limiter.end()
            if isinstance(error, Trouble):
                error.hide(_secrets(headers))
                if error.failure.kind == "rate_limit":
                    # who wants too much patience is given up, and nobody else waits for that
                    patient = error.after is not None and error.after <= MOST_PATIENCE
                    limiter.too_fast(began, error.after if patient else None)
            raise
        limiter.end(guessed, heard.taken.tokens_in + heard.taken.tokens_out)
        limiter.went_well()
        # before anybody keeps it: what a server echoes would be in journals, caches and artifacts
        return _discreet(heard, _secrets(headers))

    async def _hear(self, headers: dict[str, str], body: bytes) -> Heard:
        if self.config.stream:
            async with aclosing(events(self._endpoint, headers, body)) as told:
                whole = await self._speech.gather(told)
        else:
            whole = await post(self._endpoint, headers, body)
        if whole is None:
            raise passing("network", f"`{self.name}` ended its reply in the middle")
        if whole.get("error"):
            raise passing("server", f"`{self.name}` gave up in the middle: {_told(whole)}")
        heard = self._speech.heard(whole)
        if heard is None:
            raise passing("server", f"`{self.name}` answered with nothing")
        return heard

    def _filled(self, request: ModelRequest) -> ModelRequest:
        open_ones = {
            name: value
            for name, value in self._defaults.items()
            if value is not None and getattr(request, name) is None
        }
        return replace(request, **open_ones) if open_ones else request

    def _body(self, request: ModelRequest) -> bytes:
        if request.schema and not self._habits.schema:
            request = instructed(request)
        body = self._speech.body(self.config.model, request, self._habits)
        if self.config.stream:
            body["stream"] = True
            if isinstance(self._speech, Chat):
                body["stream_options"] = {"include_usage": True}
        try:
            return msgspec.json.encode(body)
        except UnicodeEncodeError:
            # half a character, or bytes that are no text: no server could read them either
            return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

    async def _headers(self) -> dict[str, str]:
        key = key_of(self.config)
        if self.config.provider == "anthropic":
            return {"x-api-key": key or "", "anthropic-version": "2023-06-01"}
        if self.config.provider == "azure_openai":
            if key:
                return {"api-key": key}
            key = await self._entra.token(self._endpoint.url, time.time())
        return {"authorization": f"Bearer {key}"} if key else {}

    def _priced(self, heard: Heard, request: ModelRequest) -> ModelReply | Failure:
        taken = heard.taken
        usd = self.rates.usd(taken) if self.rates else 0.0
        if self.rates and not taken.tokens_in + taken.tokens_out:
            # a server that counts nothing: nobody knows more than the most that it can have been
            usd = self.worst_usd(request) or 0.0
        usage = Usage(1, taken.tokens_in, taken.tokens_out, taken.cached, usd)
        if heard.refusal:
            return refused(f"`{self.name}` refused", heard.refusal, usage)
        if not heard.text and not heard.tool_calls:
            early = " before max_tokens were used up" if heard.finish == "length" else ""
            return Failure("empty", "candidate", f"`{self.name}` said nothing{early}", usage=usage)
        return ModelReply(heard.text, usage, heard.finish, heard.tool_calls)


def make(config: ModelConfig) -> HttpModel:
    """A model of a config; a `SetupError` where it lacks a key or an address."""
    return HttpModel(located(config))


def _secrets(headers: dict[str, str]) -> tuple[str, ...]:
    """What was sent in confidence; the version of a protocol was not."""
    return tuple(value for name, value in headers.items() if name != "anthropic-version")


def _discreet(heard: Heard, secrets: tuple[str, ...]) -> Heard:
    """A reply without what was sent in confidence."""
    calls = tuple(
        replace(call, arguments=hidden(call.arguments, secrets)) for call in heard.tool_calls
    )
    text, refusal = hidden(heard.text, secrets), hidden(heard.refusal, secrets)
    return replace(heard, text=text, refusal=refusal, tool_calls=calls)


def _told(whole: dict[str, Any]) -> str:
    error = whole["error"]
    return str(error.get("message", "") if isinstance(error, dict) else error)[:200]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] # any document


def _wait(tries: int, after: float | None) -> float:
    """Seconds until the next try: what the provider says, else longer each time; never in step."""
    wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tries - 1))
    if after is not None:
        return after + random.uniform(0, min(1.0, 0.1 * after))
    return wait * random.uniform(0.5, 1.0)


def _url(config: ModelConfig) -> str:
    base = config.base_url or ""
    if config.provider == "anthropic":
        return f"{base.removesuffix('/v1')}/v1/messages"
    if config.provider != "azure_openai":
        return f"{base}/chat/completions"
    version = config.api_version or variable("AZURE_OPENAI_API_VERSION")
    root = base.removesuffix("/openai/v1").removesuffix("/openai")
    if version is None:
        return f"{root}/openai/v1/chat/completions"
    deployment = quote(config.model, safe="")
    return f"{root}/openai/deployments/{deployment}/chat/completions?api-version={quote(version)}"
