"""Embeddings of an OpenAI-compatible provider, over the same endpoint client as chat."""

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
"""Maximum texts per call; every provider accepts that many, and the reply stays small enough."""
MOST_BYTES = 250_000
"""Maximum bytes per call: a token has at least one byte, and OpenAI accepts 300,000 tokens."""
MARKS = 2
"""Tokens that a model may put around each text."""
AT_ONCE = 4
"""Concurrent calls for one list of texts."""

USUAL = {
    "openai": "text-embedding-3-small",
    "azure_openai": "text-embedding-3-small",
    "ollama": "nomic-embed-text",
}
"""Default embedding model of each provider."""


@dataclass(frozen=True, slots=True)
class _Vectors:
    """Result of one call."""

    vectors: tuple["array[float]", ...]
    tokens: int
    counted: bool
    """True if the server reported a count, possible or not."""


class HttpEmbedder:
    """Embedding model of an HTTP provider."""

    def __init__(
        self, config: ModelConfig, dimensions: int | None = None, *, entra: Entra | None = None
    ) -> None:
        """`dimensions` is the length of the vectors, for models that can shorten them."""
        self.config = config
        self.name = config.name
        where = without_login(str(config.base_url))
        self.known_by = f"{config.name} at {where} of {dimensions or 'its own'} numbers"
        self.rates = embedding_rates_of(config)
        """None if the price is unknown."""
        self._dimensions = dimensions
        self._line = Line(config, "embeddings", entra)

    def worst_usd(self, texts: Sequence[str]) -> float | None:
        """Maximum cost of the texts: a token has at least one byte."""
        return (
            self.rates.worst(sum(_size(text) + MARKS for text in texts), 0) if self.rates else None
        )

    async def embed(self, texts: Sequence[str]) -> Embedded | Failure:
        """Return a vector for each text; a failure carries the usage of all calls so far."""
        gate = asyncio.Semaphore(AT_ONCE)
        failed: list[Failure] = []

        async def one(batch: Sequence[str]) -> Embedded | Failure | None:
            async with gate:
                # another batch failed: all vectors are lost, so save the cost of this one
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
        # lone surrogates, or bytes that are no text: no server could read them either
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
        # the server does not count, or its counts are impossible
        if heard.counted:
            warn_of_usage(self.name, bare(self._line.endpoint.url))
        return Embedded(heard.vectors, Usage(1, usd=worst or 0.0))

    def _heard(self, whole: Mapping[str, Any], count: int) -> _Vectors:
        if whole.get("error"):
            raise passing("server", f"`{self.name}` gave up: {str(whole['error'])[:200]}")
        data = maps(whole.get("data"))
        if len(data) != count:
            raise passing("server", f"`{self.name}` gave {len(data)} vectors for {count} texts")
        # most servers keep the order, but OpenAI guarantees only the index
        places = [item.get("index", n) for n, item in enumerate(data)]
        # `repr`, since a server may send an index of any type
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
    """Create an embedder; raise `SetupError` if the provider has none, or a key is missing."""
    if not embeds(config.provider):
        able = ", ".join(name for name in PROVIDERS if embeds(name))
        raise SetupError(
            f"`{config.provider}` turns no texts into vectors",
            hint=f"name an embedding provider: {able}",
        )
    return HttpEmbedder(located(config), dimensions)


def embeds(provider: str) -> bool:
    """True if a provider has OpenAI-compatible embeddings."""
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
