"""Retrieval index: built once for a source, cached on disk, searched by many rollouts.

The source is hashed on first use, and the run keeps to that version if files change later.
Nothing is embedded before the first query.

A cache file is named by its source, written beside its place and then moved there. It begins with
the hash of the rest: a torn file is ignored and rebuilt.
"""

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from kept.core.llm import Embedded
from kept.core.ports import Embedder
from kept.core.rollout import FREE, Failure, Usage
from kept.engine.user_code import call_apart
from kept.errors import SetupError
from kept.evaluators.tools.retrieval.config import Ingestion, Looking
from kept.evaluators.tools.retrieval.ranking import (
    Away,
    MatrixVectors,
    Scores,
    VectorBase,
    Vectors,
    Words,
    chosen,
    fused,
    packed,
    shares,
    unpacked,
)
from kept.evaluators.tools.retrieval.sources import Chunk, chunks_of, digest_of

log = logging.getLogger("kept")


class Stored(msgspec.Struct, frozen=True):
    """Stored index."""

    chunks: tuple[Chunk, ...]
    vectors: bytes = b""
    """Rows of float32, one per chunk; empty if there are none or a database keeps them."""


class IndexCache:
    """Folder of cached indexes; errors are logged and the index is built again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Stored | None:
        """Cached index of a key; None if it is missing or damaged."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the index %s cannot be read: %s", path, error)
            return None
        if hashlib.sha256(raw[32:]).digest() != raw[:32]:
            log.warning("the index %s is torn, and made again", path)
            return None
        try:
            return msgspec.msgpack.decode(raw[32:], type=Stored)
        except msgspec.MsgspecError as error:
            log.warning("the index %s cannot be read: %s", path, error)
            return None

    def put(self, key: str, stored: Stored) -> None:
        """Write an index atomically."""
        raw = msgspec.msgpack.encode(stored)
        scratch: str | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # `mkstemp` makes it readable for the user only: documents may be private
            handle, scratch = tempfile.mkstemp(prefix=".new-", dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(raw).digest() + raw)
                file.flush()
                os.fsync(file.fileno())
            Path(scratch).replace(self._path(key))
        except OSError as error:
            log.warning("an index cannot be kept in %s: %s", self.folder, error)
            if scratch is not None:
                Path(scratch).unlink(missing_ok=True)

    @contextmanager
    def trying(self, key: str) -> Generator[bool]:
        """Yield True if no other process builds this index now; a lock ends with its process."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / f"{key}.lock").open("w")
        except OSError:
            # if the folder cannot be written, no other process can build there either
            yield True
            return
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.index"


VERSION = 1
"""Version of chunking and storage; a new version rebuilds every index."""

LOOKED_AT = 100
"""Minimum number of nearest passages that get a rank when rankings are fused."""

PAUSE = 0.05
"""Interval in seconds of checks whether another process has built the index."""


class Passage(NamedTuple):
    """Chunk that was found, with a score up to 1 that depends on the search mode."""

    chunk: Chunk
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a query."""

    passages: tuple[Passage, ...]
    usage: Usage = FREE


