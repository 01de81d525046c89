"""The text of PowerPoint files, slide by slide."""

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any

from kept.evaluators.tools.unreadable import Lines, chosen, library


def read(data: bytes, pages: Sequence[int] | None, most: int) -> str:
    """What these slides say, from 1, with the notes below them; all when nobody says which."""
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
