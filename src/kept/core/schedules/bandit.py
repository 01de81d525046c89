"""Turns by what proposers have brought: who gains more for what it costs is asked more often.

Every proposer has a few turns first. Then the share of each is the chance that it brings the most
for its cost, by what is known of it, and never less than a floor: what brought nothing so far may
yet do, and what did so may have no more. A turn in which nothing could be proposed counts as one
that cost as much as others and brought nothing; who fails time and again is left out. The turn is
drawn by these shares and the run's seed, and they are journalled with it. Only closed steps count,
so that nothing depends on timing. Texts that people wrote, and who is after less text at no loss,
have an equal part whatever they bring: the first are there to be tried, and no gain shows what the
second are worth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erfc, exp, sqrt
from typing import ClassVar, NamedTuple

from kept.core.budget import StopReason
from kept.core.proposal import Turn, derive_seed
from kept.core.schedules.round_robin import RoundRobin, able_of, number_of
from kept.core.state import State
from kept.core.turns import NOTHING, Brought

FIRST = 2
"""Turns that each has before any of them counts."""

FLOOR = 0.1
"""Share of turns that each keeps; half of an equal share, where that is less."""

BY_ITSELF = 0.25
"""Of the cost of a turn, what every turn costs alike: it is one less of those that a run has."""

_DIGITS = 3
_POINTS = tuple(n / 4 for n in range(-16, 17))


@dataclass(frozen=True, slots=True)
class Bandit:
    """Implements `kept.core.ports.Schedule`."""

    proposers: tuple[str, ...]
    seed: int = 0
    even: frozenset[str] = frozenset()
    """Proposers with an equal part of the turns whatever they gain, besides those that simplify."""
    phase: str = "main"
    allows_pool: ClassVar[bool] = True

    def next(self, state: State) -> Turn | StopReason:
        """A turn for a proposer behind its first turns or equal part; else one drawn by share."""
        able = able_of(self.proposers, state)
        brought = {name: state.brought.get(name, NOTHING) for name in able}
        rivals = {n: own for n, own in brought.items() if not (own.simplifies or n in self.even)}
        due = self._due(state, able, [name for name in able if name not in rivals])
        if due or len(rivals) < 2:
            return RoundRobin(due or tuple(rivals), self.phase).next(state)
        given = shares(rivals)
        name = _drawn(given, derive_seed(self.seed, "turns", state.next_step) / 2**48)
        return Turn(name, self.phase, number_of(name, state), shares=given)

    def _due(self, state: State, able: list[str], even: list[str]) -> tuple[str, ...]:
        """Proposers that have turns due without a draw."""
        turns = {name: state.turns.get(name, 0) for name in able}
        new = tuple(name for name in able if turns[name] < FIRST)
        if new or len(even) == len(able):
            return new or tuple(able)
        return tuple(name for name in even if turns[name] * len(able) <= sum(turns.values()))

    def last(self, state: State) -> Turn | None:
        """Nothing more: what was kept is the best."""
        return None


def shares(brought: Mapping[str, Brought]) -> dict[str, float]:
    """Share of the turns for each proposer; the sum is 1."""
    floor = min(FLOOR, 1 / (2 * len(brought)))
    left = 1.0 - floor * len(brought)
    chances = zip(brought, _chances(list(brought.values())), strict=True)
    return {name: round(floor + left * chance, _DIGITS) for name, chance in chances}


def _drawn(given: Mapping[str, float], at: float) -> str:
    """Whose share a number from 0 to 1 falls into."""
    at *= sum(given.values())  # which is 1 but for rounding
    for name, share in given.items():
        at -= share
        if at < 0:
            return name
    return list(given)[-1]


class _Rate(NamedTuple):
    """Typical gains for a cost: so many in so much of it. What is not known is as a Gamma law."""

    wins: float
    cost: float

    def at(self, z: float) -> float:
        """The rate, so many standard deviations from the middle (Wilson and Hilferty)."""
        root = 1 - 1 / (9 * self.wins) + z / (3 * sqrt(self.wins))
        return self.wins / self.cost * max(0.0, root) ** 3

    def below(self, rate: float) -> float:
        """The chance that it is less."""
        root = (rate * self.cost / self.wins) ** (1 / 3)
        z = 3 * sqrt(self.wins) * (root - 1 + 1 / (9 * self.wins))
        return erfc(-z / sqrt(2)) / 2


def _chances(rows: Sequence[Brought]) -> list[float]:
    """Of each, that it brings the most for what it costs."""
    rates = _rates(rows)
    weights = [exp(-z * z / 2) for z in _POINTS]
    found: list[float] = []
    for mine in rates:
        others = [rate for rate in rates if rate is not mine]
        chance = 0.0
        for z, weight in zip(_POINTS, weights, strict=True):
            rate = mine.at(z)
            for other in others:
                weight *= other.below(rate)
            chance += weight
        found.append(chance)
    whole = sum(found)
    return [chance / whole for chance in found] if whole else [1 / len(rows) for _ in rows]


def _rates(rows: Sequence[Brought]) -> list[_Rate]:
    """Estimated rate of each proposer; at first, all have the average."""
    by_money = any(row.usd for row in rows)
    own = [row.usd if by_money else float(row.rollouts) for row in rows]
    told = sum(row.turns - row.failed for row in rows) or 1
    each = sum(own) / told or 1.0
    # a turn that failed cost little, and is still one that somebody else did not have
    costs = [
        BY_ITSELF * each * row.turns + (1 - BY_ITSELF) * (cost + each * row.failed)
        for row, cost in zip(rows, own, strict=True)
    ]
    wins, gain = sum(row.wins for row in rows), sum(row.gain for row in rows)
    typical = gain / wins if wins and gain else 1.0
    gained = [row.gain / typical for row in rows]
    first = sum(costs) / (sum(gained) + 1) or 1.0
    return [_Rate(1 + won, first + cost) for won, cost in zip(gained, costs, strict=True)]
