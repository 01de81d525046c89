"""Where the vectors of an index are, and which of them lie near another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kept.errors import SetupError
from kept.evaluators.tools.retrieval.ranking import Scores, cosines, unit

if TYPE_CHECKING:
    import numpy as np


class Vectors(Protocol):
    """The vectors of one index."""

    async def nearest(self, vector: Sequence[float], count: int) -> Scores:
        """The cosines of so many that lie nearest."""
        ...


class VectorBase(Protocol):
    """Somebody who keeps vectors for us, and answers for them."""

    async def vectors(self, key: str, count: int) -> Vectors | None:
        """Those of an index, if all of them are there."""
        ...

    async def keep(self, key: str, rows: Sequence[Sequence[float]], texts: Sequence[str]) -> None:
        """Take the vectors of an index, in the place of any that were there."""
        ...

    async def close(self) -> None:
        """Let go of it."""
        ...


class MatrixVectors:
    """In memory: every one is looked at."""

    def __init__(self, rows: "Sequence[Sequence[float]] | np.ndarray[Any, Any]") -> None:
        self._matrix = unit(rows)

    async def nearest(self, vector: Sequence[float], count: int) -> Scores:
        """So many."""
        there = self._matrix.shape[1]
        if len(vector) != there:
            raise SetupError(
                f"the index has vectors of {there} numbers, and the query one of {len(vector)}",
                hint="the model behind that name has changed: take the source in anew",
            )
        return cosines(self._matrix, vector, count)


def packed(rows: Sequence[Sequence[float]]) -> bytes:
    """Vectors as bytes."""
    import numpy as np

    return np.asarray(rows, dtype="<f4").tobytes()


def unpacked(raw: bytes, count: int) -> "np.ndarray[Any, Any] | None":
    """Vectors of bytes; None where these are not so many."""
    import numpy as np

    if not raw or not count or len(raw) % (4 * count):
        return None
    return np.frombuffer(raw, dtype="<f4").reshape(count, -1)
