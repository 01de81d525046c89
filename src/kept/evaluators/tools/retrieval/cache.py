"""Indexes kept for other runs, a file each, by what they were made of.

A file is written beside its place and then moved there, and begins with the hash of the rest: what
was torn is no index, and is made again.
"""

import fcntl
import hashlib
import logging
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kept.evaluators.tools.retrieval.chunking import Chunk

log = logging.getLogger("kept")


class Stored(msgspec.Struct, frozen=True):
    """An index at rest."""

    chunks: tuple[Chunk, ...]
    vectors: bytes = b""
    """Rows of float32, one a chunk; empty where there are none, or another keeps them."""


class IndexCache:
    """A folder of indexes. What cannot be read or written is told to the log, and made again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Stored | None:
        """The index that is kept under a key, if it is whole."""
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
        """Keep an index: all of it, or nothing."""
        raw = msgspec.msgpack.encode(stored)
        scratch: str | None = None
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # readable by nobody else, as `mkstemp` makes it: documents may be nobody's business
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
        """Whether nobody else makes this index now; the lock goes with the process that has it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / f"{key}.lock").open("w")
        except OSError:
            # where nothing can be written, nobody else can either
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
