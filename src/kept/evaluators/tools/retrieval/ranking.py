"""Which passages answer a query: by their words, by their meaning, to the letter, or all three.

What is equally good has the same rank, and is told in the order of the source: nothing depends on
how a sort breaks ties.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kept.errors import SetupError
from kept.evaluators.tools.retrieval.config import Looking
from kept.settings import install_command

if TYPE_CHECKING:
    import numpy as np

Scores = Mapping[int, float]
"""Of passages, by their number; who is not in it was not found."""

DIGITS = 6
"""Of a score: what differs beyond them is the arithmetic of a machine."""

_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"[\"“”„«»]([^\"“”„«»]+)[\"“”„«»]")
_TERM = re.compile(r"[^\s\"“”„«»(),;?!\[\]{}]+")


class Words:
    """Passages as they are searched by words and to the letter."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    @cached_property
    def _plain(self) -> list[str]:
        return [_plain(text) for text in self._texts]

    @cached_property
    def _bm25(self) -> Any:  # noqa: ANN401 # of a library without types
        try:
            bm25s = import_module("bm25s")
        except ImportError as error:
            raise SetupError(
                "a search by words needs bm25s", hint=install_command("retrieval")
            ) from error
        made = bm25s.BM25()
        # a passage of signs alone has no word, and there must be one in all
        made.index([words_of(text) or [""] for text in self._texts], show_progress=False)
        return made

    def open(self) -> None:
        """Count the words, which takes a while."""
        _ = self._bm25, self._plain

    def keyword(self, query: str) -> Scores:
        """BM25 of every passage that has a word of the query."""
        words = words_of(query)
        scores: list[float] = self._bm25.get_scores(words).tolist() if words else []
        return _found(enumerate(scores))

    def exact(self, query: str) -> Scores:
        """How many of the exact terms of a query stand in a passage, as whole words."""
        counts: dict[int, int] = {}
        for term in exact_terms(query):
            pattern = re.compile(rf"(?<!\w){re.escape(term)}(?!\w)")
            for n in self._with_all(words_of(term)):
                if pattern.search(self._plain[n]):
                    counts[n] = counts.get(n, 0) + 1
        return _found(counts.items())

    def _with_all(self, words: Sequence[str]) -> Iterable[int]:
        """The passages that have all of these words, however far apart."""
        import numpy as np

        scores = [self._bm25.get_scores([word]) for word in dict.fromkeys(words)]
        return map(int, np.flatnonzero(np.all(scores, axis=0))) if scores else ()


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case and with nothing cut off."""
    return _WORD.findall(text.casefold())


def exact_terms(query: str) -> list[str]:
    """What is looked for to the letter: the whole query, what it quotes, what looks like a name.

    A name has a digit, or a sign between letters: `E-1042`, `max_tokens`, `4.2`.
    """
    named = (term.strip(".:'`") for term in _TERM.findall(query))
    terms = [query.strip().rstrip("?!."), *_QUOTED.findall(query), *filter(_is_name, named)]
    return list(dict.fromkeys(filter(None, map(_plain, terms))))


def cosines(matrix: "np.ndarray[Any, Any]", vector: Sequence[float], count: int) -> Scores:
    """How near the nearest of vectors of length 1 lie to another one."""
    import numpy as np

    aim = np.asarray(vector, dtype=np.float32)
    length = float(np.linalg.norm(aim))
    near = matrix @ (aim / length) if length else np.zeros(len(matrix), dtype=np.float32)
    rounded = np.round(near.astype(float), DIGITS)
    # stable: equal ones in the order of the source
    first = np.argsort(-rounded, kind="stable")[:count]
    return dict(zip(map(int, first), map(float, rounded[first]), strict=True))


def unit(vectors: "Sequence[Sequence[float]] | np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Vectors as a matrix of rows of length 1."""
    import numpy as np

    matrix = np.asarray(vectors, dtype=np.float32)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths == 0, 1, lengths)


def ranks(scores: Scores) -> Mapping[int, int]:
    """From 1, the highest score first; equal scores have the same rank, as in `1, 2, 2, 4`."""
    found: dict[int, int] = {}
    last, rank = None, 0
    for place, (n, score) in enumerate(ordered(scores), 1):
        rank = rank if score == last else place
        last = score
        found[n] = rank
    return found


def ordered(scores: Scores) -> list[tuple[int, float]]:
    """The highest first; equal ones in the order of the source."""
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))


def fused(parts: Iterable[tuple[float, Scores]], k: int) -> Scores:
    """Rankings as one, each with its weight: 1 for who is first in all of them.

    The sum over rankings of weight x (k + 1) / (k + rank), by the sum of the weights.
    """
    weighed = [(weight, ranks(scores)) for weight, scores in parts if weight > 0]
    total = sum(weight for weight, _ in weighed)
    sums: dict[int, float] = {}
    for weight, ranking in weighed:
        for n, rank in ranking.items():
            sums[n] = sums.get(n, 0.0) + weight / total * (k + 1) / (k + rank)
    return {n: round(score, DIGITS) for n, score in sums.items()}


def chosen(scores: Scores, how: Looking) -> list[tuple[int, float]]:
    """The passages that are told: the best `top_k`, of those that reach `min_score`."""
    least = how.min_score
    found = [item for item in ordered(scores) if least is None or item[1] >= least]
    return found[: how.top_k]


def shares(scores: Scores) -> Scores:
    """Scores as shares of the highest: those of words have no scale of their own."""
    most = max(scores.values(), default=0.0)
    return {n: round(score / most, DIGITS) for n, score in scores.items()}


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _is_name(term: str) -> bool:
    digit = any(sign.isdigit() for sign in term)
    return digit or re.search(r"\w[-_./:#§]\w", term) is not None


def _found(scores: Iterable[tuple[int, Any]]) -> Scores:
    return {n: round(float(score), DIGITS) for n, score in scores if score > 0}
