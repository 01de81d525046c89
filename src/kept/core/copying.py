"""The guard against copied text: cases and their answers do not belong into an artifact.

A candidate that holds what it is to be judged by proves nothing. What counts is a phrase of eight
words, or a shorter answer as a whole, that stands in few cases, that train text does not explain,
and that neither the seed nor the incumbent has. All phrases are gathered once; a check looks up
those of the changed text.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate, count, islice
from typing import Any, NamedTuple, cast

from kept.core.artifact import Candidate
from kept.core.case import SPLITS, Case, Cases, Split
from kept.core.text import grams, line_of, words_of

PHRASE = 8
"""Words in a row that are no accident."""

MIN_CHARS = 24
"""A shorter answer is ignored: `yes` and `Paris` stand in many an honest text."""

MIN_DISTINCT = 4
"""Different words that a phrase of full length needs: a row of zeros is nobody's."""

COMMON = 5
"""A phrase that more cases of a split hold is boilerplate; or more than a quarter of them, in a
small split."""

PIECE = 3
"""Words in a row by which a phrase is traced to train text."""

EXPLAINED = 2 / 3
"""Share of its pieces by which a phrase may come from train text, even from two places there: the
seam costs two pieces of six."""

MANY_CHARS = 2_000_000
"""Of so much case text every phrase is remembered; of twice as much every second one, which still
finds whatever is copied at length."""

Phrase = tuple[str, ...]


class Origin(NamedTuple):
    """Where a phrase comes from."""

    split: Split
    case: str


class Hit(NamedTuple):
    """A phrase found in a text, and the place of its first word."""

    at: int
    phrase: Phrase


@dataclass(frozen=True, slots=True)
class CopyGuard:
    """Refuses what has text of the cases in it."""

    phrases: Mapping[Phrase, Origin]
    """What may not be copied."""
    name: str = "copy"
    _short: Mapping[str, Sequence[Phrase]] = field(init=False, repr=False, compare=False)
    """Phrases below full length by their longest word, which few other texts have."""

    def __post_init__(self) -> None:
        short: dict[str, list[Phrase]] = {}
        for phrase in self.phrases:
            if len(phrase) < PHRASE:
                short.setdefault(max(phrase, key=len), []).append(phrase)
        object.__setattr__(self, "_short", short)

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """The first phrase of a case that the candidate brings in.

        The phrase itself is not told: a verdict is shown to proposers.
        """
        if not self.phrases:
            return None
        for path, text in sorted(candidate.texts.items()):
            if text == incumbent.texts.get(path):
                continue
            hits = self._hits(words_of(text))
            if hits:
                known = (*seed.texts.values(), *incumbent.texts.values())
                old = {hit.phrase for text in known for hit in self._hits(words_of(text))}
                hits = [hit for hit in hits if hit.phrase not in old]
            if hits:
                at, phrase = min(hits)
                split, case = self.phrases[phrase]
                return f"{path}:{line_of(text, at)} holds text of the {split} case `{case}`"
        return None

    def _hits(self, words: Sequence[str]) -> list[Hit]:
        hits: list[Hit] = []
        if self.phrases.keys() & grams(words, PHRASE):
            found = (Hit(at, phrase) for at, phrase in enumerate(grams(words, PHRASE)))
            hits += (hit for hit in found if hit.phrase in self.phrases and _telling(hit.phrase))
        rare = self._short.keys() & words
        for at, word in enumerate(words) if rare else ():
            for phrase in self._short[word] if word in rare else ():
                start = at - phrase.index(word)
                if start >= 0 and tuple(words[start : start + len(phrase)]) == phrase:
                    hits.append(Hit(start, phrase))
        return hits


def copy_guard(cases: Cases, *, allow_train: bool = False) -> CopyGuard:
    """The guard of a case set; one that refuses nothing for a run without cases."""
    if cases.implicit:
        return CopyGuard({})
    known: set[Phrase] = set()
    for case in cases.train:
        for text in _texts(case):
            known.update(_pieces(words_of(text)))
    size = sum(len(text) for split in SPLITS for case in cases.of(split) for text in _texts(case))
    stride = 1 + size // MANY_CHARS
    guarded = _gather("holdout", cases, known, stride) | _gather("test", cases, known, stride)
    if not allow_train:
        guarded |= _gather("train", cases, frozenset(), stride)
    return CopyGuard(guarded)


def _gather(split: Split, cases: Cases, known: Set[Phrase], stride: int) -> dict[Phrase, Origin]:
    """The phrases of a split that few of its cases share and nothing known explains."""
    first: dict[Phrase, Origin] = {}
    holders: Counter[Phrase] = Counter()
    for case in cases.of(split):
        mine = {p for text in _texts(case) for p in _phrases(words_of(text), known, stride)}
        holders.update(mine)
        origin = Origin(split, case.id)
        for phrase in mine:
            first.setdefault(phrase, origin)
    most = max(1, min(COMMON, len(cases.of(split)) // 4))
    return {phrase: origin for phrase, origin in first.items() if holders[phrase] <= most}


def _phrases(words: list[str], known: Set[Phrase], stride: int) -> Iterator[Phrase]:
    """What of a text would be known again: its long phrases, or all of it when it is short."""
    size = min(PHRASE, len(words))
    if size < PHRASE and sum(map(len, words)) < MIN_CHARS:
        return
    piece = min(PIECE, size)
    strange = [gram not in known for gram in grams(words, piece)]
    # how many of the pieces before each place are strange
    before = list(accumulate(strange, initial=0))
    pieces = size - piece + 1
    allowed = pieces * (1 - EXPLAINED)
    for at, phrase in zip(
        count(0, stride), islice(grams(words, size), 0, None, stride), strict=False
    ):
        if before[at + pieces] - before[at] > allowed:
            yield phrase


def _pieces(words: list[str]) -> Iterator[Phrase]:
    """What phrases are traced by: triples, and of shorter rows those that could be an answer."""
    yield from grams(words, PIECE)
    for size in range(1, PIECE):
        yield from (row for row in grams(words, size) if sum(map(len, row)) >= MIN_CHARS)


def _telling(phrase: Phrase) -> bool:
    return len(set(phrase)) >= MIN_DISTINCT


def _texts(case: Case) -> Iterator[str]:
    """Every text in a case; its id and its keys are none."""
    pending: list[Any] = [case.data]
    if isinstance(pending[0], Mapping):
        named = cast("Mapping[str, object]", pending.pop())
        pending += (value for key, value in named.items() if key != "id")
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            pending += cast("Mapping[str, object]", value).values()
        elif isinstance(value, list | tuple):
            pending += cast("Sequence[object]", value)
