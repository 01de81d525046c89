"""Text checks of deliverables: balanced delimiters, placeholders, references, coherence.

All functions here are pure.

Unclosed delimiters reveal a truncated file. The reader is rough on purpose: it knows comments and
quotes, but no whole language. It accepts unknown kinds of files.

Level 0 looks for marks of unwritten text. The placeholder check here looks for values that were
never filled in, in result and deliverables.

References must exist: numbered sources, figures. A document must be coherent: working internal
links, one citation style, no repetition.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, cast

from kept.core.text import sections, words_of
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.record import Finding

PROSE = frozenset((".md", ".markdown", ".txt", ".rst", ".tex", ".html", ".htm"))
MARKDOWN = frozenset((".md", ".markdown"))
NO_TEXT = frozenset((".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".zip", ".docx", ".xlsx"))

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)", re.MULTILINE)
_BREAK = re.compile(r"\n[ \t]*\n")


def flaw(path: str, detail: str, rule: str = "", line: int | None = None) -> Finding:
    """Return a finding about a deliverable."""
    return Finding(file=path, detail=detail, rule=rule, line=line)


def told(found: Finding) -> str:
    """Return a finding as one line."""
    where = f"{found.file}:{found.line}" if found.line else found.file
    return f"{where}: {found.detail}" if where else found.detail


def suffix_of(path: str) -> str:
    """Return the suffix of a path in lower case, with its dot."""
    return PurePosixPath(path).suffix.lower()


def text_of(path: str, data: bytes) -> str | None:
    """Return a file as text; None if it is not text."""
    if suffix_of(path) in NO_TEXT or b"\0" in data[:8192]:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def texts_of(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield the text files, sorted by path."""
    for path in sorted(files):
        text = text_of(path, files[path])
        if text is not None:
            yield path, text


