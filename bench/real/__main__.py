"""What the gates make of a real language model, replayed from its bank.

Run it as `.venv/bin/python -m bench.real [--runs N] [--out FOLDER]`; `bench.real.record` makes the
bank, `bench.real.live` the runs on the model itself that the page ends with.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from bench.real import live
from bench.real.bank import Bank, read
from bench.real.bound import leaders
from bench.real.demo import demo_world, replay_demo
from bench.real.replay import GATES, Replayed, World, null_world, real_world, replay
from bench.real.tables import (
    JUDGED,
    LABELS,
    bank_table,
    best_table,
    bound_table,
    demo_table,
    goals,
    live_table,
    null_table,
    raw,
    real_table,
    why_table,
)
from bench.report import RESULTS, Report, goals_table, show

RUNS, FEWER = 500, 200
"""Of the null, for which errors are rare, and of every other kind."""
BUDGET, SMALL_BUDGET = 6000, 2500
"""Rollouts of a run, as in `bench.gates`, and fewer; a race with few proposals uses less."""
BOUND = 2000
"""Splits of the cases, of which nothing is run."""
PROCESSES = 2
CHUNK = 10
"""Runs that a process does at a time."""


def main() -> None:
    given = parser().parse_args()
    counts = (given.runs, given.runs) if given.runs else (RUNS, FEWER)
    show(report(read(), *counts), given.out or (None if given.runs else RESULTS))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="bench.real", description="Gates on a real model.")
    found.add_argument("--runs", type=int, help=f"of each kind (default: {RUNS} and {FEWER})")
    found.add_argument("--out", type=Path, help="folder for the results")
    return found


def report(bank: Bank, null_runs: int, runs: int) -> Report:
    world = real_world(bank, worst(bank))
    with Pool(PROCESSES) as pool:

        def all_of(one: Callable[[str, int], Replayed], count: int) -> dict[str, list[Replayed]]:
            return {gate: pool.map(partial(one, gate), range(count), CHUNK) for gate in GATES}

        nulls = all_of(partial(null_run, bank), null_runs)
        reals = all_of(partial(real_run, world, BUDGET), runs)
        small = all_of(partial(real_run, world, SMALL_BUDGET), runs)
        shown = demo_world(bank)
        demos = pool.map(partial(replay_demo, shown), range(runs), CHUNK)
    reached = goals(world, nulls, reals)
    tables = [
        goals_table(reached),
        bank_table(bank),
        null_table(nulls),
        real_table(world, reals, BUDGET),
        real_table(world, small, SMALL_BUDGET),
        best_table(world, reals),
        why_table(world, reals[JUDGED]),
        demo_table(shown, demos),
        bound_table(bank, leaders(bank, BOUND)),
    ]
    lived = live.recorded()
    return Report(
        "real",
        "The gates on a real model",
        [*tables, *([live_table(lived)] if lived else [])],
        {
            "goals": [goal.row() for goal in reached],
            "runs": {"null": null_runs, "others": runs},
            "means": {name: bank.mean(name) for name in bank.prompts},
            "null": {name: raw(rows) for name, rows in nulls.items()},
            "real": {name: raw(rows) for name, rows in reals.items()},
            "real, small budget": {name: raw(rows) for name, rows in small.items()},
            "demo": raw([replace(row, best=shown.prompt_of[row.best]) for row in demos]),
            "live": lived,
        },
    )


def null_run(bank: Bank, gate: str, number: int) -> Replayed:
    """Each prompt of the bank in turn, under several names."""
    prompt = bank.prompts[number % len(bank.prompts)]
    return replay(null_world(bank, prompt, LABELS), GATES[gate], number, BUDGET)


def real_run(world: World, budget: int, gate: str, number: int) -> Replayed:
    return replay(world, GATES[gate], number, budget)


def worst(bank: Bank) -> str:
    """The bad seed."""
    return min(bank.prompts, key=bank.mean)


if __name__ == "__main__":
    main()
