"""Scores of OfficeQA answers: equality and shared words, and the rule that its authors publish.

By the published rule an answer is one line with as many numbers as are expected, each within a
relative tolerance and of the expected unit; lists keep their order, texts are equal.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from string import punctuation
from typing import NamedTuple

KEPT_SIGNS = ".-%"
"""Punctuation that means something in a number."""

LONGEST = 250
"""Characters of an answer that is no essay."""

NEAR = 20
"""Characters before and behind a number among which its unit is looked for."""

FIRST_YEAR, LAST_YEAR = 1900, 2100
"""Whole numbers between them are taken for years that an answer only mentions."""

SHORTEST_TEXT = 2
"""Letters beside the numbers of an answer, from which they count."""

_DROPPED = str.maketrans("", "", "".join(set(punctuation) - set(KEPT_SIGNS)))
_NO_WORDS = re.compile(r"\b(?:millions?|billions?|dollars?|nominal)\b")

_CURRENCY = "$£€¥₹¢₩₽"
_VALUE = r"\d{1,3}(?:,\d{3})*(?:\.\d+)?|\d+(?:\.\d+)?"
_BRACKETED = re.compile(rf"\(\s*([{_CURRENCY}])?\s*({_VALUE})\s*\)")
_GROUPED = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)")
_NUMBER = re.compile(r"-?\d+\.?\d*%?")
_ITEM = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?%?")
_UNITS = {
    "trillion": re.compile(r"\btrillions?\b"),
    "billion": re.compile(r"\b(?:billions?|b)\b"),
    "million": re.compile(r"\b(?:millions?|m)\b"),
    "thousand": re.compile(r"\b(?:thousands?|k)\b"),
}
_BESIDE = re.compile(
    r"\b(?:trillions?|billions?|millions?|thousands?|hundreds?|percent|percentage)\b"
)
_LIST = re.compile(r"\[([^\[\]]+)\]")
_MARKUP = re.compile(r"<[^>]*>")


class Number(NamedTuple):
    """One number of a text."""

    value: float
    unit: str = ""
    """`million` and the like, where one is named near it."""

    @property
    def is_year(self) -> bool:
        """True for a whole number that may be a year."""
        return _is_year(self.value)


def normal(text: str) -> str:
    """Lower case, without commas, most punctuation, and words that only name a unit."""
    plain = _plain(text).lower().translate(_DROPPED)
    return " ".join(_NO_WORDS.sub(" ", plain).split())


def token_f1(answer: str, gold: str) -> float:
    """The share of words that both have, of those of either (F1)."""
    said, wanted = normal(answer).split(), normal(gold).split()
    if not said or not wanted:
        return float(said == wanted)
    common = sum((Counter(said) & Counter(wanted)).values())
    return 2 * common / (len(said) + len(wanted))


def official(answer: str, gold: str, tolerance: float = 0.0) -> bool:
    """Agree by the published rule."""
    if not _is_direct(answer):
        return False
    wanted, said = numbers_in(gold), numbers_in(answer)
    if not wanted:
        return not said and _bare(answer) == _bare(gold)
    if _MARKUP.search(answer):
        return False
    said = _without_years(said, wanted, gold)
    near = _nearness(tolerance)
    if _is_list(gold, wanted):
        if _splits(answer, [number.value for number in wanted], near):
            return True
        pairs = zip(wanted, said, strict=False)
        return len(said) == len(wanted) and all(_same(one, other, near) for one, other in pairs)
    found = all(any(_same(one, other, near) for other in said) for one in wanted)
    return len(said) == len(wanted) and found and _texts_agree(answer, gold)


def numbers_in(text: str) -> list[Number]:
    """The numbers of a text in order; a sign of percent is left aside, brackets are a minus."""
    plain = _GROUPED.sub(lambda match: match[0].replace(",", ""), _signed(_plain(text)))
    found: list[Number] = []
    for match in _NUMBER.finditer(plain):
        around = plain[max(0, match.start() - NEAR) : match.end() + NEAR].lower()
        unit = next((name for name, words in _UNITS.items() if words.search(around)), "")
        found.append(Number(float(match[0].rstrip("%")), unit))
    return found


Nearness = Callable[[float, float], bool]


def _nearness(tolerance: float) -> Nearness:
    def near(wanted: float, said: float) -> bool:
        if wanted == 0:
            return said == 0
        return abs(wanted - said) / abs(wanted) <= tolerance

    return near


def _same(wanted: Number, said: Number, near: Nearness) -> bool:
    units = not wanted.unit or not said.unit or wanted.unit == said.unit
    return units and near(wanted.value, said.value)


def _is_direct(answer: str) -> bool:
    """One line that is not too long, and that does not give up."""
    lines = [line for line in answer.splitlines() if line.strip()]
    given_up = "unable to determine" in answer.lower()
    return len(lines) == 1 and len(answer.strip()) <= LONGEST and not given_up


def _without_years(said: Sequence[Number], wanted: Sequence[Number], gold: str) -> list[Number]:
    """The numbers of an answer without years, unless a year, or a text with one, is expected."""
    count = any(number.is_year for number in wanted) or (len(wanted) == 1 and bool(_beside(gold)))
    return [number for number in said if count or not number.is_year]


def _is_list(gold: str, wanted: Sequence[Number]) -> bool:
    """Tell a list of nothing but numbers, in brackets, from any other answer."""
    body = _list_body(gold)
    values = [number.value for number in wanted]
    return body is not None and len(values) > 1 and _splits(body, values, lambda a, b: a == b)


def _splits(text: str, values: Sequence[float], near: Nearness) -> bool:
    """Part a text at some of its commas so that the values come out in order.

    A comma may stand between two values or inside one, as in `8,152,260` for 8 and 152260.
    """
    pieces = (_list_body(text) or _plain(text)).split(",")

    @cache
    def fits(piece: int, value: int) -> bool:
        if value == len(values):
            return piece == len(pieces)
        for end in range(piece + 1, len(pieces) + 1):
            item = _item(",".join(pieces[piece:end]))
            if item is not None and near(values[value], item) and fits(end, value + 1):
                return True
        return False

    return len(values) > 1 and fits(0, 0)


def _item(text: str) -> float | None:
    """The number that an item of a list is; None where it is something else."""
    item = text.strip()
    if re.search(r"\s,|,\s", item):
        return None
    item = _signed(item)
    return float(item.rstrip("%").replace(",", "")) if _ITEM.fullmatch(item) else None


def _list_body(text: str) -> str | None:
    """The inside of the only brackets of a text; None where numbers stand outside of them."""
    plain = _plain(text)
    found = list(_LIST.finditer(plain))
    if len(found) != 1:
        return None
    outside = plain[: found[0].start()] + plain[found[0].end() :]
    return None if re.search(r"\d", outside) else found[0][1]


def _texts_agree(answer: str, gold: str) -> bool:
    """Compare what stands beside the numbers, as the month of a date; one may hold the other."""
    wanted, said = _beside(gold), _beside(answer)
    if not wanted:
        return True
    return bool(said) and (wanted in said or said in wanted)


def _beside(text: str) -> str:
    """The words of a text that are neither numbers nor units; empty where there are none."""
    words = _NUMBER.sub("", _plain(text).lower()).replace(",", "")
    words = " ".join(re.sub(r"[^\w\s]", " ", _BESIDE.sub("", words)).split())
    return words if len(words) >= SHORTEST_TEXT else ""


def _bare(text: str) -> str:
    """A text in lower case without quotes round it, and without what stands in brackets."""
    plain = text.strip().lower().strip('"').strip("'")
    return " ".join(re.sub(r"\([^)]*\)", "", plain).split())


def _signed(text: str) -> str:
    """A text without signs of currency, and with a minus for a number in brackets."""

    def signed(match: re.Match[str]) -> str:
        year = not match[1] and _is_year(float(match[2].replace(",", "")))
        return match[0] if year else f"-{match[2]}"

    return re.sub(f"[{_CURRENCY}]", "", _BRACKETED.sub(signed, text))


def _plain(text: str) -> str:
    """A text with plain signs of minus, and single blanks."""
    return " ".join(text.replace("\N{MINUS SIGN}", "-").split())


def _is_year(value: float) -> bool:
    return FIRST_YEAR <= value <= LAST_YEAR and value == int(value)
