"""Search space of a numeric search: axes with their domains, and points.

Sampled numbers are rounded, so that a config file has no needless digits. The rounded value is
the one that counts as sampled.
"""

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from kept.core.artifact import NoSpan, Value
from kept.core.edit import SetValue
from kept.core.proposal import Proposal
from kept.spec.locate.tree import read_value

DIGITS = 6
"""Significant digits of a sampled number: of the number on a log axis, else of the range."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    whole: bool = False
    log: bool = False
    step: float | None = None

    @property
    def size(self) -> int | None:
        """Number of values; None for a continuum."""
        step = self.step or (1 if self.whole else None)
        return None if step is None else int((self.high - self.low) / step + 1e-9) + 1

    @property
    def top(self) -> float:
        """Greatest number on the grid."""
        size = self.size
        if size is None:
            return self.high
        # round: 0.1 × 3 is not exactly 0.3 in floats
        return float(f"{self.low + (size - 1) * (self.step or 1):.12g}")

    def holds(self, value: Value) -> bool:
        """True if a value is a number of the right type within the range."""
        if isinstance(value, bool | str) or (self.whole and not isinstance(value, int)):
            return False
        return self.low <= value <= self.high

    def at(self, share: float) -> Value:
        """Number at a share of the range, from 0 to 1."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            return self.tidy(math.exp(low + share * (high - low)))
        size = self.size
        if size is not None:
            return self.tidy(self.low + min(size - 1, int(share * size)) * (self.step or 1))
        return self.tidy(self.low + share * (self.high - self.low))

    def place(self, value: Value) -> float:
        """Position of a value in the range, from 0 to 1."""
        assert not isinstance(value, str)
        if self.high == self.low:
            return 0.0
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def tidy(self, value: float) -> Value:
        """Number rounded as it is written, within the range and on the grid."""
        if self.step or self.whole:
            step = self.step or 1
            value = self.low + round((value - self.low) / step) * step
            value = float(f"{min(max(value, self.low), self.top):.12g}")
            return round(value) if self.whole else value
        if self.log:
            value = float(f"{value:.{DIGITS}g}")
        else:
            value = round(value, DIGITS - math.floor(math.log10(self.high - self.low or 1.0)))
        return float(min(max(value, self.low), self.high))


@dataclass(frozen=True, slots=True)
class Choices:
    """One of several given values."""

    values: tuple[Value, ...]

    @property
    def size(self) -> int:
        """Number of choices."""
        return len(self.values)

    def holds(self, value: Value) -> bool:
        """True if a value is one of the choices."""
        return self.index(value) is not None

    def index(self, value: Value) -> int | None:
        """Index of a value; `true` differs from 1, while 1.0 equals it."""
        kind = _kind(value)
        found = (n for n, v in enumerate(self.values) if v == value and _kind(v) == kind)
        return next(found, None)

    def at(self, share: float) -> Value:
        """Value at a share of the list, from 0 to 1."""
        return self.values[min(self.size - 1, int(share * self.size))]


def _kind(value: Value) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


@dataclass(frozen=True, slots=True)
class Axis:
    """A value in a file with its domain."""

    file: str
    path: str
    domain: Numbers | Choices
    default: Value | None = None
    """Value if the file has none; None if the file must have one."""


Point = tuple[Value, ...]
"""A value for every axis, in the order of the axes."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Values that depend on other axes: all of them sum to 1."""

    leaders: tuple[int, ...]
    """Indices of the axes that they depend on."""
    members: tuple[tuple[str, str, float], ...]
    """File, path, and share of what the leaders leave."""

    def edits(self, point: Point) -> Iterator[SetValue]:
        """Edits that set the members at a point."""
        left = 1 - math.fsum(_number(point[at]) for at in self.leaders)
        given: list[float] = []
        for number, (file, path, share) in enumerate(self.members, 1):
            # the last member takes the rounding error
            ends = number == len(self.members)
            value = round(left - math.fsum(given), 9) if ends else round(left * share, DIGITS)
            given.append(max(0.0, value))
            yield SetValue(file, path, given[-1])


def _number(value: Value) -> float:
    assert not isinstance(value, str)
    return value


@dataclass(frozen=True, slots=True)
class Space:
    """A search space: independent axes, and values that follow from them."""

    axes: tuple[Axis, ...]
    rests: tuple[Rest, ...] = ()

    @property
    def size(self) -> int | None:
        """Number of points; None for a continuum."""
        sizes = [axis.domain.size for axis in self.axes]
        return None if None in sizes else math.prod(size for size in sizes if size is not None)

    def read(self, texts: Mapping[str, str]) -> Point | NoSpan:
        """Point of the current texts; a `NoSpan` with the reason if a value is not available."""
        point: list[Value] = []
        for axis in self.axes:
            value = read_value(axis.file, texts.get(axis.file, ""), axis.path)
            if isinstance(value, NoSpan):
                if axis.default is None or value.why != "target missing":
                    return value
                value = axis.default
            point.append(value)
        return tuple(point)

    def edits(self, point: Point) -> tuple[SetValue, ...]:
        """Edits that set texts to a point.

        Every axis is set, even if its value is the same: a rebased edit then still makes the
        intended point. Values that follow the axes come last.
        """
        pairs = zip(self.axes, point, strict=True)
        own = [SetValue(axis.file, axis.path, value) for axis, value in pairs]
        return (*own, *(edit for rest in self.rests for edit in rest.edits(point)))

    def meant(self, proposal: Proposal | None) -> Point | None:
        """Point that a proposal makes; None if it does not set all axes."""
        edits = proposal.edits if proposal else ()
        values = {(e.path, e.key): e.value for e in edits if isinstance(e, SetValue)}
        point = tuple(values.get((axis.file, axis.path)) for axis in self.axes)
        return None if None in point else tuple(value for value in point if value is not None)

    def holds(self, point: Point) -> bool:
        """True if a point is inside."""
        return all(a.domain.holds(value) for a, value in zip(self.axes, point, strict=True))

    def draw(self, chance: random.Random) -> Point:
        """Random point, uniform on each axis; on a log axis, uniform in magnitude."""
        return tuple(axis.domain.at(chance.random()) for axis in self.axes)

    def all(self) -> Iterator[Point]:
        """Yield every point of a finite space."""
        domains = [axis.domain for axis in self.axes]
        return product(*(_members(domain) for domain in domains))

    def distance(self, one: Point, other: Point) -> float:
        """Distance of two points, with each axis scaled to 0 … 1."""
        return sum(
            abs(axis.domain.place(a) - axis.domain.place(b))
            if isinstance(axis.domain, Numbers)
            else float(a != b)
            for axis, a, b in zip(self.axes, one, other, strict=True)
        )

    def words(self, point: Point, before: Point) -> str:
        """Describe changes of a point; numbers have three digits unless they would look alike."""
        told: list[str] = []
        for axis, was, now in zip(self.axes, before, point, strict=True):
            if was != now:
                short = [f"{one:.3g}" if isinstance(one, float) else str(one) for one in (was, now)]
                change = " → ".join(short) if short[0] != short[1] else f"{was} → {now}"
                told.append(f"{axis.path} {change}")
        return ", ".join(told)


def _members(domain: Numbers | Choices) -> list[Value]:
    if isinstance(domain, Choices):
        return list(domain.values)
    assert domain.size is not None
    step = domain.step or 1
    return [domain.tidy(domain.low + n * step) for n in range(domain.size)]
