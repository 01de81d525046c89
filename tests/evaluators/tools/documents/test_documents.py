"""Files that are made here with the libraries that people make them with."""

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import Image
from kept.evaluators.tools import documents
from kept.evaluators.tools.documents import Unreadable, kind_of, read_document

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def a_pdf(*pages: str) -> bytes:
    """A PDF by hand: pypdf reads them and does not write text."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for n, text in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        fonts = "/Resources << /Font << /F1 3 0 R >> >>"
        contents = f"/Contents {5 + 2 * n} 0 R"
        box = "/MediaBox [0 0 612 792]"
        objects.append(f"<< /Type /Page /Parent 2 0 R {box} {fonts} {contents} >>")
        objects.append(f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream")
    out, places = b"%PDF-1.4\n", list[int]()
    for n, one in enumerate(objects, 1):
        places.append(len(out))
        out += f"{n} 0 obj\n{one}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + f"xref\n0 {size}\n0000000000 65535 f \n{table}{trailer}".encode()


def a_workbook() -> bytes:
    from openpyxl import Workbook

    book = Workbook()
    first: Any = book.active
    first.title = "Prices"
    for row in (["name", "price"], ["tea", 3], ["coffee, black", 4.5]):
        first.append(row)
    book.create_sheet("Stock").append(["tea", 12])
    return saved(book)


def a_document() -> bytes:
    from docx import Document

    document = Document()
    document.add_heading("Refunds", level=2)
    document.add_paragraph("Within 30 days.")
    table = document.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text, table.rows[0].cells[1].text = "late", "no"
    document.add_paragraph("The end.")
    return saved(document)


def slides() -> bytes:
    from pptx import Presentation

    deck: Any = Presentation()
    for title in ("One", "Two"):
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"about {title.lower()}"
        slide.notes_slide.notes_text_frame.text = f"say {title.lower()}"
    return saved(deck)


def saved(what: Any) -> bytes:
    file = io.BytesIO()
    what.save(file)
    return file.getvalue()


def parsed(path: Path, **asked: Any) -> documents.Document:
    """What `read_document` says, without a process."""
    kind = asked.pop("kind", None) or kind_of(path)
    return documents.parse_document(path, kind, **asked)


def written(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.json", "a.csv", "a.yaml", "a"])
def test_text_is_told_as_it_stands(tmp_path: Path, name: str):
    assert parsed(written(tmp_path, name, 'a,"b"\n')).text == 'a,"b"\n'


def test_text_with_a_byte_order_mark_is_read_without_it(tmp_path: Path):
    for codec in ("utf-8-sig", "utf-16"):
        assert parsed(written(tmp_path, "a.csv", "ä;1\n".encode(codec))).text == "ä;1\n"


def test_a_web_page_is_what_it_says_without_its_code(tmp_path: Path):
    page = (
        "<html><head><title>Shop</title><style>p {}</style></head><body><h2>Refunds</h2>"
        "<p>Within <b>30</b>\n days.<script>let x = 1 < 2</script></p><ul><li>tea<li>cake</ul>"
        "<table><tr><th>a<th>b</tr><tr><td>1</td><td>2</td></tr></table>&copy; us</body></html>"
    )
    said = "Shop\n\n## Refunds\n\nWithin 30 days.\n\n* tea\n* cake\n\na | b\n1 | 2\n\n© us"
    assert parsed(written(tmp_path, "a.html", page)).text == said


def test_a_picture_is_known_by_its_bytes_and_not_by_its_name(tmp_path: Path):
    document = parsed(written(tmp_path, "a.jpg", PNG))
    assert document.text == ""
    assert document.images == (Image("image/png", PNG),)
    webp = b"RIFF\0\0\0\0WEBPVP8 "
    assert parsed(written(tmp_path, "b.webp", webp)).images[0].media_type == "image/webp"


def test_the_pages_of_a_pdf_that_are_wanted_are_read(tmp_path: Path):
    path = written(tmp_path, "a.pdf", a_pdf("first page", "second page", "third page"))
    assert parsed(path).text == "first page\n\nsecond page\n\nthird page"
    assert parsed(path, pages=[3, 1]).text == "third page\n\nfirst page"


def test_word_files_keep_the_order_of_paragraphs_and_tables(tmp_path: Path):
    path = written(tmp_path, "a.docx", a_document())
    assert parsed(path).text == "## Refunds\n\nWithin 30 days.\n\nlate | no\n\nThe end."


def test_slides_are_told_with_their_notes(tmp_path: Path):
    path = written(tmp_path, "a.pptx", slides())
    second = "## Slide 2\nTwo\nabout two\nNotes: say two"
    assert parsed(path, pages=[2]).text == second
    assert parsed(path).text == f"## Slide 1\nOne\nabout one\nNotes: say one\n\n{second}"


def test_sheets_are_told_as_csv_each_under_its_name(tmp_path: Path):
    path = written(tmp_path, "a.xlsx", a_workbook())
    prices = 'name,price\ntea,3\n"coffee, black",4.5'
    assert parsed(path).text == f"## Prices\n{prices}\n\n## Stock\ntea,12"
    assert parsed(path, sheet="Prices").text == prices
    assert parsed(path, sheet="Stock", range="A1:A9").text == "tea"
    assert parsed(path, range="B2:B3").text == "3\n4.5"


def test_what_a_case_says_of_the_kind_goes_before_the_name(tmp_path: Path):
    path = written(tmp_path, "upload.bin", a_workbook())
    assert parsed(path, kind="excel", sheet="Stock").text == "tea,12"


@pytest.mark.parametrize(
    ("name", "data", "asked", "words"),
    [
        ("a.pdf", a_pdf("x"), {"pages": [2]}, "there is no page 2: it has 1"),
        ("a.pdf", a_pdf("x"), {"pages": [0]}, "there is no page 0: it has 1"),
        ("a.pdf", a_pdf(""), {}, "there is no text in it; it may be pictures of text"),
        ("a.pptx", slides(), {"pages": [9]}, "there is no slide 9: it has 2"),
        ("a.xlsx", a_workbook(), {"sheet": "X"}, "there is no sheet `X`; there is Prices, Stock"),
        ("a.xlsx", a_workbook(), {"range": "here"}, "`here` is no range of cells"),
        ("a.txt", "x", {"pages": [1]}, "`pages` are of a pdf or a powerpoint file, and this is"),
        ("a.csv", "x", {"sheet": "X"}, "`sheet` and `range` are of an excel file, and this is"),
        ("a.txt", "x", {"kind": "scroll"}, "there is no kind `scroll`; there is image, pdf"),
        ("a.doc", "x", {}, "the old format .doc is not read; save it as .docx"),
        ("a.txt", b"\xff\xfe\xfa", {}, "it is not UTF-16 text"),
        ("a.txt", b"\xe4", {}, "it is not UTF-8 text"),
        ("a.txt", b"a\0b", {}, "it is not text"),
        ("a.png", "text", {}, "it is no PNG, JPEG, GIF or WebP picture"),
    ],
)
def test_what_cannot_be_read_is_said_in_words(
    tmp_path: Path, name: str, data: bytes | str, asked: dict[str, Any], words: str
):
    with pytest.raises(Unreadable) as raised:
        parsed(written(tmp_path, name, data), **asked)
    assert str(raised.value).startswith(f"`{name}` cannot be read: ")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", a_pdf("x")),
        ("a.docx", a_document()),
        ("a.pptx", slides()),
        ("a.xlsx", a_workbook()),
    ],
)
def test_a_broken_file_is_an_error_in_words_wherever_it_is_broken(
    tmp_path: Path, name: str, data: bytes
):
    garbled = bytearray(data)
    garbled[len(data) // 3 : len(data) // 2] = b"\xa5" * (len(data) // 2 - len(data) // 3)
    for broken in (b"", b"nothing of the kind", data[: len(data) // 2], bytes(garbled)):
        try:
            # a parser may cope with a broken one
            parsed(written(tmp_path, name, broken))
        except Unreadable as error:
            assert str(error).startswith(f"`{name}` cannot be read: ")
            assert "\n" not in str(error)


def test_an_archive_that_is_no_document_is_no_sound_file(tmp_path: Path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "b")
    for name in ("a.docx", "a.pptx", "a.xlsx"):
        with pytest.raises(Unreadable, match=r"no sound \w+ file"):
            parsed(written(tmp_path, name, file.getvalue()))


def test_what_is_no_file_is_told_and_not_waited_for(tmp_path: Path):
    import os

    os.mkfifo(tmp_path / "pipe")
    for name, words in (("gone", "no such file"), ("pipe", "not a file"), (".", "not a file")):
        with pytest.raises(Unreadable, match=words):
            parsed(tmp_path / name)


def test_a_large_file_is_refused_without_being_read(tmp_path: Path):
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate(documents.MOST_BYTES + 1024**3)
    with pytest.raises(Unreadable, match=r"it has 1,088 MiB, and at most 64 MiB are read"):
        parsed(path)


def test_a_file_that_says_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(documents, "MOST_TEXT", 5)
    made = {"a.txt": b"longer", "a.html": b"<p>longer", "a.pdf": a_pdf("longer")}
    made |= {"a.docx": a_document(), "a.pptx": slides(), "a.xlsx": a_workbook()}
    for name, data in made.items():
        with pytest.raises(Unreadable, match="it says more than 5 characters"):
            parsed(written(tmp_path, name, data))


def test_a_sheet_that_claims_every_cell_there_is_is_not_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents, "MOST_CELLS", 20_000)
    path = written(tmp_path, "a.xlsx", a_workbook())
    with pytest.raises(Unreadable, match="the sheet `Prices` has more than 20,000 cells"):
        parsed(path, range="A1:XFD1048576")


def test_an_archive_that_unfolds_to_too_much_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents, "MOST_UNPACKED", 2 * 1024**2)
    monkeypatch.setattr(documents, "MOST_XML", 1024**2)
    for name, words in (
        ("word/document.xml", " of XML, and at most 1"),
        ("a.png", ", and at most 2"),
    ):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, b" " * 3 * 1024**2)
        with pytest.raises(Unreadable, match=f"it unpacks to 3 MiB{words} MiB are read"):
            parsed(written(tmp_path, "a.docx", file.getvalue()))


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [
        ("a.pdf", "pypdf", "pypdf"),
        ("a.docx", "docx", "python-docx"),
        ("a.pptx", "pptx", "python-pptx"),
        ("a.xlsx", "openpyxl", "openpyxl"),
    ],
)
def test_a_missing_library_is_named_with_the_extra_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str
):
    path = written(tmp_path, name, a_pdf("x") if name == "a.pdf" else a_document())
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        Unreadable, match=rf"that takes {package}: .* -m pip install .*'{package}>="
    ):
        parsed(path)


@pytest.mark.slow
def test_a_file_is_taken_apart_in_another_process_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for name, data in {"a.html": b"<p>so", "a.xlsx": a_workbook()}.items():
        written(tmp_path, name, data)
        assert read_document(Path(name)) == parsed(Path(name))
    assert read_document(Path("a.xlsx"), sheet="Stock", range="A1:A9").text == "tea"
    with pytest.raises(Unreadable, match=r"^`a.xlsx` cannot be read: there is no sheet `X`"):
        read_document(Path("a.xlsx"), sheet="X")


@pytest.mark.slow
def test_a_file_that_takes_too_long_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(documents, "MOST_SECONDS", 0.5)
    # the parser of pages takes the square of what is never closed
    for page in ("<a " * 300_000, "<!--" * 300_000, "<?" * 300_000):
        path = written(tmp_path, "a.html", page)
        with pytest.raises(
            Unreadable, match=r"^`a.html` cannot be read: that takes more than 0.5 s"
        ):
            read_document(path)
    # and the next file is none the worse for it
    monkeypatch.setattr(documents, "MOST_SECONDS", 60.0)
    assert read_document(written(tmp_path, "a.html", "<p>so")).text == "so"
