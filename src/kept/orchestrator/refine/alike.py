"""Recognition of a defect that critics put in other words, by its main words alone.

No model is asked (rule R36). Two descriptions are of one defect where their main words are the
same, or one has a few more, and where both name the same numbers. Words that say that something is
missing are no main words: "lacks a summary" and "the summary is missing" are one defect. A word
that was replaced by another makes two: "too long" and "too short".
"""

import re
from collections.abc import Collection, Mapping

_SHARED = 0.75
"""Share of the main words of the longer description that the shorter one has, at least."""

_GRAMMAR = """
a about also an and any are as at be been being but by can could did do does doesn't don't for from
had has have in is isn't it its more must needs no nor not of on or should so still than that the
their there these they this those to too was were which will with would yet
"""
_LACK = """
absent add added lack lacking lacks miss missed misses missing none omit omits omitted without
"""
_MINOR = frozenset((_GRAMMAR + _LACK).split())
_APOSTROPHE = "\N{RIGHT SINGLE QUOTATION MARK}"
_WORD = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:'\w+)*")
_ENDINGS = ("ing", "ed", "es", "s", "e")
_STEM = 3
"""Characters that a word keeps at least when its ending is cut off."""


def main_words(text: str) -> frozenset[str]:
    """The words of a description that say what it is about, without their endings."""
    words = _WORD.findall(text.casefold().replace(_APOSTROPHE, "'"))
    return frozenset(_stem(word) for word in words if word not in _MINOR)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word.removesuffix(ending)
    return word


def are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """True if two descriptions with these main words are of one defect."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    if not few or len(few) < _SHARED * len(many) or not few <= many:
        return False
    return not any(word[0].isdecimal() for word in many - few)


def first_alike(
    words: frozenset[str], known: Mapping[str, frozenset[str]], taken: Collection[str]
) -> str | None:
    """The first known description of the same defect that is not taken; None without one."""
    found = (key for key, its in known.items() if key not in taken and are_alike(words, its))
    return next(found, None)
