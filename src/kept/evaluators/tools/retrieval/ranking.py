"""Retrieval ranking (keyword, semantic, exact, hybrid) and its vector stores.

Equal scores share a rank and are listed in source order, so results do not depend on sort ties.

Vectors are kept in memory or by Qdrant, as a server or a local folder. A Qdrant collection is
named by the content of its index. Another source or embedding model therefore gets another
collection, and none is ever changed.
"""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from kept.core.rollout import Failure
from kept.engine.user_code import call_apart
from kept.errors import SetupError
from kept.evaluators.tools.retrieval.config import Database, Looking
from kept.models.protocol import hidden
from kept.settings import install_command

if TYPE_CHECKING:
    import numpy as np


Scores = Mapping[int, float]
"""Scores of passages by number; a missing passage was not found."""

DIGITS = 6
"""Digits of a score; differences beyond them are floating-point noise."""

_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"[\"“”„«»]([^\"“”„«»]+)[\"“”„«»]")
_TERM = re.compile(r"[^\s\"“”„«»(),;?!\[\]{}]+")


class Words:
    """Passages prepared for keyword (BM25) and exact search."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    @cached_property
    def _plain(self) -> list[str]:
        return [_plain(text) for text in self._texts]

    @cached_property
    def _bm25(self) -> Any:  # noqa: ANN401 # of a library without types
        try:
            bm25s = import_module("bm25s")
        except ImportError as error:
            raise SetupError(
                "a search by words needs bm25s", hint=install_command("retrieval")
            ) from error
        made = bm25s.BM25()
        # bm25s needs at least one word, and a passage of signs alone has none
        made.index([words_of(text) or [""] for text in self._texts], show_progress=False)
        return made

    def open(self) -> None:
        """Build the word index, which takes a while."""
        _ = self._bm25, self._plain

    def keyword(self, query: str) -> Scores:
        """BM25 scores of the passages that have a word of the query."""
        words = words_of(query)
        scores: list[float] = self._bm25.get_scores(words).tolist() if words else []
        return _found(enumerate(scores))

    def exact(self, query: str) -> Scores:
        """Number of exact terms of a query that a passage contains as whole words."""
        counts: dict[int, int] = {}
        for term in exact_terms(query):
            pattern = re.compile(rf"(?<!\w){re.escape(term)}(?!\w)")
            for n in self._with_all(words_of(term)):
                if pattern.search(self._plain[n]):
                    counts[n] = counts.get(n, 0) + 1
        return _found(counts.items())

    def _with_all(self, words: Sequence[str]) -> Iterable[int]:
        """Passages that contain all of these words, in any place."""
        import numpy as np

        scores = [self._bm25.get_scores([word]) for word in dict.fromkeys(words)]
        return map(int, np.flatnonzero(np.all(scores, axis=0))) if scores else ()


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case and with nothing cut off."""
    return _WORD.findall(text.casefold())


def exact_terms(query: str) -> list[str]:
    """Terms for exact search: the whole query, its quoted parts, and words like names.

    A name has a digit, or a sign between letters: `E-1042`, `max_tokens`, `4.2`.
    """
    named = (term.strip(".:'`") for term in _TERM.findall(query))
    names = (
        term
        for term in named
        if any(sign.isdigit() for sign in term) or re.search(r"\w[-_./:#§]\w", term)
    )
    terms = [query.strip().rstrip("?!."), *_QUOTED.findall(query), *names]
    return list(dict.fromkeys(filter(None, map(_plain, terms))))


def cosines(matrix: "np.ndarray[Any, Any]", vector: Sequence[float], count: int) -> Scores:
    """Cosine similarities of the nearest rows of a unit matrix to a vector."""
    import numpy as np

    aim = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(aim))
    near = matrix @ (aim / length) if length else np.zeros(len(matrix), dtype=np.float32)
    rounded = np.round(near.astype(float), DIGITS)
    # stable: equal ones in the order of the source
    first = np.argsort(-rounded, kind="stable")[:count]
    return dict(zip(map(int, first), map(float, rounded[first]), strict=True))


def unit(vectors: "Sequence[Sequence[float]] | np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Vectors as a matrix of rows of length 1."""
    import numpy as np

    matrix = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths == 0, 1, lengths)


def ranks(scores: Scores) -> Mapping[int, int]:
    """Ranks from 1 by descending score; equal scores share a rank, as in `1, 2, 2, 4`."""
    found: dict[int, int] = {}
    last, rank = None, 0
    for place, (n, score) in enumerate(ordered(scores), 1):
        rank = rank if score == last else place
        last = score
        found[n] = rank
    return found


