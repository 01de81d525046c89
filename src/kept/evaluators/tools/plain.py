"""Files that are text already, and the text of web pages."""

import codecs
from html.parser import HTMLParser

from kept.evaluators.tools.unreadable import Lines, Unreadable

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


def read(data: bytes, most: int) -> str:
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


def read_html(data: bytes, most: int) -> str:
    """What a page says, its headings marked as Markdown marks them."""
    page = _Page(most)
    page.feed(read(data, most))
    page.close()
    return page.text()


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
