"""stdout and stderr that survive text of any origin and readers that go away."""

import codecs
import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from kept.errors import KeptError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDERR = 2


def make_streams_robust() -> None:
    """Replace `sys.stdout` and `sys.stderr` with streams that no text and no reader can break.

    `kept runs | head` and `kept optimize … 2>&1 | head` end with the exit code of the command's own
    work: once the reader is gone, output is discarded. So it is where a stream is closed from the
    start (`kept optimize … >&-`).
    """
    codecs.register_error("kept", _escape)
    _open_closed_descriptors()
    sys.stdout = _robust(sys.stdout)
    sys.stderr = _robust(sys.stderr)


def _open_closed_descriptors() -> None:
    """Point closed ones at /dev/null, or a file of a run would take the number of stderr."""
    for fd in range(STDERR + 1):
        try:
            os.fstat(fd)
        except OSError:
            # the lowest free number, which is this one
            os.open(os.devnull, os.O_RDWR)


def _robust(stream: TextIO | None) -> TextIO:
    if stream is None:  # it was closed when Python started
        return Path(os.devnull).open("w", encoding="utf-8")
    # tests and notebooks put other objects here, which have no pipe behind them
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="kept")
    binary = cast("TextIO", stream).buffer
    if type(getattr(binary, "raw", binary)) is not io.FileIO:
        return cast("TextIO", stream)
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(stream.fileno())),
        encoding=stream.encoding,
        errors="kept",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Output(io.FileIO):
    """A file descriptor that is pointed at /dev/null once it cannot be written to."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd, "wb", closefd=False)
        # a terminal that was closed fails with EIO, and is no terminal any more
        self._is_terminal = self.isatty()

    def write(self, b: "ReadableBuffer", /) -> int:
        try:
            return super().write(b)
        except BlockingIOError:
            raise
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if self._may_lose(error):
                return super().write(b)
            raise KeptError(f"cannot write the output: {error.strerror}") from error

    def _may_lose(self, error: OSError) -> bool:
        """True where nobody reads any more; and for stderr, whose notes are no result."""
        hung_up = self._is_terminal and error.errno == errno.EIO
        return isinstance(error, BrokenPipeError) or hung_up or self.fileno() == STDERR


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write bytes that were not UTF-8 when read unchanged, and escape everything else."""
    if isinstance(error, UnicodeEncodeError):
        odd = error.object[error.start : error.end]
        if all("\udc80" <= c <= "\udcff" for c in odd):
            return odd.encode("utf-8", "surrogateescape"), error.end
    return codecs.backslashreplace_errors(error)
