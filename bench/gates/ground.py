"""One run's part of a world: its cases, its proposals, and the truth about every candidate.

All of it follows from (seed, world, run) and not from what a gate does, so that every arm meets the
same cases, the same proposals and, for the same candidate, the same rollouts.
"""

import zlib
from dataclasses import dataclass, field
from math import log, pi, sin, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.gates.chance import Counters, Floats, Places, mixed, uniforms
from bench.gates.worlds import World
from kept.core.rollout import Purpose

FRESH = 800
"""Cases that nobody has seen, on which the truth about a candidate is the mean of its odds."""
BLOCK = 64
"""Proposals made at a time."""
PERIOD = 3_000
"""Rollouts from one high of a drifting level to the next."""
PURPOSES: tuple[Purpose, ...] = (
    "feedback",
    "probe",
    "screen",
    "decide",
    "promote",
    "test",
    "measure",
)
# Counters of the draws that a pair may need, far apart.
TRY, FAULT, TOSS = 1 << 32, 1 << 40, 1 << 41
SCORED, FAILED, MISSING = 1, 2, 3


class Split(NamedTuple):
    """How many of a run's cases an arm uses for what, in the order of the cases."""

    train: int
    holdout: int
    test: int = 0

    def of(self, cases: int) -> "Split":
        """The same shares of another number of cases; a part that there is has at least two."""
        share = cases / sum(self)
        train, test = (max(2, round(part * share)) if part else 0 for part in (self[0], self[2]))
        return Split(train, cases - train - test, test)


@dataclass(slots=True)
class Candidate:
    """The seed with some edits."""

    id: str
    key: int
    edits: tuple[int, ...]
    logits: Floats
    odds: Floats
    """Of passing, by case."""
    truth: float | None = None


class Edits(NamedTuple):
    """A block of proposals."""

    sizes: Floats
    """Effect on average; 0 for an edit that has none."""
    effects: Floats
    """By edit and case, in logits."""
    cites: Counters
    """The train case that each means to fix."""


class Outcomes(NamedTuple):
    """How some pairs ended."""

    losses: Floats
    states: "NDArray[np.int8] | int"
    """Of each, or of them all."""


