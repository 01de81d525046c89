"""Error budget of each test of a run.

Online control of false discoveries (LORD++): a run starts with a little wealth, every test is given
a share of what is left of it, and every keep earns some back. The levels follow from counts of
tests and keeps alone, never from what a test measured.
"""

from functools import lru_cache
from typing import NamedTuple

FIRST = 0.8
"""Share of α that a run may spend before its first keep."""

PATIENCE = 2
"""Tests after which a run without a keep begins to save."""

HASTE = 5
"""The same after a keep: what was earned is spent soon, while there is more to be found."""

_POWER = 1.6
_TERMS = 4000


class Ledger(NamedTuple):
    """Counts of tests and keeps that spent α, from closed steps alone."""

    tests: int = 0
    """Steps that were given a level; who closes without a test gives it back, if it was the last
    to be given one. So none is used twice."""
    keeps: tuple[int, ...] = ()
    """Numbers of those that were kept, counted from 1."""
    promotions: int = 0
    """Promotions that were asked for."""
    proven: int = 0
    """Keeps that were proven at once, and took no level."""
    chosen: int = 0
    """Races whose level does not hold for new cases: what leads was chosen among so many."""
    cuts: int = 0
    """Simplifications that were tested; they have a line of their own."""
    cuts_kept: tuple[int, ...] = ()
    """Numbers of those that were kept, counted from 1."""
    varies: bool = False
    """True once repeats of the same run have differed, in a run without cases."""

    @property
    def lost(self) -> int:
        """Tests since the last keep."""
        return self.tests - max(self.keeps, default=0)

    @property
    def tenure(self) -> int:
        """Keeps of every kind: whose time it is."""
        return len(self.keeps) + self.proven + len(self.cuts_kept)

    @property
    def among(self) -> int:
        """Number of candidates that the leading one was chosen among on the cases of its proof."""
        return self.chosen + (self.cuts if self.cuts_kept else 0)

    @property
    def of_cuts(self) -> "Ledger":
        """The line of simplifications, as if it were the only one."""
        return Ledger(self.cuts, self.cuts_kept)

    def cut(self, nth: int, *, kept: bool) -> "Ledger":
        """One more simplification was tested, as the nth."""
        keeps = (*self.cuts_kept, nth) if kept else self.cuts_kept
        return self._replace(cuts=self.cuts + 1, cuts_kept=keeps)

    def give(self) -> "Ledger":
        """One more test is given its level."""
        return self._replace(tests=self.tests + 1)

    def take_back(self) -> "Ledger":
        """The last level that was given was not used."""
        return self._replace(tests=self.tests - 1)

    def chose(self) -> "Ledger":
        """One more race that what leads was chosen among."""
        return self._replace(chosen=self.chosen + 1)

    def keep(self, nth: int) -> "Ledger":
        """The nth test ended in a keep, which earns something back."""
        return self._replace(keeps=(*self.keeps, nth))


def level(ledger: Ledger, alpha: float) -> float:
    """Significance level of the next test."""
    nth = ledger.tests + 1
    total = alpha * FIRST * _share(nth, PATIENCE)
    for at, kept in enumerate(ledger.keeps):
        earned = alpha * (1 - FIRST) if at == 0 else alpha
        total += earned * _share(nth - kept, HASTE)
    return total


def left(ledger: Ledger, alpha: float) -> float:
    """Sum of the levels of all later tests, if none of them is a keep."""
    total = alpha * FIRST * _rest(ledger.tests, PATIENCE)
    for at, kept in enumerate(ledger.keeps):
        earned = alpha * (1 - FIRST) if at == 0 else alpha
        total += earned * _rest(ledger.tests - kept, HASTE)
    return total


@lru_cache(maxsize=1024)
def _rest(tests: int, delay: int) -> float:
    """Of one unit spread over all tests to come, what so many have left."""
    return max(0.0, 1 - sum(_share(nth, delay) for nth in range(1, tests + 1)))


def _share(nth: int, delay: int) -> float:
    """Of one unit spread over all tests to come, what the nth gets."""
    return (nth + delay) ** -_POWER / _total(delay)


@lru_cache(maxsize=8)
def _total(delay: int) -> float:
    head = sum((nth + delay) ** -_POWER for nth in range(1, _TERMS))
    # the rest, from above: shares must not sum up to more than one
    return head + (_TERMS - 1 + delay) ** (1 - _POWER) / (_POWER - 1)
