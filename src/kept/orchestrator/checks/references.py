"""Whether what a text refers to is there: numbered sources, figures."""

import re
from collections.abc import Iterator

from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.texts import flaw, suffix_of, text_of, told, without_fences
from kept.orchestrator.record import Finding

KINDS = frozenset((".md", ".markdown", ".tex", ".txt"))
PICTURES = frozenset((".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf"))

_HEAD = re.compile(
    r"^\s{0,3}(?:#{1,6}\s*|\\(?:sub)?section\*?\{)?(?:\d+\.?\s+)?(references|bibliography|sources|literatur|quellen)\b[^\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_CITED = re.compile(r"(?<![\w\]!])\[(\d{1,3}(?:\s*[,–-]\s*\d{1,3})*)\](?![(:\w\[])")
_LISTED = re.compile(r"^\s*(?:[-*]\s*)?(?:\[(\d{1,3})\]:?|(\d{1,3})[.)])\s", re.MULTILINE)
_FIGURE = re.compile(r"\b(?:Fig(?:ure|\.)?|Abb(?:ildung|\.)?)\s*~?(\d{1,3})\b")
_SHOWN = re.compile(r"!\[[^\]]*\]\([^)]+\)|<img\b|\\includegraphics\b|\\begin\{figure\*?\}")
_INLINE = re.compile(r"`[^`\n]*`")


def cross_reference(submission: Submission) -> CheckResult:
    """Every cited source is listed, and every figure that is spoken of is there."""
    # counted once: a run may leave thousands of files
    pictures = sum(suffix_of(path) in PICTURES for path in submission.files)
    found = [
        problem
        for path in sorted(submission.files)
        if suffix_of(path) in KINDS
        for problem in _problems(path, submission.files[path], pictures)
    ]
    if not found:
        return Passed()
    words = "; ".join(map(told, found))
    return Rejected(reason=f"references lead nowhere: {words}", findings=tuple(found))


def _problems(path: str, data: bytes, pictures: int) -> Iterator[Finding]:
    text = text_of(path, data)
    if text is None:
        return
    text = _INLINE.sub("", without_fences(text))
    heads = list(_HEAD.finditer(text))
    body, listed = (text[: heads[-1].start()], text[heads[-1].end() :]) if heads else (text, "")
    cited = {n for found in _CITED.finditer(body) for n in _numbers(found[1])}
    if cited and heads:
        known = {int(one or two) for one, two in _LISTED.findall(listed)}
        for n in sorted(cited - known) if known else ():
            yield flaw(path, f"[{n}] is cited and not listed", "citation")
        if not known and not listed.strip():
            yield flaw(path, "sources are cited, and the list of them is empty", "citation")
    elif len(cited) > 1:
        # a single [1] may be an index; several are citations
        yield flaw(path, "sources are cited by number, and there is no list of them", "citation")
    yield from _figures(path, text, pictures)


def _figures(path: str, text: str, pictures: int) -> Iterator[Finding]:
    highest = max((int(n) for n in _FIGURE.findall(text)), default=0)
    shown = len(_SHOWN.findall(text))
    if suffix_of(path) == ".tex":
        # a figure and the picture in it are two matches
        shown = max(text.count("\\includegraphics"), text.count("\\begin{figure"))
    there = max(shown, pictures)
    if highest > there:
        yield flaw(path, f"figure {highest} is spoken of, and there are {there}", "figure")


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        ends = [int(n) for n in re.findall(r"\d+", part)]
        yield from range(ends[0], ends[-1] + 1)
