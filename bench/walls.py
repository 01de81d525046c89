"""What the walls round a command cost: `true`, with and without them, turn by turn.

Run it as `.venv/bin/python -m bench.walls [--repeats N] [--out FOLDER]`. Everything that a rollout
does for a command is in it, from its scratch folder to the removal of that.
"""

import argparse
import asyncio
import resource
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.harness import scratch, spread
from bench.report import RESULTS, Goal, Report, Table, goals_table, show
from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Command, Exit, View
from kept.sandbox.workspace import Scratch

GOAL = 30.0
"""Milliseconds that walls may add to a command."""

GROWTH = 1.2
"""What a command may take in a large tree of what it takes in a small one."""

CANDIDATE = Candidate({"prompt.md": "be brief\n"})
SIZES = (50, 5_000)
"""Files of the tree that a command runs in."""


class Took(NamedTuple):
    """Milliseconds that one command took, ours and its own."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run it."""

    name: str
    run: Callable[[], Awaitable[object]]
    over: str = ""
    """The way that it adds to."""


def ways(folder: Path, made: Scratch) -> list[Way]:
    async def bare() -> object:
        return subprocess.run(["/bin/sh", "-c", "true"], check=True)

    found = [Way("a shell, nothing else", bare)]
    for size in SIZES:
        tree = make_tree(folder / str(size), size)
        plain = f"without walls, {size:,} files"
        found.append(Way(plain, held(made, View(tree, walls=False)), "a shell, nothing else"))
        if abilities().walls:
            found.append(Way(f"with walls, {size:,} files", held(made, View(tree)), plain))
    return found


def make_tree(folder: Path, size: int) -> Path:
    for number in range(size):
        path = folder / f"part{number % 50}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"number = {number}\n")
    (folder / "prompt.md").write_text("be brief\n")
    return folder


def held(made: Scratch, view: View) -> Callable[[], Awaitable[object]]:
    async def run() -> object:
        with made.workspace(CANDIDATE, IMPLICIT_CASE) as workspace:
            ended = await workspace.run(Command("true", view.tree, view=view))
        if not isinstance(ended, Exit) or not ended.ok:
            raise SystemExit(f"`true` failed: {ended}")
        return ended

    return run


async def measure(given: list[Way], repeats: int) -> dict[str, list[Took]]:
    """In rounds, every way once a round; a first round makes copies and is not counted."""
    took: dict[str, list[Took]] = {way.name: [] for way in given}
    for number in range(repeats + 1):
        for way in given:
            began, spent = time.perf_counter(), used()
            await way.run()
            one = Took((time.perf_counter() - began) * 1000, (used() - spent) * 1000)
            if number:
                took[way.name].append(one)
    return took


def used() -> float:
    """Seconds of processor time, of us and of whoever we waited for."""
    parts = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


def added(took: dict[str, list[Took]], way: Way) -> list[float]:
    """Milliseconds that a way took beyond the one that it adds to, round by round."""
    pairs = zip(took[way.name], took[way.over], strict=True)
    return [one.wall - other.wall for one, other in pairs]


def goals_of(took: dict[str, list[Took]], given: list[Way]) -> list[Goal]:
    """What walls add, and that they add no more in a large tree."""
    walled = [way for way in given if way.name.startswith("with walls")]
    if not walled:
        return [Goal(f"walls add < {GOAL:g} ms to a command", "", None)]
    small = walled[0]
    # the median is what one waits for; the least is what it takes where nobody else works
    least = [min(one.wall for one in took[name]) for name in (small.name, small.over)]
    goals = [
        Goal(f"walls add < {GOAL:g} ms to a command, by the {how}", f"{more:.1f} ms", more < GOAL)
        for how, more in (("median", median(added(took, small))), ("least", least[0] - least[1]))
    ]
    few, many = (median(one.cpu for one in took[way.name]) for way in walled)
    what = f"between walls, {SIZES[1]:,} files take no more CPU than {SIZES[0]} (≤ {GROWTH:g} ×)"
    told = f"{many / few:.2f} × ({many:.1f} ms and {few:.1f} ms)"
    return [*goals, Goal(what, told, many <= GROWTH * few)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.walls", description="What walls cost.")
    parser.add_argument("--repeats", type=int, default=50, help="rounds (default: 50)")
    parser.add_argument("--out", type=Path, help="where the results go (default: bench/results)")
    options = parser.parse_args()
    made = Scratch()
    with scratch() as folder:
        given = ways(folder.resolve(), made)
        took = asyncio.run(measure(given, options.repeats))
    made.close()
    head = ("a command `true`", "wall ms", "CPU ms", "wall ms added")
    rows = [
        (
            way.name,
            spread((one.wall for one in took[way.name]), 1),
            spread((one.cpu for one in took[way.name]), 1),
            spread(added(took, way), 1) if way.over else "",
        )
        for way in given
    ]
    note = (
        f"Median (least–greatest) of {options.repeats} rounds. Added: over the shell alone, or by "
        "walls over the same command without, in the same round. Without walls the command runs in "
        "a copy of the tree, which is looked through after it; between them, over the tree itself."
    )
    goals = goals_of(took, given)
    tables = [goals_table(goals), Table("Commands", head, rows, note)]
    raw = {"goals": [goal.row() for goal in goals], "took": took}
    walls = "overlay" if abilities().overlay else "copy" if abilities().walls else "none"
    report = Report("walls", "Walls round a command", tables, raw)
    show(report, options.out or RESULTS, walls=f"{walls}, filter {abilities().calls}")


if __name__ == "__main__":
    main()