def line_at(text: str, place: int) -> int:
    """Return the line number of an offset in a text; the first is 1."""
    return text.count("\n", 0, place) + 1


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, without fenced code."""
    return [part.strip() for part in _BREAK.split(without_fences(text)) if part.strip()]


def without_fences(text: str) -> str:
    """Return a text with fenced code replaced by line breaks, so that line numbers stay."""
    parts: list[str] = []
    at, opened = 0, ""
    for mark in _FENCE.finditer(text):
        if not opened:
            parts.append(text[at : mark.start()])
            at, opened = mark.start(), mark[1]
        # a fence is closed by the same marks, at least as many (CommonMark)
        elif mark[1].startswith(opened):
            end = text.find("\n", mark.end())
            end = len(text) if end < 0 else end
            parts.append("\n" * text.count("\n", at, end))
            at, opened = end, ""
    # text after an unclosed fence is kept: its end is unknown
    return "".join((*parts, text[at:]))


def open_fence(text: str) -> int | None:
    """Return the line of an unclosed fence; None if there is none."""
    opened: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is None:
            opened = mark
        elif mark[1].startswith(opened[1]):
            opened = None
    return None if opened is None else line_at(text, opened.start())


RULE = "balanced_delimiters"

_PAIRS = {")": "(", "]": "[", "}": "{"}
_CHAR = r"'(?:\\[^\n']+|[^\\'\n])'"
_WORD = r"'(?:\\.|[^'\\\n])*'"
_TEXT = r'"(?:\\.|[^"\\])*"'
_SLASHES = r"//[^\n]*|/\*.*?\*/"
_REGEX = r"(?<=[(=,:\[!&|?;{}\n])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/"


def _reader(*left_out: str) -> re.Pattern[str]:
    # comments and strings match first and have no `mark`, so brackets in them do not count
    return re.compile("|".join((*left_out, r"(?P<mark>[()\[\]{}])")), re.DOTALL)


_C = _reader(_SLASHES, _TEXT, _CHAR)
_SCRIPT = _reader(_SLASHES, _TEXT, _WORD, r"`(?:\\.|[^`\\])*`", _REGEX)
_STYLE = _reader(r"/\*.*?\*/", _TEXT, _WORD, r"url\([^)]*\)")
_GO = _reader(_SLASHES, _TEXT, _CHAR, r"`[^`]*`")
_READERS = {
    **dict.fromkeys(
        (".c", ".h", ".cc", ".cpp", ".hpp", ".java", ".cs", ".kt", ".rs", ".swift"), _C
    ),
    **dict.fromkeys((".js", ".mjs", ".cjs", ".ts"), _SCRIPT),
    **dict.fromkeys((".css", ".scss"), _STYLE),
    ".go": _GO,
}

_BLOCK = re.compile(r"(?<!\\)%[^\n]*|\\(begin|end)\{([^}\n]*)\}")
_BRACE = re.compile(r"\\.|%[^\n]*|(?P<mark>[{}])", re.DOTALL)


class _Open(NamedTuple):
    mark: str
    at: int


def unbalanced(path: str, text: str) -> Finding | None:
    """Return the first unbalanced delimiter of a text; None if all are balanced."""
    kind = suffix_of(path)
    if kind in MARKDOWN:
        line = open_fence(text)
        return None if line is None else flaw(path, "a fence is opened and not closed", RULE, line)
    if kind == ".tex":
        return _tex(path, text)
    reader = _READERS.get(kind)
    return None if reader is None else _brackets(path, text, reader)


def _brackets(path: str, text: str, reader: re.Pattern[str]) -> Finding | None:
    stack: list[_Open] = []
    for found in reader.finditer(text):
        mark = found["mark"]
        if mark is None:
            continue
        if mark not in _PAIRS:
            stack.append(_Open(mark, found.start()))
        elif not stack or stack.pop().mark != _PAIRS[mark]:
            line = line_at(text, found.start())
            return flaw(path, f"`{mark}` closes what was not opened", RULE, line)
    return _left_open(path, text, stack)


def _tex(path: str, text: str) -> Finding | None:
    stack: list[_Open] = []
    for found in _BLOCK.finditer(text):
        if found[1] == "begin":
            stack.append(_Open(found[2], found.start()))
        elif found[1] == "end" and (not stack or stack.pop().mark != found[2]):
            line = line_at(text, found.start())
            return flaw(path, f"`\\end{{{found[2]}}}` ends what did not begin", RULE, line)
    return _left_open(path, text, stack) or _brackets(path, text, _BRACE)


def _left_open(path: str, text: str, stack: list[_Open]) -> Finding | None:
    if not stack:
        return None
    line = line_at(text, stack[-1].at)
    return flaw(path, f"`{stack[-1].mark}` is opened and not closed", RULE, line)


ANYWHERE = (
    (r"(?<!\w)XX+(?:\.X+)?\s?%", "a share without a number"),
    (r"(?<!\w)[$€£]XX+", "an amount without a number"),
    (r"(?i)\blorem ipsum\b", "filler"),
    (r"(?i)\[(?:insert|your|todo|tbd|placeholder|fill in)\b[^\]\n]{0,60}\]", "a blank"),
    (r"(?i)<(?:insert|your|placeholder)[ _-][^>\n]{0,60}>", "a blank"),
    (r"(?i)\b(?:placeholder text|content goes here|text goes here)\b", "filler"),
)
IN_PROSE = ((r"\{\{\s*\w[^{}\n]{0,60}\}\}", "a template that was not filled in"),)
"""Patterns for prose only: in code a template is intended."""

MOST = 5
"""Maximum number of findings reported to the manager at once."""


def placeholder(submission: Submission) -> CheckResult:
    """Refuse placeholders in the manager's final result and in all files."""
    found: list[Finding] = []
    for name, text in _texts_in("final_result", submission.final_result):
        found += _blanks(name, text, (*ANYWHERE, *IN_PROSE), submission.task)
        if text.strip() in ("TODO", "TBD", "???", "...", "…", "N/A", "XXX"):
            found.append(flaw(name, f"`{text.strip()}` is no value", "placeholder"))
    found += _in_files(submission)
    if not found:
        return Passed()
    words = "; ".join(map(told, found[:MOST]))
    return Rejected(reason=f"blanks were not filled in: {words}", findings=tuple(found))


