"""stdout and stderr, made ready for text of any origin."""

import codecs
import io
from typing import TextIO


def tolerate_any_text(*streams: TextIO) -> None:
    """Have streams write whatever a text holds, rather than end the command over it."""
    codecs.register_error("kept", _escape)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="kept")


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Bytes that were no UTF-8 when they were read go out as they came; the rest is spelled out."""
    if isinstance(error, UnicodeEncodeError):
        odd = error.object[error.start : error.end]
        if all("\udc80" <= c <= "\udcff" for c in odd):
            return odd.encode("utf-8", "surrogateescape"), error.end
    return codecs.backslashreplace_errors(error)
