"""The text of Word files: paragraphs and tables in their order."""

from io import BytesIO
from typing import Any

from kept.evaluators.tools.unreadable import Lines, library


def read(data: bytes, most: int) -> str:
    """What a document says, its headings marked as Markdown marks them."""
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
