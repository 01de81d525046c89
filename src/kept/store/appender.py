"""A file of checksummed lines that only ever grows.

Every line reaches the kernel before `write` returns, so it survives a killed process; `sync` has it
survive a lost machine. A line that was cut off by a crash is moved to `NAME.torn` when the file is
opened: bytes are never thrown away.
"""

import os
from pathlib import Path

from kept.errors import JournalError
from kept.store import wire
from kept.store.files import SPACE, set_aside


class Appender:
    """The writing end of one file."""

    __slots__ = ("_fd", "dropped", "path", "size")

    def __init__(self, path: Path, header: bytes = b"") -> None:
        """Open a file, which begins with the record `header` if it is new."""
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot("open", path, error) from error
        self.size = os.fstat(self._fd).st_size
        """The offset that the next line is written at."""
        try:
            self.dropped = self._drop_torn_line()
            """Bytes of an unfinished last line that were moved aside."""
            self.size = max(self.size, self._end_of_last_line())
            if header and self.size == 0:
                self.write(header + b"\n")
        except OSError as error:
            self.close()
            raise _cannot("write", path, error) from error
        except JournalError:
            self.close()
            raise

    def write(self, records: bytes) -> int:
        """Append JSON objects, each with its newline; the offset of the first line."""
        start = self.size
        lines: list[bytes] = []
        at = start
        for record in records.split(b"\n")[:-1]:
            line = wire.seal(record, at)
            lines.append(line)
            at += len(line)
        data = b"".join(lines)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:] if written else data)
        except OSError as error:
            self._take_back(written)
            raise _cannot("write", self.path, error) from error
        self.size = at
        return start

    def sync(self) -> None:
        """Have the disk hold what was written."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _cannot("sync", self.path, error) from error

    def blank_out(self, at: int, line: bytes) -> None:
        """Move a damaged line aside; blanks take its place, so that no other line moves."""
        try:
            set_aside(self.path, line)
            # a descriptor that appends ignores the offset of a write
            fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(fd, b" " * (len(line) - 1) + b"\n", at)
            finally:
                os.close(fd)
        except OSError as error:
            raise _cannot("write", self.path, error) from error

    def close(self) -> None:
        """No more lines."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_back(self, written: int) -> None:
        """Undo a half-written line, so that the file stays whole."""
        try:
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
        except OSError:
            return  # dropped as a torn line at the next opening; the first error is the one to tell

    def _drop_torn_line(self) -> int:
        if self.size == 0 or os.pread(self._fd, 1, self.size - 1) == b"\n":
            return 0
        end = self._line_start(self.size)
        torn = os.pread(self._fd, self.size - end, end)
        set_aside(self.path, torn + b"\n")
        os.ftruncate(self._fd, end)
        self.size = end
        return len(torn)

    def _end_of_last_line(self) -> int:
        """Where the last line ended when it was written; lines before it may be missing now."""
        if self.size == 0:
            return 0
        start = self._line_start(self.size - 1)
        line = os.pread(self._fd, self.size - start, start)
        try:
            return wire.unseal(line) + len(line)
        except ValueError:
            return self.size

    def _line_start(self, end: int) -> int:
        """The offset behind the last newline before an offset."""
        while end > 0:
            start = max(0, end - 65536)
            at = os.pread(self._fd, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0


def _cannot(what: str, path: Path, error: OSError) -> JournalError:
    return JournalError(f"cannot {what} {path}: {error.strerror}", hint=SPACE)