class Index:
    """Searchable passages of one source; `embedder` is None for a search by words only."""

    def __init__(
        self,
        how: Ingestion,
        embedder: Embedder | None,
        cache: IndexCache,
        base: VectorBase | None = None,
        *,
        force: bool = False,
    ) -> None:
        """With `force`, ignore the cache and build the index again."""
        self._how = how
        self._embedder = embedder
        self._cache = cache
        self._base = base
        self._force = force
        self._reading = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._stored: Stored | None = None
        self._vectors: Vectors | None = None
        self._words: Words | None = None
        self._counted = False
        self._attempts: int = 0
        self._failed: Failure | None = None
        self.key = ""
        """Hash of all inputs of the index; empty before it is read."""

    async def read(self) -> Failure | None:
        """Hash the source and load the cached index, or split the source; embeds nothing."""
        async with self._reading:
            if self._stored is None:
                try:
                    self.key, self._stored = await call_apart(self._read)
                except SetupError as error:
                    return _broken(error)
        return None

    def _read(self) -> tuple[str, Stored]:
        digest = digest_of(self._how.source)
        key = _key(self._how, digest, self._embedder)
        kept = None if self._force else self._cache.get(key)
        if kept is not None:
            return key, kept
        chunks = chunks_of(self._how)
        if digest_of(self._how.source) != digest:
            raise SetupError(f"{self._how.source} changed while it was read")
        if self._embedder is None:
            self._cache.put(key, Stored(chunks))
        return key, Stored(chunks)

    def worst_usd(self, query: str, how: Looking) -> float | None:
        """Upper bound of a query's cost in USD, with embedding the source if not done yet."""
        if self._embedder is None or not _semantic(how):
            return 0.0
        texts = [query]
        if self._vectors is None and not (self._stored and self._stored.vectors):
            texts += [chunk.whole for chunk in self._chunks]
        return self._embedder.worst_usd(texts)

    async def search(self, query: str, how: Looking) -> Found | Failure:
        """Passages that answer a query, the best first."""
        failure = await self.read()
        if failure is not None:
            return failure
        try:
            return await self._search(query, how)
        except SetupError as error:
            return _broken(error)
        except Away as error:
            return error.failure

    @property
    def _chunks(self) -> tuple[Chunk, ...]:
        return self._stored.chunks if self._stored else ()

    async def _search(self, query: str, how: Looking) -> Found | Failure:
        near: Scores = {}
        usage = FREE
        if _semantic(how):
            opened = await self._open()
            if isinstance(opened, Failure):
                return opened
            found = await self._near(query, how)
            if isinstance(found, Failure):
                return replace(found, usage=found.usage + opened)
            near, usage = found[0], found[1] + opened
        scores = near if how.mode == "semantic" else await self._by_words(query, how, near)
        passages = tuple(Passage(self._chunks[n], score) for n, score in chosen(scores, how))
        return Found(passages, usage)

    async def _by_words(self, query: str, how: Looking, near: Scores) -> Scores:
        words = await self._counted_words()
        if how.mode == "keyword":
            return shares(words.keyword(query))
        if how.mode == "exact":
            return shares(words.exact(query))
        parts = (
            (how.semantic_weight, near),
            (how.keyword_weight, words.keyword(query)),
            (how.exact_weight, words.exact(query)),
        )
        return fused(parts, how.rrf_k)

    async def _near(self, query: str, how: Looking) -> tuple[Scores, Usage] | Failure:
        assert self._embedder is not None and self._vectors is not None
        asked = await self._embedder.embed([query])
        if isinstance(asked, Failure):
            return asked
        count = how.top_k if how.mode == "semantic" else max(LOOKED_AT, how.top_k)
        return await self._vectors.nearest(asked.vectors[0], count), asked.usage

    async def _counted_words(self) -> Words:
        async with self._reading:
            if self._words is None:
                self._words = Words([chunk.whole for chunk in self._chunks])
            if not self._counted:
                await call_apart(self._words.open)
                self._counted = True
        return self._words

    async def _open(self) -> Usage | Failure:
        """Load or make the vectors; only the caller that did the work gets the usage.

        Callers that wait during a failure get the same failure; later ones try again.
        """
        attempt = self._attempts
        async with self._opening:
            if self._vectors is not None:
                return FREE
            if self._failed is not None and self._attempts != attempt:
                return replace(self._failed, usage=FREE)
            try:
                opened = await self._opened()
            except (SetupError, Away) as error:
                opened = _broken(error) if isinstance(error, SetupError) else error.failure
            self._attempts += 1
            self._failed = opened if isinstance(opened, Failure) else None
            return opened

    async def _opened(self) -> Usage | Failure:
        """Load cached vectors, wait for another process that builds them, or embed now."""
        while True:
            if not self._force and await self._at_hand():
                return FREE
            with self._cache.trying(self.key) as alone:
                if alone:
                    # another process may have just finished
                    if not self._force and await self._at_hand():
                        return FREE
                    return await self._embed()
            await asyncio.sleep(PAUSE)

    async def _at_hand(self) -> bool:
        if self._base is not None:
            self._vectors = await self._base.vectors(self.key, len(self._chunks))
        else:
            stored = self._stored
            if stored is None or not stored.vectors:
                stored = await call_apart(self._cache.get, self.key)
            rows = unpacked(stored.vectors, len(stored.chunks)) if stored else None
            self._vectors = None if rows is None else MatrixVectors(rows)
        return self._vectors is not None

    async def _embed(self) -> Usage | Failure:
        if self._embedder is None:
            raise SetupError("a search by meaning needs an embedding provider")
        texts = [chunk.whole for chunk in self._chunks]
        embedded = await self._embedder.embed(texts)
        if isinstance(embedded, Failure):
            # no other query would fix it
            return replace(embedded, blame="infrastructure", tried=True)
        await self._keep(embedded, texts)
        self._force = False
        return embedded.usage

    async def _keep(self, embedded: Embedded, texts: Sequence[str]) -> None:
        rows = embedded.vectors
        if self._base is not None:
            await self._base.keep(self.key, rows, texts)
            self._vectors = await self._base.vectors(self.key, len(rows))
            stored = Stored(self._chunks)
        else:
            self._vectors = MatrixVectors(rows)
            stored = Stored(self._chunks, packed(rows))
        await call_apart(self._cache.put, self.key, stored)


def _semantic(how: Looking) -> bool:
    return how.mode == "semantic" or (how.mode == "hybrid" and how.semantic_weight > 0)


def _key(how: Ingestion, digest: str, embedder: Embedder | None) -> str:
    made_of = asdict(how)
    # neither the place of a source nor the key of a database changes the content
    del made_of["source"]
    made_of["database"]["options"].pop("api_key", None)
    whole = {"version": VERSION, "of": digest, "by": embedder and embedder.known_by, **made_of}
    text = json.dumps(whole, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _broken(error: SetupError) -> Failure:
    return Failure("harness", "infrastructure", str(error), tried=True)
