"""Guards: checks that refuse a candidate before any budget is spent on it.

Each guard looks for one way to please a scorer without being better. A guard is a pure function
of the seed, the incumbent and the candidate, and returns a readable reason.

Copied case text: a phrase of eight words, or a shorter answer as a whole. It counts if it stands
in few cases, train text does not explain it, and neither seed nor incumbent has it. All phrases
are collected once; a check looks up only those of the changed text.

Leaked gold answers: the guard against copied text ignores short answers, because `yes` and
`Paris` stand in many honest texts. Where the expected answers of cases are known, one shared by
few cases and new to the skill is refused, wherever it came from.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate, count, islice
from typing import Any, NamedTuple, cast

from kept.core.artifact import Candidate
from kept.core.case import SPLITS, Case, Cases, Split
from kept.core.text import (
    STOP_WORDS,
    Section,
    all_text,
    count_tokens,
    density,
    grams,
    line_of,
    repetition,
    sections,
    title_key,
    words_of,
)

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
    """Source of a phrase: its split and case."""

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
    """Phrases that may not be copied."""
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
            known = (hit for hit in found if hit.phrase in self.phrases)
            hits += (hit for hit in known if len(set(hit.phrase)) >= MIN_DISTINCT)
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
            words = words_of(text)
            known.update(grams(words, PIECE))
            # of shorter rows those that could be an answer
            for size in range(1, PIECE):
                rows = grams(words, size)
                known.update(row for row in rows if sum(map(len, row)) >= MIN_CHARS)
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
    """Long phrases of a text, by which it is recognized; all of a short text."""
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


COMMON_ANSWERS = 3
"""An answer that more cases have is a label, and may be spoken of."""

MIN_ANSWER_CHARS = 4
"""A shorter answer is no sign of anything."""

LONGEST = 8
"""Words of an answer that are looked for; its first so many."""

Answer = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GoldGuard:
    """Refuses what brings an answer in."""

    answers: Mapping[Answer, str]
    """The case of each, by its words."""
    name: str = "gold"
    _sizes: Sequence[int] = field(init=False, repr=False, compare=False)
    """Lengths of the answers in words; the longest first."""

    def __post_init__(self) -> None:
        sizes = {len(answer) for answer in self.answers}
        object.__setattr__(self, "_sizes", sorted(sizes, reverse=True))

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """The first answer that the candidate brings in; not which, for a verdict is shown."""
        for path, text in sorted(candidate.texts.items()):
            before = (seed.texts.get(path, ""), incumbent.texts.get(path, ""))
            if text in before:
                continue
            known = {found for old in before for found, _ in self._found(old)}
            for answer, at in self._found(text):
                if answer not in known:
                    case = self.answers[answer]
                    return f"{path}:{line_of(text, at)} holds the answer of the case `{case}`"
        return None

    def _found(self, text: str) -> list[tuple[Answer, int]]:
        words = words_of(text)
        return [
            (gram, at)
            for size in self._sizes
            for at, gram in enumerate(grams(words, size))
            if gram in self.answers
        ]


def gold_guard(answers: Iterable[tuple[str, str]], tasks: Iterable[str] = ()) -> GoldGuard:
    """The guard of all answers, given as case and text.

    A single word that many tasks have is one that anybody may use.
    """
    rows = {(case, tuple(words_of(text)[:LONGEST])) for case, text in answers}
    holders = Counter(answer for _, answer in rows)
    used = Counter(word for task in tasks for word in set(words_of(task)))
    found: dict[Answer, str] = {}
    for case, answer in sorted(rows):
        if sum(map(len, answer)) < MIN_ANSWER_CHARS or holders[answer] > COMMON_ANSWERS:
            continue
        if len(answer) == 1 and (answer[0] in STOP_WORDS or used[answer[0]] > COMMON_ANSWERS):
            continue
        found.setdefault(answer, case)
    return GoldGuard(found)


@dataclass(frozen=True, slots=True)
class LengthGuard:
    """Refuses what says more rather than better."""

    max_growth: float | None = 3.0
    """Times the tokens of the seed."""
    max_tokens: int | None = None
    max_chars: int | None = None
    name: str = "length"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Too long by any of the limits, and longer than the incumbent."""
        text, before = all_text(candidate.texts), all_text(incumbent.texts)
        # from a text that is too long already, the way back is open
        if len(text) <= len(before):
            return None
        if self.max_chars is not None and len(text) > self.max_chars:
            return f"{len(text)} characters, {self.max_chars} allowed"
        tokens = count_tokens(text)
        if self.max_tokens is not None and tokens > self.max_tokens:
            return f"{tokens} tokens, {self.max_tokens} allowed"
        first = count_tokens(all_text(seed.texts))
        if self.max_growth is not None and tokens > self.max_growth * max(1, first):
            times = f"{tokens / max(1, first):.1f} times the seed's {first}"
            return f"{tokens} tokens, {times}, {self.max_growth:g} times allowed"
        return None