@dataclass(slots=True)
class Ground:
    """What a run stands on."""

    world: World
    split: Split
    seed: int
    run: int
    budget: int = 6_000
    names: tuple[str, ...] = ()
    first: Candidate = field(init=False)
    _fresh: Floats = field(init=False)
    _known: dict[tuple[int, ...], Floats] = field(init=False, repr=False)
    _blocks: dict[int, Edits] = field(init=False, repr=False, default_factory=dict[int, Edits])
    _name: int = field(init=False)

    def __post_init__(self) -> None:
        self._name = zlib.crc32(self.world.name.encode())
        self.split = self.split.of(self.world.cases)
        self.names = tuple(f"c{number:03d}" for number in range(self.world.cases))
        logits = self._difficulty(0, self.world.cases)
        key = mixed(self.seed, self._name, self.run)
        self.first = Candidate("seed", key, (), logits, self._odds(logits))
        self._fresh = self._difficulty(1, FRESH)
        self._known = {(): self._fresh}

    def _chance(self, *path: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self._name, self.run, *path])

    def _difficulty(self, part: int, count: int) -> Floats:
        rate, spread = self.world.pass_rate, self.world.spread
        # where the mean of the odds comes out at the rate, nearly: the probit's approximation
        centre = log(rate / (1 - rate)) * sqrt(1 + pi / 8 * spread**2)
        return self._chance(part).normal(centre, spread, count)

    def _odds(self, logits: Floats) -> Floats:
        if self.world.scores == "fixed":
            return (logits > 0).astype(np.float64)
        return 1.0 / (1.0 + np.exp(-logits))

    def challenger(self, incumbent: Candidate, number: int) -> Candidate:
        """A candidate with one more edit."""
        block, at = divmod(number, BLOCK)
        logits = incumbent.logits + self._block(block).effects[at]
        edits = (*incumbent.edits, number)
        key = mixed(incumbent.key, number)
        return Candidate(f"{key:016x}", key, edits, logits, self._odds(logits))

    def merged(self, incumbent: Candidate, numbers: tuple[int, ...]) -> Candidate:
        """A candidate with several more edits."""
        for number in numbers:
            incumbent = self.challenger(incumbent, number)
        return incumbent

    def cites(self, number: int) -> tuple[str, ...]:
        """The train cases that a proposal means to fix."""
        block, at = divmod(number, BLOCK)
        return (self.names[int(self._block(block).cites[at])],) if self.split.train else ()

    def truth(self, candidate: Candidate) -> float:
        """What a candidate scores on cases that nobody has seen, in the mean."""
        if candidate.truth is None:
            odds = self._odds(self._fresh_logits(candidate.edits))
            candidate.truth = float(odds.mean()) * (1 - self.world.failing)
        return candidate.truth

    def shown(self, candidate: Candidate, at: int) -> float:
        """The same as the evaluator would show it after so many rollouts: drifted, and flaky."""
        world = self.world
        odds = self._odds(self._fresh_logits(candidate.edits) + self._level(at))
        share = self._flaky(at)
        return float(odds.mean()) * (1 - world.failing) * (1 - share) + share / 2

    def _level(self, at: int) -> float:
        """How far the level of all scores has drifted, in logits."""
        if not self.world.drift:
            return 0.0
        phase = uniforms(self.first.key, np.zeros(1, np.uint64))[0]
        return self.world.drift * sin(2 * pi * (at / PERIOD + phase))

    def _flaky(self, at: int) -> float:
        """Share of rollouts that are a coin's toss by now."""
        return self.world.flaky * at / self.budget

    def _fresh_logits(self, edits: tuple[int, ...]) -> Floats:
        found = self._known.get(edits)
        if found is None:
            found = self._fresh_logits(edits[:-1]) + self._fresh_effect(edits[-1])
            self._known[edits] = found
        return found

    def _fresh_effect(self, number: int) -> Floats:
        block, at = divmod(number, BLOCK)
        size = self._block(block).sizes[at : at + 1]
        return self._effects(size, self._chance(3, number), FRESH)[0]

    def _block(self, block: int) -> Edits:
        found = self._blocks.get(block)
        if found is None:
            found = self._blocks[block] = self._propose(self._chance(2, block))
        return found

    def _propose(self, chance: np.random.Generator) -> Edits:
        """The next proposals: how good they are on average, then what they do to every case."""
        world, train = self.world, self.split.train
        kinds, scale = chance.random(BLOCK), chance.uniform(0.5, 1.5, BLOCK)
        cites = (chance.random(BLOCK) * max(train, 1)).astype(np.uint64)
        better, worse = kinds < world.better, kinds >= 1 - world.worse
        sizes = scale * (better * world.gain - worse * world.harm)
        effects = self._effects(sizes, chance, world.cases)
        if world.reach < 1 and train:
            # a proposer saw the case that it fixes
            at = np.flatnonzero(better)
            effects[at, cites[at]] = sizes[at]
        effects[:, :train] += scale[:, None] * world.fitted
        return Edits(sizes, effects, cites)

    def _effects(self, sizes: Floats, chance: np.random.Generator, cases: int) -> Floats:
        """By edit and case, on cases that the proposer did not see."""
        world = self.world
        sd = np.where(sizes == 0, world.churn, world.jitter)
        effects = sizes[:, None] + sd[:, None] * chance.standard_normal((len(sizes), cases))
        if world.reach < 1:
            missed = chance.random((len(sizes), cases)) >= world.reach
            effects[missed & (sizes > 0)[:, None]] = 0.0
        return effects

    def draw(
        self, candidate: Candidate, purpose: Purpose, flat: Counters, tries: int, at: int
    ) -> Outcomes:
        """Roll out pairs: n is case n % cases, repeat n // cases; `at` rollouts came before."""
        world = self.world
        key = mixed(candidate.key, 1_000_000 + PURPOSES.index(purpose))
        counters = flat + np.uint64(tries * TRY)
        at_cases = (flat % np.uint64(world.cases)).astype(np.intp)
        values = self._values(candidate, at_cases, uniforms(key, counters), at)
        if world.flaky:
            toss = uniforms(key, counters + np.uint64(TOSS))
            share = self._flaky(at)
            # of the tosses below the share, the lower half pass
            values = np.where(toss < share, toss < share / 2, values)
        if not (world.missing or world.failing):
            return Outcomes(-values, SCORED)
        fault = uniforms(key, counters + np.uint64(FAULT))
        states = np.full(len(flat), SCORED, np.int8)
        states[fault < world.missing + (1 - world.missing) * world.failing] = FAILED
        states[fault < world.missing] = MISSING
        return Outcomes(np.where(states == SCORED, -values, 0.0), states)

    def _values(self, candidate: Candidate, cases: Places, draws: Floats, at: int) -> Floats:
        world = self.world
        odds = candidate.odds
        if world.drift:
            odds = self._odds(candidate.logits + self._level(at))
        odds = odds[cases]
        if world.scores == "fixed":
            return odds
        if world.scores == "graded":
            # uniform round its mean, as wide as 0 … 1 lets it be
            return odds + (2 * draws - 1) * np.minimum(odds, 1 - odds)
        return (draws < odds).astype(np.float64)
