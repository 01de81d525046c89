"""One file: what kind it is, whether it may be read, and who reads it."""

import stat
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from kept.core.model import Image
from kept.evaluators.tools import excel, pdf, pictures, plain, powerpoint, word
from kept.evaluators.tools.unreadable import Unreadable
from kept.sandbox.bounded import MEMORY, BoundedCalls, CallRaised
from kept.sandbox.child import ChildEnded

Kind = Literal["image", "pdf", "text", "excel", "word", "powerpoint", "csv"]
"""What a case file calls them."""

MOST_BYTES = 64 * 1024 * 1024
"""Of a file on disk, whatever its kind."""

MOST_UNPACKED = 512 * 1024 * 1024
"""Bytes of an office file once it is unpacked; a small one may hold far more than it shows."""

MOST_XML = 64 * 1024 * 1024
"""Bytes of the XML of a Word or PowerPoint file, whose elements are all in memory at once."""

MOST_TEXT = 4_000_000
"""Characters of a document: four times what the longest of windows holds."""

MOST_SECONDS = 60.0
"""For taking one file apart."""

_CALLS = BoundedCalls("kept.evaluators.tools.reading:parse_text")

_KINDS: dict[str, Kind] = {
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp"), "image"),
    **dict.fromkeys((".xlsx", ".xlsm"), "excel"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    ".pdf": "pdf",
    ".docx": "word",
    ".pptx": "powerpoint",
}
_OLD = {".doc": ".docx", ".xls": ".xlsx", ".ppt": ".pptx"}
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says."""

    text: str = ""
    images: tuple[Image, ...] = ()


def kind_of(path: Path) -> Kind:
    """The kind that the name of a file tells; what tells nothing is taken for text."""
    return _KINDS.get(path.suffix.lower(), "text")


def read_document(
    path: Path,
    *,
    kind: Kind | None = None,
    pages: Sequence[int] | None = None,
    sheet: str | None = None,
    range: str | None = None,
) -> Document:
    """What a file says; raises `Unreadable` with the reason where it cannot be told.

    `pages` are numbers from 1, of a pdf or of slides; `sheet` is one of a workbook, and `range`
    cells of it as in `A1:E100`.
    """
    kind = kind or kind_of(path)
    if kind in ("pdf", "word", "powerpoint", "excel") or _is_page(path):
        given = {"pages": pages, "sheet": sheet, "range": range}
        return Document(_read_apart(path.absolute(), {"kind": kind, **given}))
    return parse_document(path, kind, pages=pages, sheet=sheet, range=range)


def parse_document(
    path: Path,
    kind: Kind,
    *,
    pages: Sequence[int] | None = None,
    sheet: str | None = None,
    range: str | None = None,
) -> Document:
    """The same in this process: what a library makes of a hostile file has no bound in time."""
    try:
        _check_asked(kind, pages, sheet if range is None else range)
        data = _bytes(path)
        match kind:
            case "image":
                return Document(images=(pictures.read(data),))
            case "pdf":
                return Document(pdf.read(data, pages, MOST_TEXT))
            case "word":
                return Document(word.read(_unpackable(data, MOST_XML), MOST_TEXT))
            case "powerpoint":
                return Document(powerpoint.read(_unpackable(data, MOST_XML), pages, MOST_TEXT))
            case "excel":
                return Document(
                    excel.read(_unpackable(data, MOST_UNPACKED), sheet, range, MOST_TEXT)
                )
            case "csv" | "text":
                return Document(
                    (plain.read_html if _is_page(path) else plain.read)(data, MOST_TEXT)
                )
    except Unreadable as error:
        raise Unreadable(f"`{path.name}` cannot be read: {error}") from error.__cause__
    except Exception as error:  # a parser raises whatever a broken file leads it to
        if isinstance(error, MemoryError):
            raise
        words = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise Unreadable(f"`{path.name}` cannot be read: no sound {kind} file ({words})") from error


def _check_asked(kind: Kind, pages: Sequence[int] | None, cells: str | None) -> None:
    if kind not in get_args(Kind):
        raise Unreadable(f"there is no kind `{kind}`; there is {', '.join(get_args(Kind))}")
    if pages is not None and kind not in ("pdf", "powerpoint"):
        raise Unreadable(f"`pages` are of a pdf or a powerpoint file, and this is {kind}")
    if cells is not None and kind != "excel":
        raise Unreadable(f"`sheet` and `range` are of an excel file, and this is {kind}")


def parse_text(path: str, kind: Kind, **given: Any) -> dict[str, str]:  # noqa: ANN401 # as above
    """The text of a file, or why there is none; called in the other process."""
    try:
        return {"text": parse_document(Path(path), kind, **given).text}
    except Unreadable as error:
        return {"unreadable": str(error)}


def _read_apart(path: Path, given: Mapping[str, object]) -> str:
    """The text of a file that a library takes apart, in bounded time and memory."""
    try:
        read: dict[str, str] = _CALLS.call({"path": str(path), **given}, MOST_SECONDS)
    except TimeoutError as error:
        raise Unreadable(
            f"`{path.name}` cannot be read: that takes more than {MOST_SECONDS:g} seconds"
        ) from error
    except MemoryError as error:
        raise Unreadable(
            f"`{path.name}` cannot be read: that takes more than {MEMORY // 1024**3} GiB of memory"
        ) from error
    except (CallRaised, ChildEnded, OSError) as error:
        raise Unreadable(f"`{path.name}` cannot be read: its reader {error}") from error
    if "unreadable" in read:
        raise Unreadable(read["unreadable"])
    return read["text"]


def _is_page(path: Path) -> bool:
    return path.suffix.lower() in (".html", ".htm", ".xhtml")


def _bytes(path: Path) -> bytes:
    if newer := _OLD.get(path.suffix.lower()):
        raise Unreadable(f"the old format {path.suffix} is not read; save it as {newer}")
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is not a file")
        if found.st_size > MOST_BYTES:
            size = f"{found.st_size / _MIB:,.0f} MiB"
            raise Unreadable(f"it has {size}, and at most {MOST_BYTES // _MIB} MiB are read")
        with path.open("rb") as file:
            # it may grow meanwhile
            return file.read(MOST_BYTES)
    except OSError as error:
        raise Unreadable(str(error.strerror).lower()) from error


def _unpackable(data: bytes, most_xml: int) -> bytes:
    """The same bytes, if they are an archive that does not unfold to more than there is room."""
    from io import BytesIO

    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            items = archive.infolist()
    except zipfile.BadZipFile as error:
        raise Unreadable("it is no office file, or only a part of one") from error
    xml = sum(item.file_size for item in items if item.filename.endswith((".xml", ".rels")))
    whole = sum(item.file_size for item in items)
    for found, most, what in ((xml, most_xml, " of XML"), (whole, MOST_UNPACKED, "")):
        if found > most:
            size = f"{found / _MIB:,.0f} MiB{what}"
            raise Unreadable(f"it unpacks to {size}, and at most {most // _MIB} MiB are read")
    return data
