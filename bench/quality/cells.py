"""The runs of an arm on a task at a budget, and tables of them."""

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import fmean, stdev

from bench.harness import ROOT, ArmFailed, say
from bench.peer import gepa_python
from bench.quality.order import Order, Ran
from bench.quality.tasks import BY_NAME
from bench.report import Table

PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to spend rollouts."""

    name: str
    module: str
    how: str
    peer: bool = False
    """Whether it is what users pick today."""

    @property
    def foreign(self) -> bool:
        """Whether it runs in the environment of gepa."""
        return "gepa" in self.module


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


def run_all(
    arms: Sequence[Arm], tasks: Sequence[str], budgets: Sequence[int], runs: int
) -> list[Cell]:
    """In the order of the arms; without those of gepa where it cannot be had."""
    gepa = gepa_python()
    arms = [arm for arm in arms if gepa or not arm.foreign]

    def run(one: tuple[Arm, str, int]) -> Cell:
        python = gepa if gepa and one[0].foreign else sys.executable
        return run_cell(*one, runs, python)

    # the longest first, so that at the end no process waits for another
    longest = sorted(budgets, reverse=True)
    todo = [(arm, task, budget) for budget in longest for arm in arms for task in tasks]
    with ThreadPoolExecutor(PROCESSES) as pool:
        return list(pool.map(run, todo))


def tables(cells: Sequence[Cell], tasks: Sequence[str], budgets: Sequence[int]) -> list[Table]:
    found = {(cell.arm, cell.task, cell.budget): cell for cell in cells}
    names = list(dict.fromkeys(cell.arm for cell in cells))
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
