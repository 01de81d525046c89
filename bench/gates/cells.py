"""Runs every arm in every world, in two processes; the same figures whichever finishes first."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pool

from bench.gates.arms import BY_NAME as ARM
from bench.gates.arms import JUDGED
from bench.gates.drive import Drive, Run
from bench.gates.ground import Ground
from bench.gates.measure import Cell, summed_up
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
    seed: int
    shifted: bool = False
    budget: int = 6_000
    quick: bool = False

    def runs_of(self, arm: str) -> int:
        """Of a cell; a quick look has half as many for arms that no target is about."""
        most = ARM[arm].most_runs or self.runs
        runs = self.runs // 2 if self.quick and not arm.startswith(JUDGED) else self.runs
        return min(runs, most)


@dataclass(frozen=True, slots=True)
class Part:
    """Some runs of a cell."""

    world: str
    arm: str
    first: int
    wanted: Wanted

    def numbers(self) -> range:
        return range(self.first, min(self.first + CHUNK, self.wanted.runs_of(self.arm)))


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


def run_part(part: Part) -> tuple[Part, list[Run], float]:
    began = time.process_time()
    done = [run_one(part.world, part.arm, number, part.wanted) for number in part.numbers()]
    return part, done, time.process_time() - began


def parts(wanted: Wanted) -> Iterator[Part]:
    for arm in wanted.arms:
        for world in wanted.worlds:
            for first in range(0, wanted.runs_of(arm), CHUNK):
                yield Part(world, arm, first, wanted)


def run_all(wanted: Wanted) -> Found:
    """Every cell that is wanted."""
    todo = list(parts(wanted))
    runs: dict[tuple[str, str], dict[int, list[Run]]] = {}
    seconds = dict.fromkeys(wanted.arms, 0.0)
    with Pool(PROCESSES) as pool:
        for at, (part, done, took) in enumerate(pool.imap_unordered(run_part, todo)):
            runs.setdefault((part.world, part.arm), {})[part.first] = done
            seconds[part.arm] += took
            if at * 10 // len(todo) != (at + 1) * 10 // len(todo):
                say(f"{(at + 1) / len(todo):.0%}")
    cells = {
        key: summed_up(*key, [run for _, done in sorted(chunks.items()) for run in done])
        for key, chunks in runs.items()
    }
    return Found(cells, seconds)
