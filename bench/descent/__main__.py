"""Every arm with every seed, and the page of how often prompt and number were both found."""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import fmean, median

from bench.descent.runs import ARMS, Arm, Ran, run_one
from bench.descent.world import (
    AFTER,
    BEFORE,
    CASES,
    CYCLES,
    GOAL,
    GOOD,
    PROMPT,
    SEEDS,
    START,
    TOLERANCE,
    TRIALS,
    true_loss,
)
from bench.harness import say
from bench.report import RESULTS, Goal, Report, Table, goals_table, show

PROCESSES = 4
QUICK_SEEDS = 1

Found = Mapping[str, Sequence[Ran]]


def run_all(arms: Sequence[Arm], seeds: int) -> Found:
    """By the names of the arms, the runs in the order of their seeds."""
    todo = list(product(arms, range(seeds)))
    found: dict[str, list[Ran]] = {arm.name: [] for arm in arms}
    with ProcessPoolExecutor(PROCESSES) as pool:
        for (arm, seed), ran in zip(todo, pool.map(run_one, *zip(*todo, strict=True)), strict=True):
            say(f"{arm.name}, seed {seed}: {'found' if ran.found else 'not found'}")
            found[arm.name].append(ran)
    return found


def goals(arms: Sequence[Arm], found: Found, seeds: int) -> list[Goal]:
    return [
        Goal(
            f"{arm.name}: both are found in ≥ {GOAL} of {SEEDS} runs",
            f"{reached} of {seeds}",
            reached >= GOAL if seeds == SEEDS else None,
        )
        for arm in arms
        if not arm.long_lived
        for reached in (sum(ran.found for ran in found[arm.name]),)
    ]


def found_table(found: Found) -> Table:
    best = true_loss(f"{PROMPT}\n{GOOD[0]}", AFTER.best)
    rows = [
        (
            name,
            *(f"{sum(which)} of {len(ran)}" for which in _counted(ran)),
            f"{fmean(one.loss for one in ran):.3f}",
            f"{fmean(one.trials for one in ran):.0f}",
            f"{fmean(one.cycles for one in ran):.1f}",
            f"{median(one.rollouts for one in ran):,.0f}",
        )
        for name, ran in found.items()
    ]
    phases = ", ".join(
        f"`{name}` {most} trials with a patience of {patience}"
        for name, (most, patience) in TRIALS.items()
    )
    head = ("arm", "both found", "prompt", "number", "true loss", "trials", "cycles", "rollouts")
    note = (
        f"The number begins at {START:g}; its best is {BEFORE.best:g} with the prompt that the "
        f"agent has, and {AFTER.best:g} with the improved one. Found is within {TOLERANCE:g} of "
        "that, with the improved prompt and nothing harmful in it. The true loss is "
        f"{true_loss(PROMPT, START):.3f} at the start and {best:.3f} at the joint optimum. "
        f"{CASES} cases, {CYCLES} cycles at most, {phases}. Means over the runs; rollouts by the "
        "median. What is looked at is what a run gives to its user. A long-lived study is one "
        "numeric search over all phases, told of losses beside the old prompt as of those beside "
        "the new; the arms differ in nothing else."
    )
    return Table("Found", head, rows, note)


def _counted(ran: Sequence[Ran]) -> tuple[list[bool], list[bool], list[bool]]:
    return (
        [one.found for one in ran],
        [one.improved for one in ran],
        [one.near for one in ran],
    )


def missed_table(found: Found) -> Table:
    rows = [
        (
            name,
            f"{one.seed}",
            "improved" if one.improved else "not improved",
            f"{one.temperature:.3f}",
            f"{one.loss:.3f}",
            one.why,
        )
        for name, ran in found.items()
        for one in ran
        if not one.found
    ]
    head = ("arm", "seed", "prompt", "number", "true loss", "ended because")
    return Table("Runs that did not find both", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.descent", description="Numbers and words.")
    parser.add_argument("--quick", action="store_true", help="one seed: does it run?")
    parser.add_argument("--seeds", type=int, help=f"runs of each arm (default: {SEEDS})")
    parser.add_argument("--arms", help="by name, separated by semicolons")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args()
    named = given.arms.split(";") if given.arms else [arm.name for arm in ARMS]
    arms = [arm for arm in ARMS if arm.name in named]
    seeds = given.seeds or (QUICK_SEEDS if given.quick else SEEDS)
    found = run_all(arms, seeds)
    reached = goals(arms, found, seeds)
    report = Report(
        "descent",
        "Numbers and words together",
        [goals_table(reached), found_table(found), missed_table(found)],
        {
            "goals": [goal.row() for goal in reached],
            "runs": {name: [one._asdict() for one in ran] for name, ran in found.items()},
        },
    )
    part = given.quick or given.seeds or given.arms
    show(report, given.out or (None if part else RESULTS))


if __name__ == "__main__":
    main()