def ordered(scores: Scores) -> list[tuple[int, float]]:
    """Scores in descending order; equal ones in source order."""
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def fused(parts: Iterable[tuple[float, Scores]], k: int) -> Scores:
    """Weighted reciprocal rank fusion; a passage that is first in all rankings scores 1.

    The sum over rankings of weight x (k + 1) / (k + rank), by the sum of the weights.
    """
    weighed = [(weight, ranks(scores)) for weight, scores in parts if weight > 0]
    total = sum(weight for weight, _ in weighed)
    sums: dict[int, float] = {}
    for weight, ranking in weighed:
        for n, rank in ranking.items():
            sums[n] = sums.get(n, 0.0) + weight / total * (k + 1) / (k + rank)
    return {n: round(score, DIGITS) for n, score in sums.items()}


def chosen(scores: Scores, how: Looking) -> list[tuple[int, float]]:
    """Best `top_k` passages that reach `min_score`."""
    least = how.min_score
    found = [item for item in ordered(scores) if least is None or item[1] >= least]
    return found[: how.top_k]


def shares(scores: Scores) -> Scores:
    """Scores divided by the highest: BM25 and term counts have no fixed scale."""
    most = max(scores.values(), default=0.0)
    return {n: round(score / most, DIGITS) for n, score in scores.items()}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _found(scores: Iterable[tuple[int, Any]]) -> Scores:
    return {n: round(float(score), DIGITS) for n, score in scores if score > 0}


OPTIONS = ("url", "path", "api_key")
"""Options besides `connection_string`, which is a URL or a path."""

MOST_AT_ONCE = 256
"""Maximum number of points per request."""

MEMORY = ":memory:"

PROBE_SECONDS = 3
"""Time limit for the check of a server before a run, in seconds."""

_PASSWORD = re.compile(r"://[^/@]*@")


class Away(Exception):
    """Error of a Qdrant call."""

    def __init__(self, where: str, key: str | None, error: Exception) -> None:
        words = (str(error).splitlines() or [type(error).__name__])[0][:300]
        secrets = (key,) if key else ()
        super().__init__(hidden(f"Qdrant at {where} cannot be used: {words}", secrets))

    @property
    def failure(self) -> Failure:
        """Failure of the call that needed the database."""
        return Failure("server", "infrastructure", str(self))


def where_of(database: Database, home: Path) -> str:
    """Address or folder of a database; `home` if the config names none."""
    options = database.options
    given = database.connection_string or options.get("url") or options.get("path") or home
    return str(given)


def server_of(database: Database, where: str) -> tuple[str, str | None]:
    """The address or folder of a database without secrets, and the API key of a server.

    HoloDeck users put the key into the address: `http://host:6333?api_key=KEY`, or
    `http://KEY@host:6333`.
    """
    option = database.options.get("api_key")
    key = None if option is None else str(option)
    if "://" not in where:
        return where, key
    try:
        parts = urlsplit(where)
    except ValueError:
        # not a URL: strip what may be a secret; the client reports the error
        return _PASSWORD.sub("://", where.partition("?")[0]), key
    query = parse_qsl(parts.query)
    user, _, host = parts.netloc.rpartition("@")
    inside = dict(query).get("api_key") or ("" if ":" in user else unquote(user))
    others = urlencode([(name, value) for name, value in query if name != "api_key"])
    scheme = "http" if parts.scheme == "qdrant" else parts.scheme
    place = parts._replace(scheme=scheme, netloc=host, query=others).geturl()
    return place, key or inside or None


