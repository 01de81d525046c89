"""Whether an answer to a question of GSM8K or of BIG-Bench-Hard is right.

Imports the standard library alone, as all that peers and scorers run does.
"""

import re
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"-?\$?\s?(?:\d[\d,]*(?:\.\d+)?|\.\d+)")
_CONCLUDES = re.compile(r"\banswer(?: is|:)\s*:?\s*(.*)", re.IGNORECASE)
_OPTION = re.compile(r"\(([A-Z])\)")
_FRAME = " \t*_`\"'$"
"""What people and models put round an answer."""


def number_in(text: str) -> Decimal | None:
    """The number that an answer ends with: behind the last `####`, else the last one there is."""
    _, marked, behind = text.rpartition("####")
    found = _NUMBER.findall(behind)
    if not found:
        return None
    # the first behind the mark, since units follow it; without a mark, what the text ends with
    chosen = found[0] if marked else found[-1]
    try:
        return Decimal(re.sub(r"[,$\s]", "", chosen))
    except InvalidOperation:
        return None


def same_number(said: str, wanted: str) -> bool:
    """Whether an answer comes to the number that a solution of GSM8K ends with."""
    right = number_in(wanted)
    return right is not None and number_in(said) == right


def same_answer(said: str, wanted: str) -> bool:
    """Whether an answer is the target of a task of BIG-Bench-Hard, word for word.

    The form of the answer is that of the target: an option in brackets, a number, a list of words,
    a row of brackets, or a word such as `True`.
    """
    answer = conclusion(said)
    if option := _OPTION.fullmatch(wanted):
        named = _OPTION.search(answer) or re.match(r"([A-Z])\b", answer.strip(_FRAME))
        return named is not None and named[1] == option[1]
    if re.fullmatch(r"-?\d+", wanted):
        return number_in(answer) == Decimal(wanted)
    if re.fullmatch(r"[\[\](){}<>\s]+", wanted):
        return re.sub(r"[^\[\](){}<>]", "", answer) == re.sub(r"\s", "", wanted)
    return _words(answer) == _words(wanted)


def conclusion(text: str) -> str:
    """What an answer comes to: behind the last `the answer is`, else its last line."""
    found = _CONCLUDES.findall(text)
    if found and found[-1].strip(_FRAME):
        return found[-1].strip()
    lines = [line for line in text.splitlines() if line.strip(_FRAME)]
    return lines[-1].strip() if lines else ""


def _words(text: str) -> list[str]:
    parts = re.split(r"[\s,]+", text.strip().strip(_FRAME).rstrip("."))
    return [found for part in parts if (found := part.strip(_FRAME).casefold())]
