"""Model client over HTTP with pacing and retries, its factory, and an endpoint probe.

The probe runs before a run and requests the list of models, which is free. Any answer counts
except that of a gateway without a backend. A key may lack the right to list, and small servers
have no list.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, cast

import msgspec

from kept.core.llm import Image, ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure, Usage
from kept.errors import SetupError
from kept.models.anthropic_messages import Messages
from kept.models.context_window import picture_tokens
from kept.models.endpoint import Line, Question, secrets_of
from kept.models.http import events, post
from kept.models.openai_chat import Chat
from kept.models.prices import BYTES, FREE_OF_CHARGE, REPLY, rates_of, warn_of_usage
from kept.models.protocol import (
    Habits,
    Heard,
    Speech,
    Taken,
    Trouble,
    bare,
    hidden,
    passing,
    refused,
)
from kept.models.providers import PROVIDERS, SHAPES, Entra, ModelConfig, config_of, located
from kept.models.structured_output import instructed

MOST_TOKENS = {"openai": 16_384, "azure_openai": 16_384, "anthropic": 8_192}
"""Default token limit of a reply: each call must end, and its worst case must be known before."""

PICTURE = 50_000
"""Upper bound of the tokens that any provider counts for a picture."""

HAIR = 1e-9
"""US dollars by which sums in floating point may differ."""


class HttpModel:
    """Model of an HTTP provider."""

    def __init__(self, config: ModelConfig, *, entra: Entra | None = None) -> None:
        self.config = config
        self.name = config.name
        self.rates = rates_of(config)
        """None if the price is unknown."""
        provider = PROVIDERS[config.provider]
        self._speech: Speech = Messages() if provider.speech == "messages" else Chat()
        # servers that only imitate OpenAI mostly know the older name
        self._habits = Habits(old_limit=not provider.prices)
        defaults: dict[str, Any] = {name: getattr(config, name) for name in SHAPES}
        defaults["max_tokens"] = config.max_tokens or MOST_TOKENS.get(config.provider)
        self._defaults = {name: value for name, value in defaults.items() if value is not None}
        path = "messages" if provider.speech == "messages" else "chat/completions"
        self._line = Line(config, path, entra)
        self._fill: tuple[ModelRequest, ModelRequest] | None = None
        """Last request, and the same with the defaults of the config."""
        self._made: tuple[ModelRequest, bytes] | None = None
        """Last request and its body, which is needed for the price and again for sending."""

    def worst_usd(self, request: ModelRequest) -> float | None:
        """Maximum cost of a reply; None if unknown.

        A token has at least one byte, so a request has at most as many tokens as its JSON has
        bytes.
        """
        if self.rates is FREE_OF_CHARGE:
            return 0.0
        filled = self._filled(request)
        return self._most_usd(filled, len(self._body(filled)))

    def _most_usd(self, filled: ModelRequest, size: int) -> float | None:
        """Maximum cost of a reply to a request of so many bytes."""
        if self.rates is None or (filled.max_tokens is None and self.rates.output.most):
            return None
        pictures = _pictures(filled)
        # providers count a picture by its pixels, however many bytes it takes
        tokens = size - _encoded_size(pictures) + len(pictures) * PICTURE
        return self.rates.worst(tokens, filled.max_tokens or 0)

    def usual_usd(self, request: ModelRequest) -> float | None:
        """Estimated cost of a reply of typical length; None if the price is unknown."""
        if self.rates is None:
            return None
        filled = self._filled(request)
        pictures = _pictures(filled)
        tokens = (len(self._body(filled)) - _encoded_size(pictures)) // BYTES
        tokens += sum(map(picture_tokens, pictures))
        return self.rates.usd(Taken(tokens, min(REPLY, filled.max_tokens or REPLY)))

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """Return one reply, or the failure after all tries."""
        filled = self._filled(request)
        hear = partial(self._hear, filled)
        question = Question(
            lambda: self._body(filled),
            hear,
            _tokens,
            learn=self._learn,
            worst=partial(self._most_usd, filled),
        )
        heard = await self._line.ask(question)
        return heard if isinstance(heard, Failure) else self._answer(*heard)

    async def _hear(
        self, request: ModelRequest, headers: Mapping[str, str], body: bytes
    ) -> tuple[Heard, Usage]:
        heard = await self._read(request, headers, body)
        # before it is stored: echoed secrets would get into journals, caches and artifacts
        heard = _discreet(heard, (*secrets_of(headers), *self._line.logins))
        return heard, self._usage(heard, request, len(body))

    async def _read(self, request: ModelRequest, headers: Mapping[str, str], body: bytes) -> Heard:
        whole: dict[str, Any] | None = None
        try:
            if self.config.stream:
                async with aclosing(events(self._line.endpoint, headers, body)) as told:
                    whole = await self._speech.gather(told)
            else:
                whole = await post(self._line.endpoint, headers, body)
            if whole is None:
                raise passing("network", f"`{self.name}` ended its reply in the middle").arrive()
            if whole.get("error"):
                error = whole["error"]
                said = str(error.get("message", "") if isinstance(error, dict) else error)[:200]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] # any document
                what = f"`{self.name}` gave up in the middle: {said}"
                raise passing("server", what).arrive()
            heard = self._speech.heard(whole)
            if heard is None:
                raise passing("server", f"`{self.name}` answered with nothing").arrive()
        except msgspec.ValidationError as error:
            what = f"`{self.name}` answered with something that is no reply: {error}"
            raise passing("server", what).arrive(self._lost(whole, request, len(body))) from error
        except Trouble as trouble:
            if trouble.failure.arrived:
                trouble.arrive(self._lost(whole, request, len(body)))
            raise
        return heard

    def _lost(self, whole: dict[str, Any] | None, request: ModelRequest, size: int) -> Usage:
        """Cost of an unusable reply: by its counts if they are possible, else the worst case."""
        taken = self._speech.taken(whole) if whole else None
        worst = self._most_usd(request, size)
        if taken is not None and taken.tokens_in:
            usd = self.rates.usd(taken) if self.rates else 0.0
            if worst is None or usd <= worst + HAIR:
                return Usage(1, taken.tokens_in, taken.tokens_out, taken.cached, usd)
        return Usage(1, usd=worst or 0.0)

    def _usage(self, heard: Heard, request: ModelRequest, size: int) -> Usage:
        """Tokens and price of a reply; the worst case if its counts are missing or impossible."""
        taken, worst = heard.taken, self._most_usd(request, size)
        if taken is not None and _is_possible(heard, taken):
            usd = self.rates.usd(taken) if self.rates else 0.0
            if worst is None or usd <= worst + HAIR:
                return Usage(1, taken.tokens_in, taken.tokens_out, taken.cached, usd)
        if any(heard.usage.values()):
            warn_of_usage(self.name, bare(self._line.endpoint.url))
        if worst is None and self.rates is not None:
            # no limit on the length of a reply, but a token has at least one byte
            said = (heard.text, *(call.arguments for call in heard.tool_calls))
            worst = self.rates.worst(size, sum(len(text.encode()) for text in said))
        return Usage(1, usd=worst or 0.0)

    def _filled(self, request: ModelRequest) -> ModelRequest:
        if not self._defaults:
            return request
        last = self._fill
        if last is None or last[0] is not request:
            open_ones = {
                name: value
                for name, value in self._defaults.items()
                if getattr(request, name) is None
            }
            filled = replace(request, **open_ones) if open_ones else request
            last = self._fill = request, filled
        return last[1]

    def _learn(self, message: str) -> bool:
        self._made = None
        return self._habits.learn(message)

    def _body(self, request: ModelRequest) -> bytes:
        made = self._made
        if made is None or made[0] is not request:
            made = self._made = request, self._encoded(request)
        return made[1]

    def _encoded(self, request: ModelRequest) -> bytes:
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
            # lone surrogates, or bytes that are no text: no server could read them either
            return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

    def _answer(self, heard: Heard, usage: Usage) -> ModelReply | Failure:
        if heard.refusal:
            return refused(f"`{self.name}` refused", heard.refusal, usage)
        if not heard.text and not heard.tool_calls:
            early = " before max_tokens were used up" if heard.finish == "length" else ""
            return Failure("empty", "candidate", f"`{self.name}` said nothing{early}", usage=usage)
        return ModelReply(heard.text, usage, heard.finish, heard.tool_calls)


def make(config: ModelConfig) -> HttpModel:
    """Create the model of a config; raise `SetupError` if a key or an address is missing."""
    return HttpModel(located(config))


def _pictures(request: ModelRequest) -> list[Image]:
    return [image for message in request.messages for image in message.images]


def _encoded_size(images: Sequence[Image]) -> int:
    """Bytes that pictures take in a request, encoded as base64."""
    return sum((len(image.data) + 2) // 3 * 4 for image in images)


def _tokens(answer: tuple[Heard, Usage]) -> int | None:
    _, usage = answer
    return usage.tokens_in + usage.tokens_out or None


def _is_possible(heard: Heard, taken: Taken) -> bool:
    """False for counts that contradict the reply or each other."""
    says_something = bool(heard.text or heard.tool_calls)
    counted = taken.tokens_in and (taken.tokens_out or not says_something)
    return bool(counted) and taken.cached + taken.written <= taken.tokens_in


def _discreet(heard: Heard, secrets: tuple[str, ...]) -> Heard:
    """Reply without the secrets of the request."""
    said = (heard.text, heard.refusal, *(call.arguments for call in heard.tool_calls))
    if not secrets and not any("@" in text for text in said):
        return heard  # without an `@` there is no login either
    calls = tuple(
        replace(call, arguments=hidden(call.arguments, secrets)) for call in heard.tool_calls
    )
    text, refusal = hidden(heard.text, secrets), hidden(heard.refusal, secrets)
    if (text, refusal, calls) == (heard.text, heard.refusal, heard.tool_calls):
        return heard
    return replace(heard, text=text, refusal=refusal, tool_calls=calls)


def connect(model: str | ModelConfig) -> Model:
    """Create the model of a text `provider/model` or of a config; may raise `SetupError`."""
    config = config_of(model) if isinstance(model, str) else model
    module, _, function = PROVIDERS[config.provider].maker.partition(":")
    return cast("Model", getattr(import_module(module), function)(config))


AWAY = (502, 503, 504)
"""Statuses of a gateway whose server does not answer."""

TRIES = 4
"""Tries before an endpoint counts as dead: one that answers now and then is alive."""

WAITS = 2
"""Timeouts after which an endpoint counts as dead."""

PAUSE = 0.5
"""Seconds between two tries."""

PATIENCE = 5.0
"""Seconds for one try."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Implements `kept.core.ports.Probe` for one endpoint."""

    config: ModelConfig
    proposes: bool = False
    """True if only proposers use it: a run that only measures does not need it."""
    spared: tuple[Callable[[], bool], ...] = field(default=(), compare=False)
    """If each of these is true, cached replies may suffice, and the endpoint is not probed."""

    async def unreachable(self) -> str | None:
        """Reason why the endpoint cannot be used; None if it answers."""
        if self.spared and all(spare() for spare in self.spared):
            return None
        try:
            line = Line(located(self.config), "models")
        except SetupError as error:
            return error.message
        last, tries = "", 0
        while tries < TRIES:
            await asyncio.sleep(PAUSE if tries else 0)
            tries += 1
            try:
                status = await line.probe(PATIENCE)
            except SetupError:
                return None  # no token: the first call reports the reason
            except Trouble as trouble:
                if not trouble.again:
                    return trouble.failure.message
                last = trouble.failure.message
                if trouble.failure.kind == "timeout" and tries >= WAITS:
                    break
                continue
            if status not in AWAY:
                return None
            last = f"`{self.config.name}` answered {status}"
        return f"{last} ({tries} tries at {bare(line.endpoint.url)})"