class Qdrant:
    """Qdrant database, opened at first use."""

    def __init__(self, database: Database, home: Path) -> None:
        self.where, self._key = server_of(database, where_of(database, home))
        self._client: Any = None

    async def vectors(self, key: str, count: int) -> "QdrantVectors | None":
        """Vectors of an index; None unless all of them are there."""
        name = f"kept-{key}"
        client = await self._opened()
        try:
            if not await client.collection_exists(name):
                return None
            there = await client.count(name, exact=True)
        except Exception as error:
            raise self._away(error) from error
        return QdrantVectors(self, name) if there.count == count else None

    async def keep(self, key: str, rows: Sequence[Sequence[float]], texts: Sequence[str]) -> None:
        """Store the vectors of an index, in place of existing ones."""
        from qdrant_client import models

        name = f"kept-{key}"
        client = await self._opened()
        made = models.VectorParams(size=len(rows[0]), distance=models.Distance.COSINE)
        try:
            if await client.collection_exists(name):
                await client.delete_collection(name)
            await client.create_collection(name, vectors_config=made)
            for start in range(0, len(rows), MOST_AT_ONCE):
                points = [
                    models.PointStruct(id=n, vector=list(rows[n]), payload={"text": texts[n]})
                    for n in range(start, min(start + MOST_AT_ONCE, len(rows)))
                ]
                await client.upsert(name, points=points, wait=True)
        except Exception as error:
            raise self._away(error) from error

    async def near(self, name: str, vector: Sequence[float], count: int) -> Scores:
        """Cosine similarities of the `count` nearest vectors."""
        client = await self._opened()
        try:
            found = await client.query_points(name, query=list(vector), limit=count)
        except Exception as error:
            raise self._away(error) from error
        return {int(point.id): round(float(point.score), DIGITS) for point in found.points}

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _away(self, error: Exception) -> Away:
        return Away(self.where, self._key, error)

    async def _opened(self) -> Any:  # noqa: ANN401 # of a library that is not always there
        if self._client is None:
            # importing it takes seconds
            library = await call_apart(_library)
            # another task may have opened it meanwhile, and a folder allows one client only
            self._client = self._client or self._open(library)
        return self._client

    def _open(self, library: Any) -> Any:  # noqa: ANN401 # the same
        make = library.AsyncQdrantClient
        if self.where == MEMORY:
            return make(location=MEMORY)
        try:
            if "://" not in self.where:
                return make(path=self.where, force_disable_check_same_thread=True)
            return _remote(make, self.where, self._key)
        except Exception as error:
            raise self._away(error) from error


def unanswered(database: Database) -> str | None:
    """Check a Qdrant server; return the error, None if it works or is a folder."""
    where = where_of(database, Path())
    if "://" not in where:
        return None
    try:
        _probe(*server_of(database, where))
    except Away as away:
        return str(away)
    return None


def _probe(where: str, key: str | None) -> None:
    make = _library().QdrantClient
    try:
        client = _remote(make, where, key, timeout=PROBE_SECONDS)
        try:
            client.collection_exists("kept")
        finally:
            client.close()
    except Exception as error:
        raise Away(where, key, error) from error


def _remote(make: Any, where: str, key: str | None, **more: object) -> Any:  # noqa: ANN401 # of a library that is not always there
    with warnings.catch_warnings():
        # warning about a key over plain http: the user chose that address
        warnings.simplefilter("ignore")
        return make(url=where, api_key=key, check_compatibility=False, **more)


def _library() -> Any:  # noqa: ANN401 # the same
    try:
        return import_module("qdrant_client")
    except ImportError as error:
        raise SetupError(
            "`database.provider: qdrant` needs qdrant-client",
            hint=install_command("retrieval"),
        ) from error


class QdrantVectors:
    """The vectors of one collection."""

    def __init__(self, database: Qdrant, name: str) -> None:
        self._database = database
        self._name = name

    async def nearest(self, vector: Sequence[float], count: int) -> Scores:
        """Cosine similarities of the `count` nearest vectors."""
        return await self._database.near(self._name, vector, count)


class Vectors(Protocol):
    """The vectors of one index."""

    async def nearest(self, vector: Sequence[float], count: int) -> Scores:
        """Cosine similarities of the `count` nearest vectors."""
        ...


class VectorBase(Protocol):
    """Database that stores and searches vectors."""

    async def vectors(self, key: str, count: int) -> Vectors | None:
        """Vectors of an index; None unless all of them are there."""
        ...

    async def keep(self, key: str, rows: Sequence[Sequence[float]], texts: Sequence[str]) -> None:
        """Store the vectors of an index, in place of existing ones."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class MatrixVectors:
    """Vectors in memory, searched exhaustively."""

    def __init__(self, rows: "Sequence[Sequence[float]] | np.ndarray[Any, Any]") -> None:
        self._matrix = unit(rows)

    async def nearest(self, vector: Sequence[float], count: int) -> Scores:
        """Cosine similarities of the `count` nearest vectors."""
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
    """Vectors from bytes; None if their number does not match."""
    import numpy as np

    if not raw or not count or len(raw) % (4 * count):
        return None
    return np.frombuffer(raw, dtype="<f4").reshape(count, -1)