SLACK = 1.25
"""Tolerance: this much more of a fault than the seed has is not refused."""


@dataclass(frozen=True, slots=True)
class StuffingGuard:
    """Refuses what says the same words again and again.

    A seed that repeats itself, as code and tables do, sets the bar for its candidates.
    """

    max_density: float = 0.25
    """Share of the content words that the three most repeated ones may take."""
    max_repetition: float = 0.3
    """Share of the five-word phrases that may have stood in the text before."""
    name: str = "stuffing"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Any changed text that is stuffed."""
        for path in _changed(incumbent, candidate):
            reason = self._stuffed(candidate[path], seed.texts.get(path, ""))
            if reason is not None:
                return f"{path}: {reason}"
        return None

    def _stuffed(self, text: str, first: str) -> str | None:
        share, words = density(text)
        allowed = max(self.max_density, SLACK * density(first)[0])
        if share > allowed:
            named = ", ".join(f"`{word}`" for word in words)
            take = "takes" if len(words) == 1 else "take"
            return f"{named} {take} {share:.0%} of the content words, {allowed:.0%} allowed"
        repeated = repetition(text)
        allowed = max(self.max_repetition, SLACK * repetition(first))
        if repeated > allowed:
            return f"{repeated:.0%} of its phrases stood in it before, {allowed:.0%} allowed"
        return None


@dataclass(frozen=True, slots=True)
class SectionsGuard:
    """Refuses what drops or empties a section that the seed has."""

    keep: tuple[str, ...] | None = None
    """Titles of the sections that must stay; None for all."""
    max_level: int = 6
    """Deepest heading that counts."""
    name: str = "sections"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """A section of the seed that is gone or empty now."""
        for path in sorted(seed.texts):
            if candidate.texts.get(path) == incumbent.texts.get(path, ""):
                continue
            now = sections(candidate.texts.get(path, ""))
            have = Counter((section.level, section.key) for section in now)
            filled = {(section.level, section.key) for section in now if not section.empty}
            for section in self._kept(sections(seed[path])):
                place = (section.level, section.key)
                have[place] -= 1
                if have[place] < 0:
                    return f"{path} lost its section `{section.title}`"
                if not section.empty and place not in filled:
                    return f"{path}: the section `{section.title}` is empty"
        return None

    def _kept(self, found: Iterable[Section]) -> Iterable[Section]:
        names = None if self.keep is None else {title_key(name) for name in self.keep}
        for section in found:
            if section.level <= self.max_level and (names is None or section.key in names):
                yield section


@dataclass(frozen=True, slots=True)
class EmptyGuard:
    """Refuses what leaves nothing of a text."""

    name: str = "empty"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """A text that has nothing but space in it, and had something."""
        for path in _changed(incumbent, candidate):
            if not candidate[path].strip() and incumbent.texts.get(path, "").strip():
                return f"nothing would be left of {path}"
        return None


def _changed(before: Candidate, after: Candidate) -> list[str]:
    return sorted(path for path, text in after.texts.items() if before.texts.get(path) != text)
