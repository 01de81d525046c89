"""Answers compared as SQuAD compares them: case, punctuation, articles and blanks do not matter."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Likeness:
    """How like an answer is to the best of those that are expected."""

    exact: float
    f1: float
    inside: float
    """1 where an expected answer stands somewhere in the answer."""


_SAME = Likeness(1.0, 1.0, 1.0)


def normal(text: str) -> str:
    """A text without what does not matter."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def exact(answer: str, gold: str) -> float:
    """1 where they are the same but for what does not matter."""
    return float(normal(answer) == normal(gold))


def token_f1(answer: str, gold: str) -> float:
    """The harmonic mean of how much of each is in the other, word by word."""
    return _f1(normal(answer).split(), normal(gold).split())


def likeness(answer: str, golds: Sequence[str]) -> Likeness:
    """The best of each over all that are expected."""
    said, wanted = normal(answer), [normal(gold) for gold in golds]
    if said and said in wanted:
        return _SAME
    words, padded = said.split(), f" {said} "
    return Likeness(
        max(float(said == gold) for gold in wanted),
        max(_f1(words, gold.split()) for gold in wanted),
        float(any(f" {gold} " in padded for gold in wanted if gold)),
    )


def _f1(ours: Sequence[str], theirs: Sequence[str]) -> float:
    if not ours or not theirs:
        # two answers of nothing but articles are the same, and one such is like no other
        return float(ours == theirs)
    if set(ours).isdisjoint(theirs):
        return 0.0
    both = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * both / (len(ours) + len(theirs))
