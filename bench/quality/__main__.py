"""Every arm on every task at every budget.

Run it as `.venv/bin/python -m bench.quality [--quick] [--runs N] [--tasks a,b] [--out FOLDER]`. It
writes its results to `bench/results`; a part of it only where it is told to.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from bench.harness import ROOT, ArmFailed, say
from bench.peer import gepa_python
from bench.quality.order import Order, Ran
from bench.quality.tasks import BY_NAME, TASKS
from bench.report import RESULTS, Goal, Report, Table, goals_table, show

BUDGETS = (250, 500, 1_000, 2_000, 5_000)
RUNS, QUICK_RUNS = 40, 4
PROCESSES = 2
TIMES, NOISY = 1.5, ("noisy", "concentrated", "rivals")
SLACK = 0.01


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to spend rollouts."""

    name: str
    module: str
    how: str
    peer: bool = False
    """Whether it is what users pick today."""


ARMS = (
    Arm("kept", "kept", "race"),
    Arm("kept, gate strict", "kept", "strict"),
    Arm("gepa", "gepa", "", peer=True),
    Arm("gepa, minibatch 8", "gepa", "8", peer=True),
    Arm("best of N", "plain", "best", peer=True),
    Arm("random", "plain", "random", peer=True),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """An arm on a task with a budget."""

    arm: str
    task: str
    budget: int
    runs: tuple[Ran, ...]

    @property
    def gain(self) -> float:
        return fmean(run.gain for run in self.runs)

    @property
    def gain_words(self) -> str:
        gains = [run.gain for run in self.runs]
        error = stdev(gains) / sqrt(len(gains)) if len(gains) > 1 else 0.0
        return f"{self.gain:+.3f} ± {error:.3f}"

    @property
    def figures(self) -> dict[str, object]:
        """What is kept of a cell: single runs can be made again from their numbers."""
        return {
            "arm": self.arm,
            "task": self.task,
            "budget": self.budget,
            "gain": self.gain_words,
            "changed": fmean(run.changed for run in self.runs),
            "claimed_minus_true": self.optimism,
            "worse": self.worse,
            "rollouts": fmean(run.rollouts for run in self.runs),
        }

    @property
    def optimism(self) -> float:
        """Claimed minus true, over the runs that claim anything."""
        return fmean([run.claimed - run.gain for run in self.runs if run.changed] or [0.0])

    @property
    def worse(self) -> float:
        """Share of the runs that end with less than they began with."""
        return fmean(run.gain < -1e-9 for run in self.runs)


def run_cell(arm: Arm, task: str, budget: int, runs: int, python: str) -> Cell:
    order = Order(task, budget, 0, runs, arm.how)
    command = [python, "-m", f"bench.quality.arms.{arm.module}", json.dumps(asdict(order))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArmFailed(f"`{arm.name}` ended with {done.returncode}\n{done.stderr}")
    say(f"{arm.name}, {task}, {budget:,} rollouts")
    rows = json.loads(done.stdout.splitlines()[-1])
    return Cell(arm.name, task, budget, tuple(Ran(**row) for row in rows))


def run_all(tasks: Sequence[str], budgets: Sequence[int], runs: int) -> list[Cell]:
    gepa = gepa_python()
    arms = [arm for arm in ARMS if gepa or arm.module != "gepa"]

    def run(one: tuple[Arm, str, int]) -> Cell:
        python = gepa if gepa and one[0].module == "gepa" else sys.executable
        return run_cell(*one, runs, python)

    # the longest first, so that at the end no process waits for another
    longest = sorted(budgets, reverse=True)
    todo = [(arm, task, budget) for budget in longest for arm in arms for task in tasks]
    with ThreadPoolExecutor(PROCESSES) as pool:
        return list(pool.map(run, todo))


def tables(cells: Sequence[Cell], tasks: Sequence[str], budgets: Sequence[int]) -> list[Table]:
    found = {(cell.arm, cell.task, cell.budget): cell for cell in cells}
    names = list(dict.fromkeys(cell.arm for cell in cells))
    names.sort(key=[arm.name for arm in ARMS].index)
    head = ("arm", *(f"{budget:,}" for budget in sorted(budgets)))
    made: list[Table] = []
    for task in tasks:
        rows = [
            (name, *(found[name, task, budget].gain_words for budget in sorted(budgets)))
            for name in names
        ]
        note = f"{BY_NAME[task].about}."
        made.append(Table(f"True gain, {task}", head, rows, note))
    most = max(budgets)
    rows = [
        (
            name,
            *(
                f"{found[name, task, most].optimism:+.3f}, {found[name, task, most].worse:.0%}"
                for task in tasks
            ),
        )
        for name in names
    ]
    title = f"Claimed minus true, and runs that end worse, at {most:,} rollouts"
    note = (
        "The first over the runs that claim a gain. Every rollout is counted, those of a proof and "
        "of a sealed test too. Truth is the mean of the odds on 400 cases that no arm met."
    )
    return [*made, Table(title, ("arm", *tasks), rows, note)]


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
    cells = run_all(tasks, budgets, runs)
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
