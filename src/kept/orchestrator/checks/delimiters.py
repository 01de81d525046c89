"""Whether everything that was opened in a text was closed: a file that was cut off shows here.

A rough reader, on purpose: it knows comments and texts in quotes, and not one language whole. Where
it does not know a kind of file it says nothing.
"""

import re
from typing import NamedTuple

from kept.orchestrator.checks.texts import MARKDOWN, flaw, line_at, open_fence, suffix_of
from kept.orchestrator.record import Finding

RULE = "balanced_delimiters"

_PAIRS = {")": "(", "]": "[", "}": "{"}
_CHAR = r"'(?:\\[^\n']+|[^\\'\n])'"
_WORD = r"'(?:\\.|[^'\\\n])*'"
_TEXT = r'"(?:\\.|[^"\\])*"'
_SLASHES = r"//[^\n]*|/\*.*?\*/"
_REGEX = r"(?<=[(=,:\[!&|?;{}\n])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+/"


def _reader(*left_out: str) -> re.Pattern[str]:
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
    """What was opened and not closed, or closed and not opened; None where all is even."""
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
