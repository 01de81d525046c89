"""The text of PDF files."""

import logging
from collections.abc import Sequence
from io import BytesIO

from kept.evaluators.tools.unreadable import Lines, Unreadable, chosen, library


def read(data: bytes, pages: Sequence[int] | None, most: int) -> str:
    """The text of these pages, from 1; of all when nobody says which."""
    pypdf = library("pypdf")
    # it grumbles about every flaw that it can cope with
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
