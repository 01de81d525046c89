"""The guard against gold answers: what a case expects does not belong into a skill.

The guard against copied text ignores short answers, because `yes` and `Paris` stand in many an
honest text. Here the answers are known as such, and one that few cases share and the skill has not
had is refused, wherever it was taken from.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kept.core.artifact import Candidate
from kept.core.text import STOP_WORDS, grams, line_of, words_of

COMMON = 3
"""An answer that more cases have is a label, and may be spoken of."""

MIN_CHARS = 4
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
    """How many words answers have; the longest first."""

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
        if sum(map(len, answer)) < MIN_CHARS or holders[answer] > COMMON:
            continue
        if len(answer) == 1 and (answer[0] in STOP_WORDS or used[answer[0]] > COMMON):
            continue
        found.setdefault(answer, case)
    return GoldGuard(found)
