"""Runs every arm in every world, in two processes; the same figures whichever finishes first.

Stopped, it goes on where it was.
"""

import time
from dataclasses import dataclass
from multiprocessing import Pool

from bench.gates.arms import BY_NAME as ARM
from bench.gates.arms import JUDGED
from bench.gates.drive import Drive, Run
from bench.gates.ground import Ground
from bench.gates.measure import Cell, summed_up
from bench.gates.shelf import Done, Shelf
from bench.gates.worlds import BY_NAME as WORLD
from bench.gates.worlds import shifted
from bench.harness import say

CHUNK = 20
"""Runs that a process does at a time."""
PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be run."""

    worlds: tuple[str, ...]
    arms: tuple[str, ...]
    runs: int
    """A cell, of the arms that the targets compare."""
    seed: int
    shifted: bool = False
    budget: int = 6_000
    others: int | None = None
    """Runs a cell of arms that no target is about; None for as many."""

    def runs_of(self, arm: str) -> int:
        """Of a cell."""
        runs = self.runs if arm in JUDGED else self.others or self.runs
        return min(runs, ARM[arm].most_runs or runs)


@dataclass(frozen=True, slots=True)
class Part:
    """Some runs of a cell."""

    world: str
    arm: str
    first: int
    wanted: Wanted

    def numbers(self) -> range:
        return range(self.first, min(self.first + CHUNK, self.wanted.runs_of(self.arm)))

    @property
    def name(self) -> str:
        """On the shelf: what decides its runs, and no more."""
        world = f"{self.world}{'-shifted' if self.wanted.shifted else ''}"
        which = f"{self.wanted.seed}-{self.wanted.budget}-{self.first}-{len(self.numbers())}"
        return f"{world}-{self.arm}-{which}"


@dataclass(frozen=True, slots=True)
class Found:
    """What came out, and what it took."""

    cells: dict[tuple[str, str], Cell]
    """By world and arm."""
    seconds: dict[str, float]
    """Of processor time, by arm."""


def run_one(world_name: str, arm_name: str, number: int, wanted: Wanted) -> Run:
    world, arm = WORLD[world_name], ARM[arm_name]
    if wanted.shifted:
        world = shifted(world, wanted.seed, number)
    return Drive(arm, Ground(world, arm.split, wanted.seed, number, wanted.budget)).run()


def run_part(part: Part) -> tuple[Part, Done]:
    began = time.process_time()
    runs = [run_one(part.world, part.arm, number, part.wanted) for number in part.numbers()]
    return part, Done(runs, time.process_time() - began)


def parts(wanted: Wanted) -> list[Part]:
    """First what the targets are about; of the others, a few runs of each, then a few more."""
    found = [
        Part(world, arm, first, wanted)
        for arm in wanted.arms
        for world in wanted.worlds
        for first in range(0, wanted.runs_of(arm), CHUNK)
    ]
    return sorted(found, key=lambda part: (part.arm not in JUDGED) * (1 + part.first))


def run_all(wanted: Wanted, shelf: Shelf) -> Found:
    """Every cell that is wanted; what is on the shelf already is not done again."""
    whole = parts(wanted)
    done = {part: found for part in whole if (found := shelf.get(part.name))}
    todo = [part for part in whole if part not in done]
    if done:
        say(f"{len(done)} of {len(whole)} parts were done before")
    with Pool(PROCESSES) as pool:
        for part, found in pool.imap_unordered(run_part, todo):
            shelf.put(part.name, found)
            if len(done) * 20 // len(whole) != (len(done) + 1) * 20 // len(whole):
                say(f"{(len(done) + 1) / len(whole):.0%}")
            done[part] = found
    runs: dict[tuple[str, str], list[Run]] = {}
    seconds = dict.fromkeys(wanted.arms, 0.0)
    for part in sorted(whole, key=lambda part: part.first):
        runs.setdefault((part.world, part.arm), []).extend(done[part].runs)
        seconds[part.arm] += done[part].seconds
    return Found({key: summed_up(*key, mine) for key, mine in runs.items()}, seconds)
