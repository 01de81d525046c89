"""Every gate in every world.

Run it as `.venv/bin/python -m bench.gates [--quick | --full | --runs N] [--shifted]`. It writes its
results to `bench/results`; with `--quick`, or for a part of it, only where it is told to.
"""

import argparse
from collections.abc import Callable, Container
from pathlib import Path

import numpy as np

from bench.gates.arms import ARMS
from bench.gates.arms import BY_NAME as ARM
from bench.gates.cells import Wanted, parts, run_all
from bench.gates.shelf import Shelf
from bench.gates.tables import tables
from bench.gates.targets import look_time, targets
from bench.gates.worlds import BY_NAME as WORLD
from bench.gates.worlds import WORLDS
from bench.report import RESULTS, Report, goals_table, show

SEED, SHIFTED_SEED = 20_261_115, 6_180_339
RUNS, FULL_RUNS = 200, 500
QUICK_RUNS, QUICK_OTHERS = 30, 15
JUDGED = "race"


def main() -> None:
    given = parser().parse_args()
    runs: int = given.runs or (QUICK_RUNS if given.quick else FULL_RUNS if given.full else RUNS)
    wanted = Wanted(
        worlds=given.worlds or tuple(world.name for world in WORLDS),
        arms=given.arms or tuple(arm.name for arm in ARMS),
        runs=runs,
        seed=given.seed or (SHIFTED_SEED if given.shifted else SEED),
        shifted=given.shifted,
        others=given.others or (QUICK_OTHERS if given.quick else None),
    )
    part = given.quick or given.runs or given.worlds or given.arms or given.seed
    shelf = Shelf()
    show(report(wanted, shelf), given.out or (None if part else RESULTS), numpy=np.__version__)
    shelf.clear(part.name for part in parts(wanted))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="bench.gates", description="What each gate keeps.")
    size = found.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs a cell")
    size.add_argument("--full", action="store_true", help=f"{FULL_RUNS} runs a cell")
    size.add_argument("--runs", type=int, help=f"runs a cell (default: {RUNS})")
    found.add_argument("--others", type=int, help="runs a cell of arms that no target is about")
    found.add_argument("--worlds", type=some_of(WORLD), help="by name, separated by commas")
    found.add_argument("--arms", type=some_of(ARM), help="by name, separated by commas")
    found.add_argument("--seed", type=int, help="of all that is left to chance")
    found.add_argument("--shifted", action="store_true", help="the worlds kept back for judging")
    found.add_argument("--out", type=Path, help="folder for the results")
    return found


def some_of(known: Container[str]) -> Callable[[str], tuple[str, ...]]:
    """Names separated by commas, each of which there must be."""

    def names(text: str) -> tuple[str, ...]:
        found = tuple(name.strip() for name in text.split(","))
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no `{name}`")
        return found

    return names


def report(wanted: Wanted, shelf: Shelf) -> Report:
    found = run_all(wanted, shelf)
    goals = []
    if JUDGED in wanted.arms:
        goals = targets(found.cells, JUDGED, look_time(JUDGED, wanted.seed))
    named = "gates-shifted" if wanted.shifted else "gates"
    return Report(
        named,
        "The gates" + (" in shifted worlds" if wanted.shifted else ""),
        [*([goals_table(goals)] if goals else []), *tables(found, wanted)],
        {
            "goals": [goal.row() for goal in goals],
            "runs": wanted.runs,
            "seed": wanted.seed,
            "budget": wanted.budget,
            "cells": [cell.as_json() for cell in found.cells.values()],
        },
    )


if __name__ == "__main__":
    main()
