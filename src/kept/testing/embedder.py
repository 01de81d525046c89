"""An embedder without a provider: texts that share words lie near each other."""

import asyncio
from array import array
from collections.abc import Mapping, Sequence

from kept.core.embedding import Embedded
from kept.core.rollout import Failure, Usage
from kept.testing.server.embeddings import SIZE, vector


class WordEmbedder:
    """Vectors made of words, or those that it is given for a text; every list of texts is a call.

    What the server of `kept.testing.server` answers is made the same way.
    """

    def __init__(
        self,
        given: Mapping[str, Sequence[float]] | None = None,
        *,
        name: str = "words",
        size: int = SIZE,
    ) -> None:
        self.name = name
        self.known_by = f"{name} of {size} numbers"
        self.calls: list[tuple[str, ...]] = []
        """Every list of texts that it was given, failed ones included."""
        self._given = given or {}
        self._size = size
        self._faults: list[Failure] = []

    def fail(self, failure: Failure, times: int = 1) -> None:
        """Have the next calls fail."""
        self._faults.extend([failure] * times)

    def worst_usd(self, texts: Sequence[str]) -> float | None:
        """Nobody charges."""
        return 0.0

    async def embed(self, texts: Sequence[str]) -> Embedded | Failure:
        """A vector for each."""
        self.calls.append(tuple(texts))
        # a real one never answers within the same turn of the event loop
        await asyncio.sleep(0)
        if self._faults:
            return self._faults.pop(0)
        vectors = tuple(array("f", self._vector(text)) for text in texts)
        return Embedded(vectors, Usage(1, sum(len(text) // 4 + 1 for text in texts)))

    def _vector(self, text: str) -> Sequence[float]:
        known = self._given.get(text)
        return vector(text, self._size) if known is None else known
