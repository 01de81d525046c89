"""What a student's reply says: the answer in it, and what is shown of one."""

import re

from kept.core.rollout import Failure
from kept.core.words import one_line

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_CLOSING = re.compile(r"</answer>", re.IGNORECASE)
_OPEN = re.compile(r"<answer>(.*)\Z", re.DOTALL | re.IGNORECASE)
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
"""A box that opens, a sign that is taken as it is, or a brace."""

SHOWN = 200
"""Characters of an answer that a finding quotes."""


def answer_in(text: str) -> str | Failure:
    """What stands in the last pair of answer tags, or the whole text where there are none.

    A tag that is never closed counts: a reply that was cut may have said enough.
    """
    # behind the last closing tag, each opening one would be searched for its end in vain
    ends = max((found.end() for found in _CLOSING.finditer(text)), default=0)
    closed = _ANSWER.findall(text, 0, ends)
    still = _OPEN.search(text) if not closed else None
    answer = closed[-1] if closed else still[1] if still else text
    if not answer.strip():
        return Failure("empty", "candidate", "the answer is empty")
    return answer.strip()


def answer_or_last_line(text: str) -> str | Failure:
    """What stands in the last pair of answer tags, or the last line that is not empty."""
    if "<answer>" in text.lower():
        return answer_in(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return answer_in(lines[-1] if lines else "")


def boxed(text: str) -> str | None:
    """The text in the last box that is closed; of nested boxes the outer counts."""
    found: str | None = None
    opened: list[int | None] = []
    for sign in _BRACES.finditer(text):
        if sign[0] == "}":
            start = opened.pop() if opened else None
            found = text[start : sign.start()].strip() if start is not None else found
        elif sign[0] == "{":
            opened.append(None)
        elif sign[0].startswith("\\boxed"):
            opened.append(sign.end())
    return found


def quoted(text: str) -> str:
    """An answer as a finding shows it."""
    return f"`{one_line(text, SHOWN)}`"
