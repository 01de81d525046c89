"""A source on disk: which files it has, what they hold, and the passages that they are cut into."""

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

from kept.errors import SetupError
from kept.evaluators.tools import plain
from kept.evaluators.tools.reading import kind_of, read_document
from kept.evaluators.tools.retrieval.chunking import Chunk, by_heading, by_length
from kept.evaluators.tools.retrieval.config import Ingestion
from kept.evaluators.tools.retrieval.records import SUFFIXES, read_records
from kept.evaluators.tools.unreadable import Unreadable

MOST_BYTES = 64 << 20
"""Of a file that is text already."""

MOST_FILES = 10_000
"""Of a source: a folder with more of them was named by mistake."""

_PAGES = (".html", ".htm", ".xhtml")

log = logging.getLogger("kept")


def files_of(source: Path) -> list[tuple[str, Path]]:
    """The files of a source, each by its name below it; hidden ones are left out."""
    if source.is_file():
        return [(source.name, source)]
    if not source.is_dir():
        raise SetupError(f"there is no {source}", hint="`source` is a file or a folder")
    found: list[tuple[str, Path]] = []
    for path in source.rglob("*"):
        name = path.relative_to(source)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            found.append((name.as_posix(), path))
            if len(found) > MOST_FILES:
                raise SetupError(f"{source} has more than {MOST_FILES:,} files")
    return sorted(found)


def digest_of(source: Path) -> str:
    """A hash of every file of a source, by name and bytes."""
    whole = hashlib.sha256()
    for name, path in files_of(source):
        try:
            with path.open("rb") as file:
                inner = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise SetupError(f"cannot read {path}: {error.strerror}") from error
        whole.update(f"{name}\0{inner}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def chunks_of(how: Ingestion) -> tuple[Chunk, ...]:
    """All passages of a source; a `SetupError` where it has none.

    In a folder, a file that cannot be read is told to the log and left out; a source that is one
    file must be readable.
    """
    found: list[Chunk] = []
    files = files_of(how.source)
    for name, path in files:
        try:
            found += _chunks(name, path, how)
        except Unreadable as error:
            if how.source.is_file():
                raise SetupError(str(error)) from error
            log.warning("%s is left out of the index: %s", path, error)
    if not found:
        raise SetupError(f"there is no text in {how.source}")
    return tuple(found)


def _text(path: Path) -> str:
    """What a file says; one that is text already may say more than a message has room for."""
    if kind_of(path) not in ("text", "csv") or path.suffix.lower() in _PAGES:
        return read_document(path).text
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise Unreadable(
            f"`{path.name}` has {size >> 20} MiB, and at most {MOST_BYTES >> 20} are read"
        )
    try:
        return plain.read(path.read_bytes(), MOST_BYTES)
    except Unreadable as error:
        raise Unreadable(f"`{path.name}` cannot be read: {error}") from error


def _chunks(name: str, path: Path, how: Ingestion) -> Iterator[Chunk]:
    text = _text(path)
    records = None
    if how.records is not None and path.suffix.lower() in SUFFIXES:
        records = read_records(path, text, how.records)
    if records is not None:
        for record in records:
            for passage in by_length(record.text, how.size, how.overlap):
                yield Chunk(passage, f"{name}#{record.name}", meta=record.meta)
    elif how.strategy == "token":
        for passage in by_length(text, how.size, how.overlap):
            yield Chunk(passage, name)
    else:
        for section in by_heading(text, how.depth):
            for passage in by_length(section.body, how.size, how.overlap):
                yield Chunk(passage, name, section.path)
