"""Document readers: Excel as CSV, PDF, PowerPoint, Word, web pages, text and images.

Excel gives every sheet under its name, PowerPoint its slides, Word its paragraphs and tables in
order. Images are recognized by their first bytes, not by name.

Everything is bounded: a file that is too large, or contains too much, is refused with a reason.
Reading blocks while parsing, so async callers use a thread.
"""

import codecs
import csv
import io
import logging
import stat
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args

from kept.core.llm import Image
from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import MEMORY, BoundedCalls, CallRaised
from kept.settings import install_command


class Unreadable(ValueError):
    """File that cannot be read as text or pictures; the message says which and why."""


def library(name: str) -> Any:  # noqa: ANN401 # a module that may not be there
    """A library of the extra `office`, imported when a file first needs it."""
    try:
        return import_module(name)
    except ImportError as error:
        package = {"docx": "python-docx", "pptx": "python-pptx"}.get(name, name)
        raise Unreadable(f"that takes {package}: {install_command('office')}") from error


def chosen(pages: Sequence[int] | None, there: int, one: str) -> Sequence[int]:
    """Check the wanted page numbers, from 1; all pages if none are named."""
    for number in pages or ():
        if not 1 <= number <= there:
            raise Unreadable(f"there is no {one} {number}: it has {there}")
    return pages or range(1, there + 1)


