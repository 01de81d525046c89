"""Whether a document holds together: links within it, one way of citing, nothing said twice."""

import re
from collections import Counter
from collections.abc import Iterator

from kept.core.text import sections, words_of
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.texts import (
    MARKDOWN,
    PROSE,
    flaw,
    line_at,
    paragraphs,
    suffix_of,
    texts_of,
    told,
    without_fences,
)
from kept.orchestrator.record import Finding

TWICE = 0.2
"""Share of the long paragraphs that may not stand in a document before."""

LONG = 120
"""Characters from which on a paragraph is long."""

_LINK = re.compile(r"\]\(#([^)\s]+)\)")
_PLACE = re.compile(r"<[a-z0-9]+\s[^>]*\b(?:id|name)=[\"']([^\"']+)[\"']")
_OWN = re.compile(r"\{#([^}\s]+)\}")
_BY_NUMBER = re.compile(r"(?<![\w\]!])\[\d{1,3}\](?![(:\[])")
_BY_NAME = re.compile(r"(?<![\w\]!])\[ref[_-]?\w+\](?![(:\[])", re.IGNORECASE)


def structural_integrity(submission: Submission) -> CheckResult:
    """Every document holds together."""
    found = [
        problem
        for path, text in texts_of(submission.files)
        if suffix_of(path) in PROSE
        for problem in _problems(path, text)
    ]
    if not found:
        return Passed()
    words = "; ".join(map(told, found))
    return Rejected(reason=f"documents do not hold together: {words}", findings=tuple(found))


def _problems(path: str, text: str) -> Iterator[Finding]:
    if suffix_of(path) in MARKDOWN:
        yield from _links(path, text)
    bare = without_fences(text)
    if _BY_NUMBER.search(bare) and _BY_NAME.search(bare):
        yield flaw(path, "sources are cited by number and by name", "citations")
    long = [" ".join(words_of(part)) for part in paragraphs(text) if len(part) > LONG]
    again = sum(n - 1 for n in Counter(long).values())
    if long and again / len(long) >= TWICE:
        yield flaw(path, f"{again} of {len(long)} long paragraphs stand there twice", "duplicates")


def _links(path: str, text: str) -> Iterator[Finding]:
    bare = without_fences(text)
    slugs = Counter(_slug(section.title) for section in sections(text))
    known = set(_PLACE.findall(bare)) | set(_OWN.findall(bare))
    known |= {f"{slug}-{n}" for slug, times in slugs.items() for n in range(1, times)} | set(slugs)
    for link in _LINK.finditer(bare):
        if link[1].lower() not in {name.lower() for name in known}:
            line = line_at(bare, link.start())
            yield flaw(path, f"`#{link[1]}` leads to no heading", "anchor", line)


def _slug(title: str) -> str:
    """How a heading is linked to, as the usual readers of Markdown make it."""
    plain = re.sub(r"[`*]|\{#[^}]*\}", "", title).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
