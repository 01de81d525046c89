"""One file: what kind it is, whether it may be read, and who reads it."""

import stat
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from kept.core.model import Image
from kept.documents import excel, pdf, pictures, plain, powerpoint, word
from kept.documents.unreadable import Unreadable

Kind = Literal["image", "pdf", "text", "excel", "word", "powerpoint", "csv"]
"""What a case file calls them."""

MOST_BYTES = 64 * 1024 * 1024
"""Of a file on disk, whatever its kind."""

MOST_UNPACKED = 512 * 1024 * 1024
"""Bytes of an office file once it is unpacked; a small one may hold far more than it shows."""

MOST_TEXT = 4_000_000
"""Characters of a document: four times what the longest of windows holds."""

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
    try:
        if kind not in get_args(Kind):
            raise Unreadable(f"there is no kind `{kind}`; there is {', '.join(get_args(Kind))}")
        if pages is not None and kind not in ("pdf", "powerpoint"):
            raise Unreadable(f"`pages` are of a pdf or a powerpoint file, and this is {kind}")
        if (sheet is not None or range is not None) and kind != "excel":
            raise Unreadable(f"`sheet` and `range` are of an excel file, and this is {kind}")
        data = _bytes(path)
        match kind:
            case "image":
                return Document(images=(pictures.read(data),))
            case "pdf":
                return Document(pdf.read(data, pages, MOST_TEXT))
            case "word":
                return Document(word.read(_unpackable(data), MOST_TEXT))
            case "powerpoint":
                return Document(powerpoint.read(_unpackable(data), pages, MOST_TEXT))
            case "excel":
                return Document(excel.read(_unpackable(data), sheet, range, MOST_TEXT))
            case "csv" | "text":
                markup = path.suffix.lower() in (".html", ".htm", ".xhtml")
                return Document((plain.read_html if markup else plain.read)(data, MOST_TEXT))
    except Unreadable as error:
        raise Unreadable(f"`{path.name}` cannot be read: {error}") from error.__cause__
    except Exception as error:  # a parser raises whatever a broken file leads it to
        words = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        raise Unreadable(f"`{path.name}` cannot be read: no sound {kind} file ({words})") from error


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


def _unpackable(data: bytes) -> bytes:
    """The same bytes, if they are an archive that does not unfold to more than there is room."""
    from io import BytesIO

    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            size = sum(item.file_size for item in archive.infolist())
    except zipfile.BadZipFile as error:
        raise Unreadable("it is no office file, or only a part of one") from error
    if size > MOST_UNPACKED:
        raise Unreadable(f"it unpacks to {size / _MIB:,.0f} MiB, more than there is room for")
    return data
