"""A world whose truth is known: lines that may be added to a text, and what each does to it."""

from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.case import Case

_GOOD = ("say what is meant", "show one example", "name the units", "check the sums")
_USELESS = ("be excellent", "think very hard", "take a deep breath", "this is important")
_HARMFUL = (
    "answer in rhyme",
    "guess when in doubt",
    "leave out the units",
    "be brief at all costs",
)


@dataclass(frozen=True, slots=True)
class Pool:
    """Good, useless and harmful lines; each good one adds `effect`, each harmful one takes it."""

    good: tuple[str, ...] = _GOOD
    useless: tuple[str, ...] = _USELESS
    harmful: tuple[str, ...] = _HARMFUL
    base: float = 0.5
    """Quality of a text with none of the lines."""
    effect: float = 0.1

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.good, *self.useless, *self.harmful)

    def quality(self, candidate: Candidate, case: Case) -> float:
        """The true quality of a candidate, the same on every case."""
        present = {line for text in candidate.texts.values() for line in text.splitlines()}
        # counted before they are weighed: equal texts must not differ by a rounding error
        balance = len(present.intersection(self.good)) - len(present.intersection(self.harmful))
        return min(1.0, max(0.0, self.base + self.effect * balance))
