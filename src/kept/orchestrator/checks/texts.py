"""Deliverables as texts: which of them are, of what kind, and what their parts are. Pure."""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from kept.orchestrator.record import Finding

PROSE = frozenset((".md", ".markdown", ".txt", ".rst", ".tex", ".html", ".htm"))
MARKDOWN = frozenset((".md", ".markdown"))
NO_TEXT = frozenset((".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".zip", ".docx", ".xlsx"))

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)", re.MULTILINE)
_BREAK = re.compile(r"\n[ \t]*\n")


def flaw(path: str, detail: str, rule: str = "", line: int | None = None) -> Finding:
    """One thing that is wrong with a deliverable."""
    return Finding(file=path, detail=detail, rule=rule, line=line)


def told(found: Finding) -> str:
    """A finding in one line."""
    where = f"{found.file}:{found.line}" if found.line else found.file
    return f"{where}: {found.detail}" if where else found.detail


def suffix_of(path: str) -> str:
    """The end of a name, in small letters, with its dot."""
    return PurePosixPath(path).suffix.lower()


def text_of(path: str, data: bytes) -> str | None:
    """A file as text; None where it is none."""
    if suffix_of(path) in NO_TEXT or b"\0" in data[:8192]:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def texts_of(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """The files that are texts, in the order of their names."""
    for path in sorted(files):
        text = text_of(path, files[path])
        if text is not None:
            yield path, text


def line_at(text: str, place: int) -> int:
    """The line that a place in a text is on; the first is 1."""
    return text.count("\n", 0, place) + 1


def paragraphs(text: str) -> list[str]:
    """Stretches of lines between empty ones; code in fences is none."""
    return [part.strip() for part in _BREAK.split(without_fences(text)) if part.strip()]


def without_fences(text: str) -> str:
    """A text with nothing but ends of lines in the place of fenced code."""
    parts: list[str] = []
    at, opened = 0, ""
    for mark in _FENCE.finditer(text):
        if not opened:
            parts.append(text[at : mark.start()])
            at, opened = mark.start(), mark[1]
        elif mark[1].startswith(opened):
            end = text.find("\n", mark.end())
            end = len(text) if end < 0 else end
            parts.append("\n" * text.count("\n", at, end))
            at, opened = end, ""
    # what is never closed is not left out: nobody knows where it ends
    return "".join((*parts, text[at:]))


def open_fence(text: str) -> int | None:
    """The line of a fence that nothing closes; None where there is none."""
    opened: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is None:
            opened = mark
        elif mark[1].startswith(opened[1]):
            opened = None
    return None if opened is None else line_at(text, opened.start())
