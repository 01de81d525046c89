"""Pack: many values in one file, addressed by key.

    kept pack 1
    @entry KEY SIZE DIGEST CRC
    the bytes
    @entry ...

DIGEST is the SHA-256 of the bytes, cut to 24 digits; most keys are that digest. CRC is the CRC-32
of the text between `@entry` and itself. Every read is verified. An index of entry offsets is
written beside the pack when it is closed. Entries that the index lacks or has wrong are found by
walking the headers. Behind a damaged header the walk goes on at the next intact entry.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from kept.core.event import SCHEMA
from kept.errors import JournalError
from kept.store.candidate_files import SPACE, set_aside, write_private
from kept.store.codec import check_version

DIGITS = 24
CHUNK = 1 << 20
"""Bytes of a file that are searched at once."""

LONGEST_HEADER, WINDOW = 256, 16384
"""Maximum bytes of a header, and bytes that are read at once to find headers."""

_VERSION = b"kept pack %d\n"
_INDEX_VERSION = b"kept pack index 1\n"
_MAGIC = b"@entry "
_HEADER = re.compile(rb"@entry ((\S{1,64}) (\d{1,15}) ([0-9a-f]{24})) ([0-9a-f]{8})\n")
_INDEX_LINE = re.compile(rb"((\S{1,64}) (\d{1,15}) (\d{1,15})) ([0-9a-f]{8})\n?")


class Place(NamedTuple):
    """Position of an entry."""

    at: int
    """Offset of its header."""
    header: int
    """Bytes of the header, newline included."""
    size: int

    @property
    def end(self) -> int:
        """Offset of the next entry."""
        return self.at + self.header + self.size + 1


class Pack:
    """A pack with its index, open for reading and, with `writable`, for adding."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self.path = folder / "blobs.pack"
        self._index_path = folder / "blobs.idx"
        self._at: dict[str, Place] = {}
        self._intact: set[str] = set()
        """Keys that were added or verified since the pack was opened."""
        self._unwritten: list[bytes] = []
        self._size = 0
        """Size of the pack, entries that are not written yet included."""
        self._fd = -1
        self._writable = writable
        self._walked = False
        """True once a reader has walked the whole pack."""
        self.dropped = 0
        """Number of bytes of an unfinished last entry that were moved aside."""
        try:
            if writable:
                self._open_for_writing()
            elif self.path.exists():
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                self._size = self._check_version()
                self._skip_index()
        except OSError as error:
            self._release()
            raise JournalError(f"cannot open {self.path}: {error.strerror}", hint=SPACE) from error
        except BaseException:
            self._release()
            raise

    def put(self, data: bytes, key: str | None = None) -> str:
        """Add bytes unless they are there already; return their key."""
        digest = hashlib.sha256(data).hexdigest()[:DIGITS]
        key = key or digest
        if key not in self._intact:
            place = self._at.get(key)
            # damaged entries are added again
            if place is None or self._read(key, place) is None:
                self._add(key, data, digest)
            self._intact.add(key)
        return key

    def _add(self, key: str, data: bytes, digest: str) -> None:
        assert self._writable, "the pack is open for reading only"
        header = _header_of(key, len(data), digest)
        self._unwritten.append(header + data + b"\n")
        place = Place(self._size, len(header), len(data))
        self._size = place.end
        self._at.pop(key, None)  # the index lists entries in the order of the pack
        self._at[key] = place

    def flush(self) -> None:
        """Write added entries; call it before writing anything that refers to them."""
        if not self._unwritten:
            return
        entry = b"".join(self._unwritten)
        try:
            done = os.write(self._fd, entry)
            while done < len(entry):
                done += os.write(self._fd, entry[done:])
        except OSError as error:
            # kept in memory: nothing that refers to it may be written before it
            os.ftruncate(self._fd, self._size - len(entry))
            raise JournalError(f"cannot write {self.path}: {error.strerror}", hint=SPACE) from error
        self._unwritten = []

    def get(self, key: str) -> bytes:
        """Return the verified bytes of a key; raises `JournalError` if missing or damaged."""
        self.flush()
        if key not in self._at:
            self._walk()
        damaged: Place | None = None
        for find in (self._at.get, self._look_up, self._search):
            place = find(key)
            data = None if place is None else self._read(key, place)
            if place is not None and data is not None:
                self._at[key] = place
                return data
            damaged = damaged or place
        # forgotten, so that the same content can be added again
        self._at.pop(key, None)
        self._intact.discard(key)
        what = f"has no entry {key}"
        if damaged is not None:
            what = f"the entry {key} at byte {damaged.at} does not match its digest"
        raise JournalError(
            f"{self.path} {what}" if damaged is None else f"{self.path}: {what}",
            hint="the file was cut or changed by something else: restore it from a copy; "
            "`kept doctor RUN` says what else is damaged",
        )

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def entries(self) -> Iterator[tuple[str, Place]]:
        """Yield all entries in order, by their headers; damaged headers are skipped."""
        if self._fd >= 0:
            yield from self._entries_from(self._check_version(), os.fstat(self._fd).st_size)

    @property
    def start(self) -> int:
        """Offset of the first entry; 0 if the version line is damaged."""
        return self._check_version() if self._fd >= 0 else 0

    def fits_index(self, *, whole: bool = False) -> bool:
        """True if there is no index or its rows are right; with `whole`, none may be missing."""
        if not self._index_path.exists():
            return True
        version, *lines = self._index_path.read_bytes().splitlines(keepends=True) or [b""]
        rows = [_index_row(line) if line.endswith(b"\n") else None for line in lines]
        # without header sizes: a row does not have that of a damaged header
        told = {(row[0], row[1].at, row[1].size) for row in rows if row is not None}
        there = {(key, place.at, place.size) for key, place in self.entries()}
        if whole and not {key for key, *_ in there} <= {key for key, *_ in told}:
            return False
        return version == _INDEX_VERSION and None not in rows and there >= told

    def has_damaged_frame(self, key: str, place: Place) -> bool:
        """True if the header or end of an entry is damaged, whatever its bytes."""
        raw = os.pread(self._fd, place.end - place.at, place.at)
        data = raw[place.header : -1]
        digest = hashlib.sha256(data).hexdigest()[:DIGITS]
        return raw != _header_of(key, len(data), digest) + data + b"\n"

    def is_whole(self, key: str, place: Place) -> bool:
        """True if the entry at a position matches its digest."""
        return self._read(key, place) is not None

    def sync(self) -> None:
        """Sync written data to disk; the only method that another thread may call."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise JournalError(f"cannot sync {self.path}: {error.strerror}", hint=SPACE) from error

    def close(self) -> None:
        """Write added entries and the index, then close the files."""
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            self._release()
            if self._writable:
                # the index is optional: without it the next opening walks the headers
                with suppress(OSError):
                    write_private(self._index_path, self._index())

    def _release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _index(self) -> bytes:
        rows = (f"{key} {p.at} {p.size}".encode() for key, p in self._at.items())
        return _INDEX_VERSION + b"".join([b"%b %08x\n" % (row, crc32(row)) for row in rows])

    def _open_for_writing(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        end = os.fstat(self._fd).st_size
        if end == 0:
            self._begin()
            return
        self._size = self._check_version()
        self._read_index(end)
        self._walk()
        if self._size < end:
            # the rest of an unfinished write, behind the last complete entry
            tail = os.pread(self._fd, end - self._size, self._size)
            set_aside(self.path, tail)
            os.ftruncate(self._fd, self._size)
            self.dropped = len(tail)
        if self._size == 0:
            self._begin()

    def _begin(self) -> None:
        version = _VERSION % SCHEMA
        self._unwritten.append(version)
        self._size = len(version)

    def _check_version(self) -> int:
        """Size of the version line in bytes; 0 if it is damaged."""
        found = re.match(rb"kept pack (\d{1,9})\n", os.pread(self._fd, 64, 0))
        if found is None:
            return 0
        check_version(int(found[1]))
        return found.end()

    def _read_index(self, end: int) -> None:
        """Read the index, all of it or, if any row is wrong, nothing."""
        found: dict[str, Place] = {}
        try:
            version, *lines = self._index_path.read_bytes().splitlines(keepends=True)
        except (FileNotFoundError, ValueError):
            return
        for line in lines:
            row = _index_row(line)
            if version != _INDEX_VERSION or row is None or row[1].end > end:
                return
            found[row[0]] = row[1]
        self._at = found
        self._size = max((place.end for place in found.values()), default=self._size)

    def _skip_index(self) -> None:
        """Set the end of the indexed part, for a reader: it looks keys up in the file instead."""
        end = os.fstat(self._fd).st_size
        if self._index_path.exists():
            with self._index_path.open("rb") as file:
                file.seek(max(0, self._index_path.stat().st_size - 1024))
                last = file.read().splitlines()[-1:]
            row = _index_row(last[0]) if last else None
            if row is not None and row[1].end <= end:
                self._size = row[1].end

    def _look_up(self, key: str) -> Place | None:
        """Position of an entry from the index file, which is searched without loading it."""
        if self._writable or not self._index_path.exists():
            return None
        # with newline and space, so that only whole keys match
        needle, rest = f"\n{key} ".encode(), b"\n"
        with self._index_path.open("rb") as file:
            while chunk := file.read(CHUNK):
                rest += chunk
                at = rest.find(needle)
                if at >= 0:
                    line = (rest[at + 1 :] + file.read(256)).partition(b"\n")[0]
                    row = _index_row(line)
                    return row[1] if row is not None else None
                # a key may span two chunks
                rest = rest[-len(needle) :]
        return None

    def _search(self, key: str) -> Place | None:
        """Position of an entry from all headers, if neither memory nor the index has it right."""
        if self._writable and key not in self._at:
            return None  # a writer walked all headers when it opened the pack
        if self._walked:
            return self._at.get(key)
        self._walked = True
        found: Place | None = None
        for name, place in self.entries():
            if name == key and (found is None or not self.is_whole(key, found)):
                found = place
            self._at.setdefault(name, place)
        return found

    def _read(self, key: str, place: Place) -> bytes | None:
        """Bytes of an entry; None if they do not match its key and digest."""
        raw = os.pread(self._fd, place.header + place.size, place.at) if self._fd >= 0 else b""
        header, data = raw[: place.header], raw[place.header :]
        digest = hashlib.sha256(data).hexdigest()[:DIGITS]
        if digest == key:
            return data
        return data if header == _header_of(key, len(data), digest) else None

    def _walk(self) -> None:
        """Find the entries behind the last known one."""
        end = os.fstat(self._fd).st_size if self._fd >= 0 else 0
        for key, place in self._entries_from(self._size, end):
            self._at[key] = place
            self._size = place.end

    def _entries_from(self, at: int, end: int) -> Iterator[tuple[str, Place]]:
        seen, start = b"", at
        while at < end:
            if at + LONGEST_HEADER > start + len(seen):
                # a window of many headers: most entries are small, and each read costs time
                seen, start = os.pread(self._fd, WINDOW, at), at
            told = _header(seen[at - start : at - start + LONGEST_HEADER])
            if told is not None:
                place = Place(at, told[2], told[1])
                if place.end > end:
                    return
                yield told[0], place
                at = place.end
                continue
            until = self._next_whole(at, end)
            lost = self._headless(at, until)
            if lost is not None:
                yield lost
            at = until

    def _next_whole(self, at: int, end: int) -> int:
        """Offset of the first entry behind an offset that matches its digest, or the end."""
        while at < end:
            chunk = os.pread(self._fd, CHUNK, at)
            hit = chunk.find(_MAGIC)
            if hit < 0:
                at += max(1, len(chunk) - len(_MAGIC) + 1)
                continue
            at += hit
            told = _header(os.pread(self._fd, LONGEST_HEADER, at))
            # content may look like a header, so the digest must match
            if told is not None and self.is_whole(told[0], Place(at, told[2], told[1])):
                return at
            at += 1
        return end

    def _headless(self, at: int, end: int) -> tuple[str, Place] | None:
        """Recover an entry with a damaged header between two offsets, with its digest as key."""
        header, newline, rest = os.pread(self._fd, end - at, at).partition(b"\n")
        if not newline or not rest.endswith(b"\n") or len(header) > LONGEST_HEADER:
            return None
        digest = hashlib.sha256(rest[:-1]).hexdigest()[:DIGITS]
        return digest, Place(at, len(header) + 1, len(rest) - 1)


def _header_of(key: str, size: int, digest: str) -> bytes:
    told = f"{key} {size} {digest}".encode()
    return b"@entry %b %08x\n" % (told, crc32(told))


def _header(raw: bytes) -> tuple[str, int, int] | None:
    """Parse key, size and own length of a header; None if it is damaged."""
    found = _HEADER.match(raw)
    if found is None or crc32(found[1]) != int(found[5], 16):
        return None
    return found[2].decode("ascii", "replace"), int(found[3]), found.end()


def _index_row(line: bytes) -> tuple[str, Place] | None:
    """Parse key and position of an index line; None if it is damaged."""
    found = _INDEX_LINE.fullmatch(line)
    if found is None or crc32(found[1]) != int(found[5], 16):
        return None
    key, size = found[2].decode("ascii", "replace"), int(found[4])
    # 8 digits of the CRC, three spaces and a newline
    header = len(_MAGIC) + len(key) + len(found[4]) + DIGITS + 8 + 4
    return key, Place(int(found[3]), header, size)