class Lines:
    """Text that grows line by line, up to a limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: list[str] = []
        self._size = 0

    def add(self, line: str) -> None:
        """Add a line; raises `Unreadable` over the limit."""
        self._size += len(line) + 1
        if self._size > self._most:
            raise Unreadable(f"it says more than {self._most:,} characters")
        self._lines.append(line)

    def text(self) -> str:
        """Join the lines, with at most one empty line in a row."""
        lines = [line.rstrip() for line in self._lines]
        kept = [line for n, line in enumerate(lines) if line or (n and lines[n - 1])]
        return "\n".join(kept).strip("\n")


MOST_CELLS = 5_000_000
"""Maximum number of cells read, empty ones included: a sheet may claim 17,000 million."""


def read_excel(data: bytes, sheet: str | None, cells: str | None, most: int) -> str:
    """The cells of one sheet or of all; a range is one of the first sheet if none is named."""
    openpyxl = library("openpyxl")
    with warnings.catch_warnings():
        # warnings about parts that openpyxl leaves out, which are no cells
        warnings.simplefilter("ignore")
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        try:
            return _text(book, sheet, cells, most)
        finally:
            book.close()


def _text(book: Any, sheet: str | None, cells: str | None, most: int) -> str:  # noqa: ANN401 # of openpyxl
    there = {one.title: one for one in book.worksheets}
    if sheet is not None and sheet not in there:
        raise Unreadable(f"there is no sheet `{sheet}`; there is {', '.join(there)}")
    wanted = [sheet] if sheet is not None else list(there)[: 1 if cells else None]
    lines = Lines(most)
    for title in wanted:
        if len(wanted) > 1:
            lines.add(f"## {title}")
        for row in _rows(there[title], cells):
            lines.add(row)
        lines.add("")
    return lines.text()


def _rows(sheet: Any, cells: str | None) -> Iterator[str]:  # noqa: ANN401 # of openpyxl
    seen = 0
    for row in sheet.iter_rows(values_only=True, **_bounds(cells)):
        seen += len(row)
        if seen > MOST_CELLS:
            raise Unreadable(f"the sheet `{sheet.title}` has more than {MOST_CELLS:,} cells")
        if any(value is not None for value in row):
            yield _line(row)


def _bounds(cells: str | None) -> dict[str, int]:
    if cells is None:
        return {}
    try:
        left, top, right, bottom = library("openpyxl.utils").range_boundaries(cells)
    except (ValueError, TypeError) as error:
        raise Unreadable(f"`{cells}` is no range of cells, as `A1:E100` is") from error
    found = {"min_col": left, "min_row": top, "max_col": right, "max_row": bottom}
    return {name: value for name, value in found.items() if value is not None}


def _line(row: Iterable[object]) -> str:
    values = ["" if value is None else str(value) for value in row]
    while values and not values[-1]:
        values.pop()
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def read_pdf(data: bytes, pages: Sequence[int] | None, most: int) -> str:
    """Text of these pages, from 1; of all if none are named."""
    pypdf = library("pypdf")
    # it warns about every flaw that it can handle
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise Unreadable("it is locked with a password")
    lines = Lines(most)
    for number in chosen(pages, len(reader.pages), "page"):
        lines.add(str(reader.pages[number - 1].extract_text()))
        lines.add("")
    text = lines.text()
    if not text.strip():
        raise Unreadable("there is no text in it; it may be pictures of text")
    return text


MOST = 20 * 1024 * 1024
"""Maximum size of a picture in bytes; no provider takes a larger one."""

_BEGIN = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def read_picture(data: bytes) -> Image:
    """A picture for a message."""
    if len(data) > MOST:
        raise Unreadable(f"it has more than {MOST // 1024**2} MiB")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Image("image/webp", data)
    for begin, media_type in _BEGIN:
        if data.startswith(begin):
            return Image(media_type, data)
    raise Unreadable("it is no PNG, JPEG, GIF or WebP picture")


_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SILENT = {"script", "style", "template", "noscript", "svg"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "br", "dd", "div", "dl", "dt", "fieldset"),
    *("figure", "footer", "form", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
    *("section", "table", "title", "tr", "ul", "h1", "h2", "h3", "h4", "h5", "h6"),
}


def read_plain(data: bytes, most: int) -> str:
    """The text of a file."""
    codec = next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        raise Unreadable(f"it is not {codec[:6].upper().rstrip('-')} text") from error
    if "\0" in text:
        raise Unreadable("it is not text")
    if len(text) > most:
        raise Unreadable(f"it says more than {most:,} characters")
    return text


class _Page(HTMLParser):
    def __init__(self, most: int) -> None:
        super().__init__()
        self._lines = Lines(most)
        self._line: list[str] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in _SILENT
        if tag in _BLOCKS:
            self._end_line()
        if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
            self._lines.add("")
            self._line.append("#" * int(tag[1]) + " ")
        elif tag == "li":
            self._line.append("* ")
        elif tag in ("td", "th") and self._line:
            self._line.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        self._silent = max(0, self._silent - (tag in _SILENT))
        if tag in _BLOCKS:
            self._end_line()
        if tag in ("p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "table"):
            self._lines.add("")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self._line.append(data)

    def text(self) -> str:
        self._end_line()
        return self._lines.text()

    def _end_line(self) -> None:
        if words := " ".join("".join(self._line).split()):
            self._lines.add(words)
        self._line.clear()


def read_powerpoint(data: bytes, pages: Sequence[int] | None, most: int) -> str:
    """Text of these slides, from 1, with their notes; of all if none are named."""
    pptx = library("pptx")
    slides = list(pptx.Presentation(BytesIO(data)).slides)
    lines = Lines(most)
    for number in chosen(pages, len(slides), "slide"):
        slide = slides[number - 1]
        lines.add(f"## Slide {number}")
        for text in _texts(slide.shapes):
            lines.add(text)
        if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame):
            lines.add(f"Notes: {notes.text}" if notes.text.strip() else "")
        lines.add("")
    return lines.text()


def _texts(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _texts(shape.shapes)
        elif shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False):
            for row in shape.table.rows:
                yield " | ".join(" ".join(cell.text.split()) for cell in row.cells)


def read_word(data: bytes, most: int) -> str:
    """Text of a Word document, with headings marked as in Markdown."""
    docx = library("docx")
    lines = Lines(most)
    for block in docx.Document(BytesIO(data)).iter_inner_content():
        if hasattr(block, "rows"):
            for row in block.rows:
                lines.add(" | ".join(" ".join(cell.text.split()) for cell in row.cells))
        else:
            lines.add(f"{_mark(block)}{block.text}")
        lines.add("")
    return lines.text()


def _mark(paragraph: Any) -> str:  # noqa: ANN401 # of python-docx
    style = str(paragraph.style.name) if paragraph.style is not None else ""
    name, _, level = style.rpartition(" ")
    if style == "Title":
        return "# "
    if name == "Heading" and level.isdigit():
        return "#" * min(int(level), 6) + " "
    return "* " if style.startswith("List") else ""


Kind = Literal["image", "pdf", "text", "excel", "word", "powerpoint", "csv"]
"""Kind of a document, as case files spell it."""

MOST_BYTES = 64 * 1024 * 1024
"""Maximum size of a file on disk, of any kind."""

MOST_UNPACKED = 512 * 1024 * 1024
"""Maximum size of an unpacked office file: a small archive may unpack to very much."""

MOST_XML = 64 * 1024 * 1024
"""Maximum size of the XML in a Word or PowerPoint file: all its elements are in memory."""

MOST_TEXT = 4_000_000
"""Maximum number of characters of a document, four times the longest context window."""

MOST_SECONDS = 60.0
"""Time limit for parsing one file."""

_CALLS = BoundedCalls("kept.evaluators.tools.documents:parse_text")

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
    """Content of a file."""

    text: str = ""
    images: tuple[Image, ...] = ()


def kind_of(path: Path) -> Kind:
    """Kind of a file by its name; text if the name does not tell."""
    return _KINDS.get(path.suffix.lower(), "text")


def read_document(
    path: Path,
    *,
    kind: Kind | None = None,
    pages: Sequence[int] | None = None,
    sheet: str | None = None,
    range: str | None = None,
) -> Document:
    """Read a file; raises `Unreadable` with the reason if that fails.

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
    """Read a file in this process; a library may take any time for a hostile file."""
    try:
        _check_asked(kind, pages, sheet if range is None else range)
        data = _bytes(path)
        match kind:
            case "image":
                return Document(images=(read_picture(data),))
            case "pdf":
                return Document(read_pdf(data, pages, MOST_TEXT))
            case "word":
                return Document(read_word(_unpackable(data, MOST_XML), MOST_TEXT))
            case "powerpoint":
                return Document(read_powerpoint(_unpackable(data, MOST_XML), pages, MOST_TEXT))
            case "excel":
                return Document(
                    read_excel(_unpackable(data, MOST_UNPACKED), sheet, range, MOST_TEXT)
                )
            case "csv" | "text":
                text = read_plain(data, MOST_TEXT)
                if not _is_page(path):
                    return Document(text)
                page = _Page(MOST_TEXT)
                page.feed(text)
                page.close()
                return Document(page.text())
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
    """Text of a file, or the reason why there is none; runs in the other process."""
    try:
        return {"text": parse_document(Path(path), kind, **given).text}
    except Unreadable as error:
        return {"unreadable": str(error)}


def _read_apart(path: Path, given: Mapping[str, object]) -> str:
    """Read a file with a parser library, in bounded time and memory."""
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
            # it may grow while it is read
            return file.read(MOST_BYTES)
    except OSError as error:
        raise Unreadable(str(error.strerror).lower()) from error


def _unpackable(data: bytes, most_xml: int) -> bytes:
    """Return the bytes if they are an archive within the limits when unpacked."""
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


__all__ = ["Document", "Kind", "Unreadable", "kind_of", "read_document"]
