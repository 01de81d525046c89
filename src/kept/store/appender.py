"""A file of lines that only ever grows.

Every line reaches the kernel before `write` returns, so it survives a killed process; `sync` has it
survive a lost machine. A line that was cut off by a crash is moved aside when the file is opened.
"""

import os
from pathlib import Path

from kept.errors import JournalError
from kept.store.pack import SPACE


class Appender:
    """The writing end of one file."""

    __slots__ = ("_fd", "dropped", "path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _cannot("open", path, error) from error
        self.size = os.fstat(self._fd).st_size
        self.dropped = self._drop_torn_line()
        """Bytes of an unfinished last line that were moved aside."""

    def write(self, line: bytes) -> int:
        """Append one line, newline included; the offset it starts at."""
        start = self.size
        try:
            written = os.write(self._fd, line)
            while written < len(line):
                written += os.write(self._fd, line[written:])
        except OSError as error:
            self._take_back(start)
            raise _cannot("write", self.path, error) from error
        self.size = start + len(line)
        return start

    def sync(self) -> None:
        """Have the disk hold what was written."""
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise _cannot("sync", self.path, error) from error

    def read(self, start: int, size: int) -> bytes:
        """Bytes that were written before."""
        return os.pread(self._fd, size, start)

    def close(self) -> None:
        """No more lines."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _take_back(self, start: int) -> None:
        """Undo a half-written line, so that the file stays whole."""
        try:
            os.ftruncate(self._fd, start)
        except OSError:
            return  # dropped as a torn line at the next opening; the first error is the one to tell

    def _drop_torn_line(self) -> int:
        if self.size == 0 or os.pread(self._fd, 1, self.size - 1) == b"\n":
            return 0
        end = self.size
        while end > 0:
            start = max(0, end - 65536)
            at = os.pread(self._fd, end - start, start).rfind(b"\n")
            if at >= 0:
                end = start + at + 1
                break
            end = start
        torn = os.pread(self._fd, self.size - end, end)
        with self.path.with_name(self.path.name + ".torn").open("ab") as aside:
            aside.write(torn + b"\n")
        os.ftruncate(self._fd, end)
        self.size = end
        return len(torn)


def _cannot(what: str, path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"cannot {what} {path}: {error.strerror}",
        hint=SPACE,
    )
