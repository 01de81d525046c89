"""Replies kept for other runs, by the whole request and the number of the draw.

A model that draws its answers gives a different one each time, and a run that wants to know how far
they differ must not be told the same one twice: hence the number, and hence no cache for the target
of a run unless somebody asks for it.
"""

import json
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import msgspec

from kept.core.model import ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import FREE, Failure
from kept.errors import SetupError
from kept.models.pricing import usual_usd, worst_usd

WAIT = 10.0
"""Seconds that another process may take to write."""

log = logging.getLogger("kept")


class CallCache:
    """A file of replies. What cannot be read or written is a miss, and told to the log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)  # prompts and replies are nobody else's business
        try:
            # statements from any thread, one at a time: sqlite3 itself sees to that
            self._db = sqlite3.connect(
                path, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply BLOB)"
            )
        except sqlite3.Error as error:
            raise SetupError(
                f"cannot use the cache of calls in {path}: {error}", hint="delete the file"
            ) from error

    def get(self, key: str) -> ModelReply | None:
        """The reply that is kept under a key."""
        try:
            row = self._db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=ModelReply)
        except (sqlite3.Error, msgspec.MsgspecError) as error:
            log.warning("a reply in %s cannot be read: %s", self.path, error)
            return None

    def put(self, key: str, reply: ModelReply) -> None:
        """Keep a reply."""
        values = (key, msgspec.json.encode(reply))
        try:
            self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?)", values)
        except sqlite3.Error as error:
            log.warning("a reply cannot be kept in %s: %s", self.path, error)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()


class CachedModel:
    """A model whose replies are kept: the same draw of the same request is asked for once."""

    def __init__(
        self, model: Model, cache: CallCache | Callable[[], CallCache], address: str = ""
    ) -> None:
        """A cache that is to be opened is opened with the first call: a plan alone writes none."""
        self.name = model.name
        self._model = model
        self._open = cache if callable(cache) else lambda: cache
        self._address = address
        """Where the model is: two servers may call different models by one name."""

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """The first draw."""
        return await self.draw(request, 0)

    async def draw(self, request: ModelRequest, repeat: int) -> ModelReply | Failure:
        """One draw by its number; one that is kept costs nothing."""
        cache, key = self._open(), self._key(request, repeat)
        kept = cache.get(key)
        if kept is not None:
            return replace(kept, usage=FREE)
        reply = await self._model.complete(request)
        if isinstance(reply, ModelReply):
            cache.put(key, reply)
        return reply

    def worst_usd(self, request: ModelRequest) -> float | None:
        """The most that a reply can cost; what is kept may be gone by then, so it counts as new."""
        return worst_usd(self._model, request)

    def usual_usd(self, request: ModelRequest) -> float | None:
        """What a reply of middling length costs that was not kept before."""
        return usual_usd(self._model, request)

    def _key(self, request: ModelRequest, repeat: int) -> str:
        whole = {"at": self._address, "model": self.name, "n": repeat, **asdict(request)}
        text = json.dumps(whole, sort_keys=True, default=lambda data: data.hex())
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
