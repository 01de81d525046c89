"""Web pages by address: from a local folder, and from the network if that is allowed.

A page of `https://host/a/b` lies at `host/a/b` below the folder, or there with `.html`, `.htm`,
`.txt` or `.md` behind it; that is where `wget --force-directories --adjust-extension` puts it.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPException, InvalidURL
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

from kept.core.llm import ToolAnswer
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.evaluators.tools.documents import Unreadable
from kept.evaluators.tools.journalled_call import journalled
from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import BoundedCalls, CallRaised

MOST_BYTES = 4_000_000
"""Maximum size of a page; the rest is not read."""

SECONDS = 20.0
"""Time limit for a network request."""

ENDINGS = ("", ".html", ".htm", ".txt", ".md", "/index.html")

PARSE_SECONDS = 20.0
"""Time limit for parsing one page."""

_CALLS = BoundedCalls("kept.evaluators.tools.web_pages:parse_page")

_HIDDEN = ("script", "style", "noscript", "template", "svg", "head")
_MARKUP = re.compile(r"<(?:!doctype|html|head|body|div|p|table|span)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pages:
    """Source of pages: a folder, and the network if allowed."""

    folder: Path | None = None
    network: bool = False
    """Fetch pages that are not in the folder."""

    def stored(self, url: str) -> Path | None:
        """File of a page; None if the folder has none."""
        if self.folder is None:
            return None
        base = self.folder.resolve()
        for name in _names(url):
            try:
                place = (base / name).resolve()
                if place.is_relative_to(base) and place.is_file():
                    return place
            except (OSError, ValueError):
                continue  # no name of a file
        return None

    async def page(self, scope: Scope, url: str) -> ToolAnswer | Failure:
        """Text of a page, or `wrong` with the reason why there is none; journalled."""

        async def do() -> ToolAnswer | Failure:
            place = self.stored(url)
            if place is None and not self.network:
                return ToolAnswer(f"there is no page of {url}", wrong=True)
            if place is not None:
                return await asyncio.to_thread(_answered, place.name, read_page(place))
            source = await asyncio.to_thread(_fetched, url)
            if isinstance(source, str):
                return await asyncio.to_thread(_answered, url, source)
            return source

        return await journalled(scope, {"page": url}, do)


def read_page(place: Path) -> str:
    """The text of a file with a page, as it stands there."""
    with place.open("rb") as file:
        return file.read(MOST_BYTES).decode("utf-8", "replace")


def page_text(source: str) -> str:
    """Text of a page without markup; raises `Unreadable` if parsing takes too long."""
    if not _MARKUP.search(source[:20_000]):
        return source.strip()
    try:
        return _CALLS.call({"source": source}, PARSE_SECONDS)
    except TimeoutError as error:
        raise Unreadable(f"reading it takes more than {PARSE_SECONDS:g} seconds") from error
    except (MemoryError, CallRaised, ChildEnded, OSError) as error:
        raise Unreadable(f"its reader failed: {error}") from error


def parse_page(source: str) -> str:
    """Parse a page in this process; on a hostile page the time is quadratic in its size."""
    parser = _Words()
    parser.feed(source)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.parts).split("\n"))
    return "\n".join(line for line in lines if line)


def _answered(name: str, source: str) -> ToolAnswer:
    try:
        return ToolAnswer(page_text(source))
    except Unreadable as error:
        return ToolAnswer(f"the page {name} cannot be read: {error}", wrong=True)


class _Words(HTMLParser):
    """Parser that collects the visible text of a page; block elements begin a line."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self._hidden = 0  # a head need not be closed
        elif tag in _HIDDEN:
            self._hidden += 1
        elif tag not in ("a", "b", "i", "em", "strong", "span", "sup", "sub", "code"):
            self.parts.append("\n" if tag not in ("td", "th") else " | ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(re.sub(r"\s+", " ", data))


def _names(url: str) -> Iterator[str]:
    """Possible paths of a page below the folder, the likeliest first."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2].lower()
    except ValueError:
        return
    path = parts.path.strip("/")
    for plain in dict.fromkeys((path, unquote(path))):
        for queried in (f"{plain}?{parts.query}", plain) if parts.query else (plain,):
            for ending in ENDINGS:
                yield f"{host}/{queried}{ending}".replace("//", "/")


def _fetched(url: str) -> str | ToolAnswer | Failure:
    """Fetch a page; returns its text, an error text for the model, or a network failure."""
    try:
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError
        request = Request(url, headers={"User-Agent": "kept"})
        with urlopen(request, timeout=SECONDS) as reply:
            kind = reply.headers.get_content_type()
            charset = reply.headers.get_content_charset() or "utf-8"
            data: bytes = reply.read(MOST_BYTES)
    except HTTPError as error:
        return ToolAnswer(f"{url} answers {error.code}", wrong=True)
    except (InvalidURL, ValueError):
        return ToolAnswer(f"{url} is no address of a web page", wrong=True)
    except (URLError, OSError, HTTPException) as error:
        why = str(error) or type(error).__name__
        return Failure("network", "infrastructure", f"cannot get {url}: {why}")
    if not kind.startswith("text/") and "html" not in kind:
        return ToolAnswer(f"{url} is no text but {kind}", wrong=True)
    try:
        return data.decode(charset, "replace")
    except LookupError:
        return data.decode("utf-8", "replace")
