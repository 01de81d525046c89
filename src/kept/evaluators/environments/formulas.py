"""Formulas as MathVerse writes them: when two are the same, and the choices in a question."""

import re
from collections.abc import Iterator

from kept.evaluators.environments.choosing import Choice

_HEAD = re.compile(r"^[ \t]*choices?[ \t]*:[ \t]*", re.IGNORECASE | re.MULTILINE)
_LINE = re.compile(r"^[ \t]*\(?([A-H])[ \t]*[:.)][ \t]*", re.MULTILINE)
_INLINE = re.compile(r"(?:^|\s)\(?([A-H])[ \t]*[:.)][ \t]*")

_GONE = re.compile(r"\$|\\left(?![a-z])|\\right(?![a-z])")
_BLANK = re.compile(r"~|\\[,;:! ]|\\q?quad(?![a-z])|\s")
_UPRIGHT = re.compile(r"\\(?:mathrm|text|textbf|mathbf|operatorname)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"\\[dt]frac(?![a-z])")
_DEGREE = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))|\\degree(?![a-z])|掳")
"""A degree sign; the last is how data shows one that was read in a wrong encoding."""
_SINGLE = re.compile(r"\{ *([^\\{}\s]) *\}")
_APART = re.compile(r"(?<=[^\W\d_]) +(?=[^\W\d_])|(?<=\d) +(?=\d)")
"""Blanks that mean something: between two words, and between two numbers."""


def same_formula(one: str, other: str) -> bool:
    """True for two formulas that differ in their spelling alone."""
    return _spelt(one) == _spelt(other)


def choices_of(question: str) -> list[Choice]:
    """The choices behind `Choices:` or `Choice:`, in order; none where there are not two."""
    heads = [*_HEAD.finditer(question)]
    if not heads:
        return []
    block = question[heads[-1].end() :]
    found = [*_in_order(block, _LINE)]
    return found if len(found) > 1 else _two([*_in_order(block, _INLINE)])


def _in_order(block: str, pattern: re.Pattern[str]) -> Iterator[Choice]:
    """Choices whose labels follow one another; another letter with a sign is part of a text."""
    marks: list[re.Match[str]] = []
    for mark in pattern.finditer(block):
        if mark[1] == "ABCDEFGH"[len(marks) : len(marks) + 1]:
            marks.append(mark)
    for n, mark in enumerate(marks, 1):
        end = marks[n].start() if n < len(marks) else len(block)
        yield Choice(mark[1], block[mark.end() : end].strip())


def _two(found: list[Choice]) -> list[Choice]:
    return found if len(found) > 1 else []


def _spelt(text: str) -> str:
    plain = _DEGREE.sub("°", text)
    plain = _UPRIGHT.sub(r" \1 ", plain)
    plain = _FRACTION.sub(r"\\frac", _BLANK.sub(" ", _GONE.sub("", plain)))
    # braces round one sign mean nothing; round more of them they tell 1/23 from 12/3
    plain = _SINGLE.sub(r"\1", plain)
    plain = _APART.sub("\0", plain.strip().rstrip(". "))
    return plain.replace(" ", "").replace("\0", " ").lower()
