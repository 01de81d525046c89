"""Values addressed by key, many to one file.

Entries are a header line and the bytes; beside the pack stands an index of where each begins,
written when the pack is closed. The index is a convenience: what it lacks is found by walking the
headers.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kept.errors import JournalError

SPACE = "free some space or fix the permissions, then resume: what was written is intact"
"""What to do where nothing can be written."""

CHUNK = 1 << 20
"""Bytes of an index that are searched at a time."""

HEADER, WINDOW = 256, 16384
"""Bytes that a header has at most, and that are looked at for headers at a time."""


def _place(lines: Sequence[bytes]) -> tuple[int, int] | None:
    """Where an entry begins and how long it is, by its line of the index; None of no such line."""
    parts = lines[0].decode("ascii", "replace").split() if lines else []
    if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
        return int(parts[1]), int(parts[2])
    return None


class Pack:
    """One pack with its index, open for reading and, with `writable`, for adding."""

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self.path = folder / "blobs.pack"
        self._index_path = folder / "blobs.idx"
        self._at: dict[str, tuple[int, int]] = {}
        self._unwritten: list[bytes] = []
        self._size = 0
        """With what is yet to be written."""
        self._fd = -1
        self._writable = writable
        if writable:
            self._open_for_writing()
        elif self.path.exists():
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            self._skip_index()

    def put(self, data: bytes, key: str | None = None) -> str:
        """Add bytes unless they are there; the key they can be had back by."""
        key = key or hashlib.sha256(data).hexdigest()[:24]
        if key in self._at:
            return key
        header = f"{key} {len(data)}\n".encode()
        assert self._writable, "the pack is open for reading only"
        self._unwritten.append(header + data + b"\n")
        start = self._size + len(header)
        self._size = start + len(data) + 1
        self._at[key] = (start, len(data))
        return key

    def flush(self) -> None:
        """Write what was added; to be called before anything is written that refers to it."""
        if not self._unwritten:
            return
        entry = b"".join(self._unwritten)
        try:
            done = os.write(self._fd, entry)
            while done < len(entry):
                done += os.write(self._fd, entry[done:])
        except OSError as error:
            # it stays to be written: what refers to it must not be written without it
            os.ftruncate(self._fd, self._size - len(entry))
            raise JournalError(f"cannot write {self.path}: {error.strerror}", hint=SPACE) from error
        self._unwritten = []

    def get(self, key: str) -> bytes:
        """The bytes under a key."""
        self.flush()
        if key not in self._at:
            self._walk()
        place = self._at.get(key) or self._look_up(key)
        if place is None:
            raise JournalError(
                f"{self.path} has no entry {key}",
                hint="the file was cut or changed by something else: restore it from a copy",
            )
        return os.pread(self._fd, place[1], place[0])

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def sync(self) -> None:
        """Have the disk hold what was written; the one thing that another thread may do."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise JournalError(f"cannot sync {self.path}: {error.strerror}", hint=SPACE) from error

    def close(self) -> None:
        """Let go of the files."""
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1
        if self._writable:
            rows = "".join(f"{key} {at} {size}\n" for key, (at, size) in self._at.items())
            fresh = self._index_path.with_suffix(".new")
            # a disk too full for the index does not matter: the next opening walks instead
            with suppress(OSError):
                fresh.write_text(rows)
                fresh.replace(self._index_path)

    def _open_for_writing(self) -> None:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o644)
        except OSError as error:
            raise JournalError(f"cannot open {self.path}: {error.strerror}", hint=SPACE) from error
        self._read_index()
        # an entry that a crash cut short is nobody's: its key was never written elsewhere
        if self._size < os.fstat(self._fd).st_size:
            os.ftruncate(self._fd, self._size)

    def _read_index(self) -> None:
        end = os.fstat(self._fd).st_size
        if self._index_path.exists():
            for line in self._index_path.read_bytes().splitlines():
                place = _place([line])
                if place is not None and sum(place) + 1 <= end:
                    self._at[line.partition(b" ")[0].decode("ascii", "replace")] = place
                    self._size = max(self._size, sum(place) + 1)
        self._walk()

    def _skip_index(self) -> None:
        """Begin behind what the index holds: a reader looks up what it wants, and has no list."""
        end = os.fstat(self._fd).st_size
        if self._index_path.exists():
            with self._index_path.open("rb") as file:
                file.seek(max(0, self._index_path.stat().st_size - 1024))
                last = _place(file.read().splitlines()[-1:])
            if last is not None and sum(last) + 1 <= end:
                self._size = sum(last) + 1

    def _look_up(self, key: str) -> tuple[int, int] | None:
        """The place of an entry by the index file, which is searched and not read in."""
        if self._writable or not self._index_path.exists():
            return None
        needle, rest = f"\n{key} ".encode(), b"\n"
        with self._index_path.open("rb") as file:
            while chunk := file.read(CHUNK):
                rest += chunk
                at = rest.find(needle)
                if at >= 0:
                    line = (rest[at + 1 :] + file.read(256)).partition(b"\n")[0]
                    place = _place([line])
                    if place is not None and sum(place) + 1 <= os.fstat(self._fd).st_size:
                        self._at[key] = place
                    return self._at.get(key)
                rest = rest[-len(needle) :]
        return None

    def _walk(self) -> None:
        """Find the entries behind the last one known."""
        end = os.fstat(self._fd).st_size if self._fd >= 0 else 0
        seen, start = b"", self._size
        while self._size < end:
            at = self._size - start
            if at + HEADER > len(seen):
                # many at a time: most entries are small, and each look at the file has its price
                seen, start, at = os.pread(self._fd, WINDOW, self._size), self._size, 0
            header, newline, _ = seen[at : at + HEADER].partition(b"\n")
            key, _, size = header.decode("ascii", "replace").partition(" ")
            begins = self._size + len(header) + 1
            if not newline or not size.isdigit() or begins + int(size) + 1 > end:
                return
            self._at[key] = (begins, int(size))
            self._size = begins + int(size) + 1