def _in_files(submission: Submission) -> Iterator[Finding]:
    for path, text in texts_of(submission.files):
        prose = suffix_of(path) in PROSE
        patterns = (*ANYWHERE, *IN_PROSE) if prose else ANYWHERE
        for found in _blanks(path, text, patterns, submission.task):
            yield found
            break


def _blanks(
    name: str, text: str, patterns: Sequence[tuple[str, str]], task: str
) -> Iterator[Finding]:
    for pattern, what in patterns:
        found = re.search(pattern, text)
        # a pattern that the task itself contains is its subject
        if found and found[0] not in task:
            detail = f"`{found[0]}` is {what}"
            yield flaw(name, detail, "placeholder", line_at(text, found.start()))


def _texts_in(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _texts_in(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(cast("Sequence[object]", value)):
            yield from _texts_in(f"{name}[{number}]", inner)


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
    """Require that every cited source is listed and every mentioned figure exists."""
    # counted once: a run may leave thousands of files
    pictures = sum(suffix_of(path) in PICTURES for path in submission.files)
    found = [
        problem
        for path in sorted(submission.files)
        if suffix_of(path) in KINDS
        for problem in _reference_problems(path, submission.files[path], pictures)
    ]
    if not found:
        return Passed()
    words = "; ".join(map(told, found))
    return Rejected(reason=f"references lead nowhere: {words}", findings=tuple(found))


def _reference_problems(path: str, data: bytes, pictures: int) -> Iterator[Finding]:
    text = text_of(path, data)
    if text is None:
        return
    text = _INLINE.sub("", without_fences(text))
    heads = list(_HEAD.finditer(text))
    body, listed = (text[: heads[-1].start()], text[heads[-1].end() :]) if heads else (text, "")
    parts = (part for found in _CITED.finditer(body) for part in found[1].split(","))
    # `[1, 3-5]` cites 1, 3, 4 and 5
    ranges = ([int(n) for n in re.findall(r"\d+", part)] for part in parts)
    cited = {n for ends in ranges for n in range(ends[0], ends[-1] + 1)}
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


TWICE = 0.2
"""Share of repeated long paragraphs from which a document is refused."""

LONG = 120
"""Characters above which a paragraph is long."""

_LINK = re.compile(r"\]\(#([^)\s]+)\)")
_PLACE = re.compile(r"<[a-z0-9]+\s[^>]*\b(?:id|name)=[\"']([^\"']+)[\"']")
_OWN = re.compile(r"\{#([^}\s]+)\}")
_BY_NUMBER = re.compile(r"(?<![\w\]!])\[\d{1,3}\](?![(:\[])")
_BY_NAME = re.compile(r"(?<![\w\]!])\[ref[_-]?\w+\](?![(:\[])", re.IGNORECASE)


def structural_integrity(submission: Submission) -> CheckResult:
    """Require that every document is coherent."""
    found = [
        problem
        for path, text in texts_of(submission.files)
        if suffix_of(path) in PROSE
        for problem in _structure_problems(path, text)
    ]
    if not found:
        return Passed()
    words = "; ".join(map(told, found))
    return Rejected(reason=f"documents do not hold together: {words}", findings=tuple(found))


def _structure_problems(path: str, text: str) -> Iterator[Finding]:
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
    titles = (re.sub(r"[`*]|\{#[^}]*\}", "", section.title) for section in sections(text))
    # slugs of headings, as common Markdown renderers make them
    plain = (re.sub(r"[^\w\- ]", "", title.strip().lower()) for title in titles)
    slugs = Counter(title.replace(" ", "-") for title in plain)
    known = set(_PLACE.findall(bare)) | set(_OWN.findall(bare))
    # repeated headings get the suffixes -1, -2 …
    known |= {f"{slug}-{n}" for slug, times in slugs.items() for n in range(1, times)} | set(slugs)
    for link in _LINK.finditer(bare):
        if link[1].lower() not in {name.lower() for name in known}:
            line = line_at(bare, link.start())
            yield flaw(path, f"`#{link[1]}` leads to no heading", "anchor", line)
