"""Texts turned into vectors by a provider that speaks like OpenAI, over the same line as chat."""

import asyncio
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import msgspec

from kept.core.llm import Embedded
from kept.core.rollout import FREE, Failure, Usage
from kept.errors import SetupError
from kept.models.endpoint import Line, Question
from kept.models.http import post
from kept.models.prices import embedding_rates_of, warn_of_usage
from kept.models.protocol import Taken, Trouble, bare, is_count, lasting, mapping, maps, passing
from kept.models.providers import PROVIDERS, Entra, ModelConfig, located
from kept.settings import without_login

MOST_TEXTS = 128
"""Of one call; no provider takes fewer, and the reply stays far below what is read of one."""
MOST_BYTES = 250_000
"""Of the texts of one call: a token has a byte at least, and OpenAI takes 300,000 of them."""
MARKS = 2
"""Tokens that a model may put around each text."""
AT_ONCE = 4
"""Calls in flight for one list of texts."""

USUAL = {
    "openai": "text-embedding-3-small",
    "azure_openai": "text-embedding-3-small",
    "ollama": "nomic-embed-text",
}
"""The model of a provider where nobody names one."""


@dataclass(frozen=True, slots=True)
class _Vectors:
    """What one call brought."""

    vectors: tuple["array[float]", ...]
    tokens: int
    counted: bool
    """Whether the server reported a count, true or not."""


class HttpEmbedder:
    """A model of a provider that turns texts into vectors."""

    def __init__(
        self, config: ModelConfig, dimensions: int | None = None, *, entra: Entra | None = None
    ) -> None:
        """`dimensions` is how long vectors are to be, for models that can cut them."""
        self.config = config
        self.name = config.name
        where = without_login(str(config.base_url))
        self.known_by = f"{config.name} at {where} of {dimensions or 'its own'} numbers"
        self.rates = embedding_rates_of(config)
        """None where the price is not known."""
        self._dimensions = dimensions
        self._line = Line(config, "embeddings", entra)

    def worst_usd(self, texts: Sequence[str]) -> float | None:
        """The most that these can cost: a token is a byte at least."""
        return (
            self.rates.worst(sum(_size(text) + MARKS for text in texts), 0) if self.rates else None
        )

    async def embed(self, texts: Sequence[str]) -> Embedded | Failure:
        """A vector for each, in as many calls as it takes; what was paid is told with a failure."""
        gate = asyncio.Semaphore(AT_ONCE)
        failed: list[Failure] = []

        async def one(batch: Sequence[str]) -> Embedded | Failure | None:
            async with gate:
                if failed:
                    return None
                answer = await self._call(batch)
                if isinstance(answer, Failure):
                    failed.append(answer)
                return answer

        answers = await asyncio.gather(*map(one, _batches(texts)))
        done = [answer for answer in answers if isinstance(answer, Embedded)]
        usage = sum((answer.usage for answer in done), FREE)
        if failed:
            return replace(failed[0], usage=failed[0].usage + usage)
        vectors = tuple(vector for answer in done for vector in answer.vectors)
        sizes = {len(vector) for vector in vectors}
        if len(sizes) > 1:
            what = f"`{self.name}` gave vectors of different lengths: {sorted(sizes)}"
            return Failure("server", "infrastructure", what, usage=usage, tried=True)
        return Embedded(vectors, usage)

    async def _call(self, texts: Sequence[str]) -> Embedded | Failure:
        # half a character, or bytes that are no text: no server could read them either
        plain = [text.encode("utf-8", "replace").decode() for text in texts]
        wanted: dict[str, Any] = {"model": self.config.model, "input": plain}
        if self._dimensions is not None:
            wanted["dimensions"] = self._dimensions
        body = msgspec.json.encode(wanted)

        async def hear(headers: Mapping[str, str], body: bytes) -> _Vectors:
            whole = await post(self._line.endpoint, headers, body)
            try:
                return self._heard(whole, len(texts))
            except Trouble as trouble:
                raise trouble.arrive() from None

        question = Question(
            lambda: body, hear, lambda heard: heard.tokens, worst=lambda _: self.worst_usd(texts)
        )
        heard = await self._line.ask(question)
        if isinstance(heard, Failure):
            return heard
        worst = self.worst_usd(texts)
        usd = self.rates.usd(Taken(heard.tokens)) if self.rates else 0.0
        if heard.tokens and (worst is None or usd <= worst):
            return Embedded(heard.vectors, Usage(1, heard.tokens, usd=usd))
        # a server that does not count, or whose counts cannot be true
        if heard.counted:
            warn_of_usage(self.name, bare(self._line.endpoint.url))
        return Embedded(heard.vectors, Usage(1, usd=worst or 0.0))

    def _heard(self, whole: Mapping[str, Any], count: int) -> _Vectors:
        if whole.get("error"):
            raise passing("server", f"`{self.name}` gave up: {str(whole['error'])[:200]}")
        data = maps(whole.get("data"))
        if len(data) != count:
            raise passing("server", f"`{self.name}` gave {len(data)} vectors for {count} texts")
        # most servers keep the order, and OpenAI promises no more than the number
        places = [item.get("index", n) for n, item in enumerate(data)]
        if sorted(map(repr, places)) != sorted(map(repr, range(count))):
            raise passing("server", f"`{self.name}` numbered its {count} vectors wrongly")
        data = [item for _, item in sorted(zip(places, data, strict=True), key=itemgetter(0))]
        vectors: list[array[float]] = []
        for item in data:
            try:
                vector = array("f", item["embedding"])
            except (KeyError, TypeError, OverflowError, ValueError):
                vector = array("f")
            if not len(vector) or not all(map(math.isfinite, vector)):
                raise passing("server", f"`{self.name}` gave something that is no vector")
            vectors.append(vector)
        if self._dimensions is not None and len(vectors[0]) != self._dimensions:
            what = (
                f"`{self.name}` gave vectors of {len(vectors[0])} numbers, not {self._dimensions}"
            )
            raise lasting(what, "leave `embedding_dimensions` out, or name another model")
        tokens = mapping(whole.get("usage")).get("prompt_tokens")
        return _Vectors(tuple(vectors), tokens if is_count(tokens) else 0, bool(tokens))


def make_embedder(config: ModelConfig, dimensions: int | None = None) -> HttpEmbedder:
    """An embedder of a config; a `SetupError` where its provider has none, or it lacks a key."""
    if not embeds(config.provider):
        able = ", ".join(name for name in PROVIDERS if embeds(name))
        raise SetupError(
            f"`{config.provider}` turns no texts into vectors",
            hint=f"name an embedding provider: {able}",
        )
    return HttpEmbedder(located(config), dimensions)


def embeds(provider: str) -> bool:
    """Whether a provider has embeddings, as OpenAI spells them."""
    return PROVIDERS[provider].speech == "chat"


def _batches(texts: Sequence[str]) -> list[Sequence[str]]:
    batches: list[Sequence[str]] = []
    batch: list[str] = []
    size = 0
    for text in texts:
        length = _size(text)
        if batch and (len(batch) == MOST_TEXTS or size + length > MOST_BYTES):
            batches.append(batch)
            batch, size = [], 0
        batch.append(text)
        size += length
    return [*batches, batch] if batch else batches


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
