"""Every arm on every task at every budget.

Run it as `.venv/bin/python -m bench.quality [--quick] [--runs N] [--tasks a,b] [--out FOLDER]`. It
writes its results to `bench/results`; a part of it only where it is told to.
"""

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from bench.quality.cells import Arm, Cell, run_all, tables
from bench.quality.tasks import TASKS
from bench.report import RESULTS, Goal, Report, goals_table, show

BUDGETS = (250, 500, 1_000, 2_000, 5_000)
RUNS, QUICK_RUNS = 40, 4
TIMES, NOISY = 1.5, ("noisy", "concentrated", "rivals")
SLACK = 0.01


ARMS = (
    Arm("kept", "kept", "race"),
    Arm("kept, gate strict", "kept", "strict"),
    Arm("gepa", "gepa", "", peer=True),
    Arm("gepa, minibatch 8", "gepa", "8", peer=True),
    Arm("best of N", "plain", "best", peer=True),
    Arm("random", "plain", "random", peer=True),
)


def goals(cells: Sequence[Cell], tasks: Sequence[str], budgets: Sequence[int]) -> list[Goal]:
    """Against the best peer, task by task and budget by budget."""
    found = {(cell.arm, cell.task, cell.budget): cell for cell in cells}
    names = {cell.arm for cell in cells}
    peers = [arm.name for arm in ARMS if arm.peer and arm.name in names]
    made: list[Goal] = []
    for task, budget in product(tasks, sorted(budgets)):
        if task == "null":
            continue
        mine = found["kept", task, budget]
        best = max((found[name, task, budget] for name in peers), key=lambda cell: cell.gain)
        measured = f"{mine.gain_words} against {best.gain_words} ({best.arm})"
        if task in NOISY:
            what = f"{task}, {budget:,} rollouts: ≥ {TIMES:g} × the best peer's true gain"
            made.append(Goal(what, measured, mine.gain >= TIMES * best.gain))
        else:
            what = f"{task}, {budget:,} rollouts: no worse than the best peer"
            made.append(Goal(what, measured, mine.gain >= best.gain - SLACK))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.quality", description="Kept and its peers.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs, two budgets")
    parser.add_argument("--runs", type=int, help=f"runs a cell (default: {RUNS})")
    parser.add_argument("--tasks", help="by name, separated by commas")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args()
    tasks = given.tasks.split(",") if given.tasks else [task.name for task in TASKS]
    budgets = BUDGETS[:3:2] if given.quick else BUDGETS
    runs = given.runs or (QUICK_RUNS if given.quick else RUNS)
    cells = run_all(ARMS, tasks, budgets, runs)
    report = Report(
        "quality",
        "Kept and what users pick today",
        [goals_table(goals(cells, tasks, budgets)), *tables(cells, tasks, budgets)],
        {"runs": runs, "cells": [cell.figures for cell in cells]},
    )
    part = given.quick or given.runs or given.tasks
    show(report, given.out or (None if part else RESULTS))


if __name__ == "__main__":
    main()
