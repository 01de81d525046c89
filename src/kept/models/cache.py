"""Cache of model replies across runs, keyed by the whole request and a repeat number.

A sampling model gives a different reply each time. A run that measures this variation must not get
the same reply twice: hence the number, and hence no cache for a run's target by default.
"""

import asyncio
import json
import logging
import sqlite3
import weakref
from collections.abc import Callable
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import FREE, Failure
from kept.errors import SetupError
from kept.models.client import Probe
from kept.models.prices import usual_usd, worst_usd
from kept.store.candidate_files import SPACE, database_trouble

VERSION = 1
"""Version of the file; replies of an earlier one are dropped."""

WAIT = 10.0
"""Seconds to wait for another process that writes."""

DIGEST = 16
"""Bytes of the digest of key and reply that precedes each reply."""

log = logging.getLogger("kept")


class CallCache:
    """A file of replies. Read and write errors count as a miss and are logged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)  # prompts and replies are private
        except OSError as error:
            raise SetupError(f"cannot write to {path}: {error.strerror}", hint=SPACE) from error
        try:
            # statements may come from any thread, one at a time: sqlite3 serializes them
            self._db = sqlite3.connect(
                path, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _useless(path, error) from error
        # also when a cache is garbage-collected: Python 3.13 warns of open connections
        self.close = weakref.finalize(self, self._db.close)
        try:
            self._prepare()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self.close()
            raise _useless(path, error) from error

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        if self._db.execute("PRAGMA user_version").fetchone()[0] < VERSION:
            # earlier versions hold unusable replies, which would be served forever
            self._db.execute("DROP TABLE IF EXISTS replies")
            self._db.execute(f"PRAGMA user_version = {VERSION}")
        self._db.execute("CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply BLOB)")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS models (at TEXT, name TEXT, UNIQUE (at, name))"
        )

    def get(self, key: str) -> ModelReply | None:
        """Return the reply of a key; None if there is none, or it is damaged."""
        try:
            row = self._db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            digest, reply = row[0][:DIGEST], row[0][DIGEST:]
            if digest != _digest(key, reply):
                raise ValueError("it does not match its digest")
            return msgspec.json.decode(reply, type=ModelReply)
        except (sqlite3.Error, msgspec.MsgspecError, ValueError, TypeError) as error:
            log.warning("a reply in %s cannot be read: %s", self.path, error)
            return None

    def put(self, key: str, reply: ModelReply) -> None:
        """Store a reply."""
        data = msgspec.json.encode(reply)
        values = (key, _digest(key, data) + data)
        try:
            self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", values)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            log.warning("a reply cannot be kept in %s: %s", self.path, error)

    def add_model(self, address: str, name: str) -> None:
        """Record that there are replies of this model at this address."""
        try:
            self._db.execute("INSERT OR IGNORE INTO models VALUES (?, ?)", (address, name))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            log.warning("a model cannot be named in %s: %s", self.path, error)

    def has_model(self, address: str, name: str) -> bool:
        """True if there are replies of this model."""
        asked = "SELECT 1 FROM models WHERE at = ? AND name = ?"
        try:
            return self._db.execute(asked, (address, name)).fetchone() is not None
        except (sqlite3.Error, UnicodeDecodeError) as error:
            log.warning("the models in %s cannot be read: %s", self.path, error)
            return False


def _useless(path: Path, error: Exception) -> SetupError:
    why, hint = database_trouble(path, error, "delete the file")
    return SetupError(f"cannot use the cache of calls in {path}: {why}", hint=hint)


def _digest(key: str, reply: bytes) -> bytes:
    return sha256(key.encode() + reply).digest()[:DIGEST]


def _is_any(reply: ModelReply) -> bool:
    return True


class CachedModel:
    """Model with cached replies: each repeat of a request is sent only once."""

    def __init__(
        self,
        model: Model,
        cache: CallCache | Callable[[], CallCache],
        address: str = "",
        probe: Probe | None = None,
    ) -> None:
        """`cache` may be a function that opens it at first use: a mere plan writes no file.

        The `probe` is for the first request that has no cached reply.
        """
        self.name = model.name
        self._model = model
        self._open = cache if callable(cache) else lambda: cache
        self._address = address
        """Address of the model: two servers may use one name for different models."""
        self.probe = probe
        self._answered = False
        self._probing: asyncio.Future[str | None] | None = None
        """Pending probe, shared by all requests that arrive meanwhile."""

    def has_replies(self) -> bool:
        """True if any reply of the model is cached; opens the cache."""
        return self._open().has_model(self._address, self.name)

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """Return the reply of the first repeat."""
        return await self.draw(request, 0)

    async def draw(
        self, request: ModelRequest, repeat: int, is_usable: Callable[[ModelReply], bool] = _is_any
    ) -> ModelReply | Failure:
        """Return the reply of one repeat; a cached one costs nothing.

        An unusable reply is returned but not cached, so that the next call gets a new one.
        """
        kept = self.kept(request, repeat, is_usable)
        if kept is not None:
            return kept
        reply = await self.fresh(request)
        if isinstance(reply, ModelReply) and is_usable(reply):
            self.keep(request, repeat, reply)
        return reply

    def kept(
        self, request: ModelRequest, repeat: int, is_usable: Callable[[ModelReply], bool]
    ) -> ModelReply | None:
        """Cached reply of a repeat, free of charge; None if there is no usable one."""
        kept = self._open().get(self._key(request, repeat))
        # a cached reply may have been stored under other rules
        return replace(kept, usage=FREE) if kept is not None and is_usable(kept) else None

    async def fresh(self, request: ModelRequest) -> ModelReply | Failure:
        """Request a new reply; it is not cached yet."""
        if self.probe is not None and not self._answered:
            why = await self._unreachable(self.probe)
            if why is not None:
                return Failure("harness", "infrastructure", f"nothing answers: {why}", tried=True)
            self._answered = True
        return await self._model.complete(request)

    def keep(self, request: ModelRequest, repeat: int, reply: ModelReply) -> None:
        """Cache a reply for later requests."""
        cache = self._open()
        cache.put(self._key(request, repeat), reply)
        cache.add_model(self._address, self.name)

    async def _unreachable(self, probe: Probe) -> str | None:
        # a probe left by an earlier event loop is done
        if self._probing is None or self._probing.done():
            self._probing = asyncio.ensure_future(probe.unreachable())
        return await asyncio.shield(self._probing)

    def worst_usd(self, request: ModelRequest) -> float | None:
        """Maximum cost of a reply; a cached one may be gone by then, so it counts as new."""
        return worst_usd(self._model, request)

    def usual_usd(self, request: ModelRequest) -> float | None:
        """Estimated cost of a reply of typical length that is not cached."""
        return usual_usd(self._model, request)

    def _key(self, request: ModelRequest, repeat: int) -> str:
        whole = {"at": self._address, "model": self.name, "n": repeat, **asdict(request)}
        text = json.dumps(whole, sort_keys=True, default=lambda data: data.hex())
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
