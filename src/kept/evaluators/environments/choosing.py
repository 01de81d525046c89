"""Multiple choice: the choices of a row, and the one that an answer means."""

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, NamedTuple, cast

from kept.evaluators.environments.replying import boxed

_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|rm)\s*\{([^{}]*)\}")
_LETTER = re.compile(r"\(?\s*([A-Z])\s*[.):]*", re.IGNORECASE)
_LEADING = re.compile(r"(?:\(\s*([A-Z])\s*\)|([A-Z])\s*[.):])\s*\S", re.IGNORECASE)
_NAMED = re.compile(r"(?:the\s+)?(?:choice|option|answer)\s*(?:is\b)?\s*:?\s*(.+)", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s,;&+/]+|\band\b", re.IGNORECASE)
_SIGNS = "$*`\"' \t\r\n"


TWICE = "a wrong choice has the text of the right one; both count"
"""The words of a warning about such cases."""


class Choice(NamedTuple):
    """One choice as the data has it."""

    label: str
    text: str


def labelled(texts: Sequence[str]) -> list[Choice]:
    """Choices with the letters of their order."""
    return [Choice(ascii_uppercase[n], text) for n, text in enumerate(texts)]


def choices_in(value: object) -> list[Choice]:
    """Choices of a list of texts or mappings, or of a mapping by label."""
    if isinstance(value, dict):
        rows = cast("dict[str, Any]", value).items()
        return sorted(Choice(label_in(label), str(text)) for label, text in rows)
    found: list[Choice] = []
    for n, one in enumerate(cast("list[Any]", value) if isinstance(value, list) else []):
        usual = ascii_uppercase[n % 26]
        if isinstance(one, dict):
            given = cast("dict[str, Any]", one)
            found.append(Choice(label_in(given.get("label") or usual), text_in(given)))
        else:
            found.append(Choice(usual, str(one)))
    return found


def label_in(value: object) -> str:
    """A label without the signs around it."""
    return str(value or "").strip().upper().lstrip("(").rstrip(".):")


def text_in(choice: Mapping[str, Any]) -> str:
    """The text of a choice that is a mapping."""
    names = ("text", "content", "option")
    return next((str(choice[name]).strip() for name in names if choice.get(name)), "")


def chosen(answer: str, choices: Sequence[Choice]) -> str:
    """The label of the choice that an answer means; empty where it means none.

    An answer is a letter, the text of a choice, or a letter with a sign and more behind it. Where
    there are no choices, they stand in a picture, and any letter is one. The word `A` is no label.
    """
    said = bare(answer)
    if named := _NAMED.fullmatch(said):
        said = bare(named[1])
    labels = {choice.label for choice in choices} or {*ascii_uppercase}
    letter = _LETTER.fullmatch(said)
    if letter and letter[1].upper() in labels:
        return letter[1].upper()
    same = [choice.label for choice in choices if plain(choice.text) == plain(said) != ""]
    if same:
        return same[0]
    if leading := _LEADING.match(said):
        label = str(leading[1] or leading[2]).upper()
        return label if label in labels else ""
    return ""


def alike(one: str, other: str, choices: Sequence[Choice]) -> bool:
    """True for two labels that mean the same: one label, or choices of one text."""
    texts = dict(choices)
    same = plain(texts.get(one, "")) == plain(texts.get(other, "")) != ""
    return one == other or same


def all_chosen(answer: str, labels: Sequence[str]) -> frozenset[str]:
    """The labels that an answer lists; none where there is anything else in it."""
    parts = [part for part in _BETWEEN.split(bare(answer)) if part]
    letters = [_LETTER.fullmatch(bare(part)) for part in parts]
    found = [letter[1].upper() for letter in letters if letter]
    fits = len(found) == len(parts) and set(found) <= set(labels)
    return frozenset(found) if fits else frozenset()


def bare(answer: str) -> str:
    """An answer without a box, dollar signs, quotation marks and TeX's commands for text."""
    inner = boxed(answer)
    return _WRAPPED.sub(r"\1", answer if inner is None else inner).strip(_SIGNS)


def plain(text: str) -> str:
    """A text to compare: blanks as one, small letters, no dollars, no full stop at its end."""
    return " ".join(bare(text).replace("$", "").split()).casefold().rstrip(".")
