"""What the gates make of a real language model, replayed from its bank.

Run it as `.venv/bin/python -m bench.real [--runs N] [--out FOLDER]`; `bench.real.record` makes the
bank.
"""

import argparse
from pathlib import Path

from bench.gates.measure import Rate
from bench.real.bank import DRAWS, Bank, read
from bench.real.replay import GATES, SEED_LABEL, Replayed, World, null_world, real_world, replay
from bench.report import RESULTS, Goal, Report, Table, goals_table, show

RUNS = 500
BUDGET = 2500
"""Rollouts of a run; what all proposals come to is less."""
LABELS = 8
NEAR = 0.03
"""A prompt that is worse than the best by less is as good."""
FALSE, FOUND = 0.05, 0.95
"""Most runs with a false keep, and fewest that end with the best."""
JUDGED = "race"


def main() -> None:
    given = parser().parse_args()
    runs: int = given.runs or RUNS
    show(report(read(), runs), given.out or (None if given.runs else RESULTS))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="bench.real", description="Gates on a real model.")
    found.add_argument("--runs", type=int, help=f"of each kind (default: {RUNS})")
    found.add_argument("--out", type=Path, help="folder for the results")
    return found


def report(bank: Bank, runs: int) -> Report:
    nulls = {name: null_runs(bank, name, runs) for name in GATES}
    world = real_world(bank, worst(bank))
    reals = {name: [replay(world, GATES[name], n, BUDGET) for n in range(runs)] for name in GATES}
    goals = targets(world, nulls[JUDGED], reals[JUDGED])
    return Report(
        "real",
        "The gates on a real model",
        [goals_table(goals), bank_table(bank), null_table(nulls), real_table(world, reals)],
        {
            "goals": [goal.row() for goal in goals],
            "runs": runs,
            "means": {name: bank.mean(name) for name in bank.prompts},
            "null": {name: [one.keeps for one in rows] for name, rows in nulls.items()},
            "real": {name: [one.best for one in rows] for name, rows in reals.items()},
        },
    )


def null_runs(bank: Bank, gate: str, runs: int) -> list[Replayed]:
    """Each prompt of the bank in turn, under several names."""
    worlds = [null_world(bank, prompt, LABELS) for prompt in bank.prompts]
    return [replay(worlds[n % len(worlds)], GATES[gate], n, BUDGET) for n in range(runs)]


def worst(bank: Bank) -> str:
    """The bad seed."""
    return min(bank.prompts, key=bank.mean)


def false_keeps(rows: list[Replayed]) -> Rate:
    return Rate(sum(row.keeps > 0 for row in rows), len(rows))


def found_best(world: World, rows: list[Replayed]) -> Rate:
    top = max(map(world.truth, world.prompt_of))
    return Rate(sum(world.truth(row.best) >= top - NEAR for row in rows), len(rows))


def targets(world: World, null: list[Replayed], real: list[Replayed]) -> list[Goal]:
    wrong, right = false_keeps(null), found_best(world, real)
    return [
        Goal(
            f"null, {JUDGED}: a false keep in {FALSE:.0%} of runs at most",
            str(wrong),
            wrong.hits <= FALSE * wrong.of,
        ),
        Goal(
            f"bad seed, {JUDGED}: the best prompt, or one within {NEAR}, in {FOUND:.0%} or more",
            str(right),
            right.hits >= FOUND * right.of,
        ),
    ]


def bank_table(bank: Bank) -> Table:
    rows = sorted(((bank.mean(name), name) for name in bank.prompts), reverse=True)
    return Table(
        "The bank",
        ("prompt", "share right"),
        [(name, f"{mean:.3f}") for mean, name in rows],
        f"{len(bank.prompts)} prompts × {len(bank.cases)} cases × {DRAWS} draws of local/smollm2.",
    )


def null_table(nulls: dict[str, list[Replayed]]) -> Table:
    return Table(
        f"Null: one prompt under {LABELS} other names",
        ("gate", "runs with a false keep", "best is another than the seed", "rollouts a run"),
        [
            (
                name,
                str(false_keeps(rows)),
                str(Rate(sum(row.best != SEED_LABEL for row in rows), len(rows))),
                f"{mean_rollouts(rows):.0f}",
            )
            for name, rows in nulls.items()
        ],
    )


def real_table(world: World, reals: dict[str, list[Replayed]]) -> Table:
    base = world.truth(SEED_LABEL)
    return Table(
        f"From the worst prompt, `{world.prompt_of[SEED_LABEL]}`",
        ("gate", "ends with the best", "true gain", "rollouts a run"),
        [
            (
                name,
                str(found_best(world, rows)),
                f"{sum(world.truth(row.best) - base for row in rows) / len(rows):+.3f}",
                f"{mean_rollouts(rows):.0f}",
            )
            for name, rows in reals.items()
        ],
        f"Or with one within {NEAR} of it. Each prompt is proposed once, in any order.",
    )


def mean_rollouts(rows: list[Replayed]) -> float:
    return sum(row.rollouts for row in rows) / len(rows)


if __name__ == "__main__":
    main()
