"""Files that cannot be what their names say: empty, cut off, or of another kind.

Only what nobody could use is refused; what is merely odd is noted.
"""

import csv
import io
import struct
from collections.abc import Iterator

from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.presence import owed
from kept.orchestrator.checks.texts import flaw, suffix_of, text_of, told
from kept.orchestrator.record import Finding

LEAST_PICTURE = 500
"""Bytes below which a picture shows nothing."""

LEAST_SIDE = 10
"""Pixels below which it shows nothing either."""

_PNG = b"\x89PNG\r\n\x1a\n"
BEGINNINGS = {
    ".png": (_PNG,),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"),
    ".pdf": (b"%PDF-",),
    ".docx": (b"PK\x03\x04",),
    ".xlsx": (b"PK\x03\x04",),
    ".pptx": (b"PK\x03\x04",),
    ".zip": (b"PK\x03\x04", b"PK\x05\x06"),
}
"""What files of a kind begin with."""

_EMPTY_IS_FINE = ("__init__.py", ".gitkeep", ".nojekyll", "py.typed")


def file(submission: Submission) -> CheckResult:
    """No file that is broken."""
    declared = set(owed(submission))
    broken: list[Finding] = []
    notes: list[Finding] = []
    for path in sorted(submission.files):
        for found in _faults(path, submission.files[path]):
            # an empty file that nobody asked for harms nobody
            idle = found.rule == "empty" and path not in declared and len(declared) > 0
            (notes if idle else broken).append(found)
    if not broken:
        return Passed(notes=tuple(notes))
    words = "; ".join(map(told, broken))
    return Rejected(reason=f"files are broken: {words}", findings=tuple(broken))


def _faults(path: str, data: bytes) -> Iterator[Finding]:
    if not data:
        if path.rpartition("/")[2] not in _EMPTY_IS_FINE:
            yield flaw(path, "is empty", "empty")
        return
    kind = suffix_of(path)
    beginnings = BEGINNINGS.get(kind)
    if beginnings and not data.startswith(beginnings):
        yield flaw(path, f"is no {kind.removeprefix('.').upper()} file", "kind")
    elif kind == ".png":
        yield from _picture(path, data)
    elif kind in (".csv", ".tsv"):
        yield from _table(path, data)


def _picture(path: str, data: bytes) -> Iterator[Finding]:
    if len(data) < 24 or b"IEND" not in data[-16:]:
        yield flaw(path, "is cut off", "cut")
        return
    width, height = struct.unpack(">II", data[16:24])
    if width < LEAST_SIDE or height < LEAST_SIDE:
        yield flaw(path, f"is {width} by {height} pixels", "small")
    elif len(data) < LEAST_PICTURE:
        yield flaw(path, f"has {len(data)} bytes: there is nothing to see on it", "small")


def _table(path: str, data: bytes) -> Iterator[Finding]:
    text = text_of(path, data)
    if text is None:
        yield flaw(path, "is called a table and is no text", "kind")
        return
    try:
        rows = sum(any(row) for row in csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        yield flaw(path, f"cannot be read as a table: {error}", "rows")
        return
    if rows < 2:
        yield flaw(path, "has no rows below its heading", "rows")
