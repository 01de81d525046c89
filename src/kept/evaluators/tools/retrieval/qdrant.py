"""Vectors kept by Qdrant: a server, or a folder on this machine that its client looks after.

A collection is named by what its index was made of, so that an index of another source, or another
model, is another collection, and nothing is ever changed in one.
"""

import re
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from kept.core.rollout import Failure
from kept.engine.threads import call_apart
from kept.errors import SetupError
from kept.evaluators.tools.retrieval.config import Database
from kept.evaluators.tools.retrieval.ranking import DIGITS, Scores
from kept.models.trouble import hidden
from kept.settings import install_command

OPTIONS = ("url", "path", "api_key")
"""What may be said of it besides `connection_string`, which is a url or a path."""

MOST_AT_ONCE = 256
"""Points that are sent together."""

MEMORY = ":memory:"

PROBE_SECONDS = 3
"""How long a server may take to answer before a run."""

_PASSWORD = re.compile(r"://[^/@]*@")


class Away(Exception):
    """Qdrant could not be asked."""

    def __init__(self, where: str, key: str, error: Exception) -> None:
        words = (str(error).splitlines() or [type(error).__name__])[0][:300]
        place = _PASSWORD.sub("://", where)
        super().__init__(hidden(f"Qdrant at {place} cannot be used: {words}", (key,)))

    @property
    def failure(self) -> Failure:
        """Of the use that needed it."""
        return Failure("server", "infrastructure", str(self))


def where_of(database: Database, home: Path) -> str:
    """The address or the folder of a database; Kept's own where the file names none."""
    options = database.options
    given = database.connection_string or options.get("url") or options.get("path") or home
    return str(given)


class Qdrant:
    """One database, opened with its first use."""

    def __init__(self, database: Database, home: Path) -> None:
        self.where = where_of(database, home)
        self._key = database.options.get("api_key")
        self._client: Any = None

    async def vectors(self, key: str, count: int) -> "QdrantVectors | None":
        """Those of an index, if all of them are there."""
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
        """Take the vectors of an index, in the place of any that were there."""
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
        """The cosines of so many that lie nearest."""
        client = await self._opened()
        try:
            found = await client.query_points(name, query=list(vector), limit=count)
        except Exception as error:
            raise self._away(error) from error
        return {int(point.id): round(float(point.score), DIGITS) for point in found.points}

    async def close(self) -> None:
        """Let go of it."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _away(self, error: Exception) -> Away:
        return Away(self.where, str(self._key or ""), error)

    async def _opened(self) -> Any:  # noqa: ANN401 # of a library that is not always there
        if self._client is None:
            # which takes seconds to import
            library = await call_apart(_library)
            # somebody may have been faster, and a folder lets nobody else in
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
    """Ask a Qdrant server whether it can be used; None where it can, or is a folder."""
    where = where_of(database, Path())
    if "://" not in where:
        return None
    try:
        _probe(where, database.options.get("api_key"))
    except Away as away:
        return str(away)
    return None


def _probe(where: str, key: object) -> None:
    make = _library().QdrantClient
    try:
        client = _remote(make, where, key, timeout=PROBE_SECONDS)
        try:
            client.collection_exists("kept")
        finally:
            client.close()
    except Exception as error:
        raise Away(where, str(key or ""), error) from error


def _remote(make: Any, where: str, key: object, **more: object) -> Any:  # noqa: ANN401 # of a library that is not always there
    with warnings.catch_warnings():
        # that a key goes over plain http: whoever wrote the address knows
        warnings.simplefilter("ignore")
        return make(
            url=where, api_key=None if key is None else str(key), check_compatibility=False, **more
        )


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
        """So many."""
        return await self._database.near(self._name, vector, count)
