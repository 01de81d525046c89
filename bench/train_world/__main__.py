"""Both gates with every seed, and the page of what training kept by them."""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from bench.harness import say
from bench.report import RESULTS, Report, Table, show
from bench.train_world.world import (
    BATCH,
    EDITS,
    EPOCHS,
    HOLDOUT,
    RULES,
    START,
    TRAIN,
    WORLDS,
    World,
    effect,
    make_plan,
    rules_in,
    true_score,
)
from kept.testing import MemoryJournal, sit

PROCESSES = 2
SAME = TRAIN * EPOCHS + HOLDOUT * (1 + EPOCHS * TRAIN // BATCH)
"""Rollouts that `selection` needs at most: every batch, and a pass a candidate."""
ARMS: Mapping[str, tuple[str, ...]] = {
    "race": ("race",),
    "race, no more rollouts": ("race", f"budget.max_rollouts={SAME}"),
    "selection": ("selection",),
}
SEEDS, QUICK_SEEDS = 20, 2
KINDS = 6
"""Of failures, for a teacher that reads."""
STEP = "step"


class Ran(NamedTuple):
    """What a run came to."""

    gain: float
    """True, of its best, on cases that nobody has seen."""
    leading: float
    """The same of what leads, proven or not."""
    good: int
    useless: int
    harmful: int
    """Rules that its best holds."""
    keeps: int
    false: int
    """Of the keeps, those that are truly no better."""
    better: int
    """Proposals that were truly better than what led when they were judged."""
    found: int
    """Of those, the ones that were kept."""
    steps: int
    rollouts: int
    """All of them, also those of a step that a budget left open."""


def run_one(world: World, arm: str, seed: int) -> Ran:
    """One run, in memory."""
    gate, *more = ARMS[arm]
    with tempfile.TemporaryDirectory() as folder:
        plan = replace(make_plan(world, gate, seed, Path(folder), *more), views=())
        journal = MemoryJournal()
        state = asyncio.run(sit(plan, journal))
    best, leads = (journal.load(id_)["SKILL.md"] for id_ in (state.best, state.incumbent))
    effects = [effect(world, rule) for rule in rules_in(best)]
    start = true_score(world, START)
    tried = [step for step in state.history if step.candidate and step.turn.proposer == STEP]
    kept = better = found = 0
    for step in tried:
        assert step.candidate is not None
        after, before = (journal.load(id_)["SKILL.md"] for id_ in (step.candidate, step.incumbent))
        gains, keeps = _gain(world, after, before) > 0, step.verdict.outcome == "keep"
        kept, better, found = kept + keeps, better + gains, found + (gains and keeps)
    return Ran(
        true_score(world, best) - start,
        true_score(world, leads) - start,
        sum(one > 0 for one in effects),
        sum(one == 0 for one in effects),
        sum(one < 0 for one in effects),
        kept,
        kept - found,
        better,
        found,
        len(tried),
        len(journal.rollouts),
    )


def _gain(world: World, after: str, before: str) -> float:
    return true_score(world, after) - true_score(world, before)


Found = Mapping[tuple[str, str], Sequence[Ran]]


def run_all(worlds: Sequence[World], seeds: int) -> Found:
    """By world and gate, the runs in the order of their seeds."""
    todo = list(product(worlds, ARMS, range(seeds)))
    found: dict[tuple[str, str], list[Ran]] = {}
    with ProcessPoolExecutor(PROCESSES) as pool:
        for (world, arm, seed), ran in zip(
            todo, pool.map(run_one, *zip(*todo, strict=True)), strict=True
        ):
            found.setdefault((world.name, arm), []).append(ran)
            if seed == seeds - 1:
                say(f"{world.name}, {arm}: done")
    return found


def table(found: Found) -> Table:
    rows: list[tuple[str, ...]] = []
    for (world, gate), ran in found.items():
        keeps, false = sum(one.keeps for one in ran), sum(one.false for one in ran)
        spent = fmean(one.rollouts for one in ran)
        gain = fmean(one.gain for one in ran)
        rows.append(
            (
                world,
                gate,
                f"{gain:+.3f}",
                f"{fmean(one.leading for one in ran):+.3f}",
                f"{1000 * gain / spent:+.4f}",
                f"{fmean(one.good for one in ran):.2f}",
                f"{fmean(one.useless for one in ran):.2f}",
                f"{fmean(one.harmful for one in ran):.2f}",
                f"{keeps / len(ran):.1f}",
                f"{100 * false / keeps:.0f} %" if keeps else "none",
                f"{sum(one.found for one in ran)} of {sum(one.better for one in ran)}",
                f"{fmean(one.steps for one in ran):.1f}",
                f"{sum(one.gain < 0 for one in ran)} of {len(ran)}",
                f"{spent:,.0f}",
            )
        )
    head = (
        *("world", "arm", "true gain", "of what leads", "a thousand rollouts"),
        *("good rules", "useless", "harmful", "keeps", "of them false"),
        *("better ones kept", "steps", "ended worse", "rollouts"),
    )
    helps = "; ".join(f"{w.name} {w.helps:.0%} help, {w.harms:.0%} harm" for w in WORLDS)
    note = (
        f"Of {RULES} rules: {helps}. {TRAIN} train and {HOLDOUT} deciding cases, {EPOCHS} epochs, "
        f"batches of {BATCH}, at most {EDITS} edits a step; {SAME} rollouts are what `selection` "
        "needs at most, and the race may be given no more. The gain is that of the best on 400 "
        "cases that no run has seen; rules are those that the best holds. Steps are those that "
        "came to a verdict on a candidate. All are means over the runs, but for the better "
        "proposals, which are all there were."
    )
    return Table("What training kept", head, rows, note)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.train_world", description="Noisy students.")
    parser.add_argument("--quick", action="store_true", help="two seeds: does it run?")
    parser.add_argument("--seeds", type=int, help=f"runs of each arm (default: {SEEDS})")
    parser.add_argument("--reads", action="store_true", help="with a teacher that reads the skill")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args()
    seeds = given.seeds or (QUICK_SEEDS if given.quick else SEEDS)
    found = run_all([w._replace(kinds=KINDS if given.reads else 0) for w in WORLDS], seeds)
    raw = {f"{w}/{g}": [one._asdict() for one in ran] for (w, g), ran in found.items()}
    report = Report("train_world", "Training with noisy students", [table(found)], {"runs": raw})
    other = given.quick or given.seeds or given.reads
    show(report, given.out or (None if other else RESULTS))


if __name__ == "__main__":
    main()
