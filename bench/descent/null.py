"""The same agent in a world where nothing is better: how often anything is kept all the same.

`.venv/bin/python -m bench.descent.null --runs 120` prints it; every keep there is a false one.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.descent.runs import ARMS, held, plan_of
from bench.descent.world import HARM, HARMFUL
from bench.harness import say
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.schedules.coordinate import cycle_of
from kept.testing import MemoryJournal, ScriptedEvaluator, sit

RATE = 0.5
"""How often every agent passes that no harmful line was put into, whatever its number."""


class Ran(NamedTuple):
    """What a run came to."""

    trials: int
    races: int
    keeps: int
    promoted: bool


def run_null(seed: int) -> Ran:
    """One run of the arm `race`."""
    with tempfile.TemporaryDirectory(prefix="kept-descent-") as folder:
        plan = plan_of(Path(folder), ARMS[0], seed)
        runner = plan.runner
        assert isinstance(runner, ScriptedEvaluator), "the world stands at the runner"
        plan = replace(plan, runner=replace(runner, quality=_quality))
        state = asyncio.run(sit(plan, MemoryJournal()))
    trials = [step for step in state.history if cycle_of(step.turn.phase)]
    return Ran(
        trials=len(trials),
        races=sum("alpha" in step.verdict.numbers for step in trials),
        keeps=sum(step.verdict.outcome == "keep" for step in trials),
        promoted=state.best != state.seed,
    )


def _quality(candidate: Candidate, case: Case) -> float:
    prompt, _ = held(candidate)
    return max(0.02, RATE - HARM * sum(line in prompt for line in HARMFUL))


def runs(count: int) -> Iterator[Ran]:
    """So many, in the order of their seeds."""
    with ProcessPoolExecutor() as pool:
        yield from pool.map(run_null, range(count))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.descent.null", description="Nothing is better.")
    parser.add_argument("--runs", type=int, default=120)
    found = list(runs(parser.parse_args().runs))
    kept = sum(one.keeps > 0 for one in found)
    races = sum(one.races for one in found) / len(found)
    trials = sum(one.trials for one in found) / len(found)
    say(f"{kept} of {len(found)} runs kept anything, {sum(o.promoted for o in found)} promoted it")
    say(f"{trials:.1f} trials a run, of which {races:.1f} were raced")


if __name__ == "__main__":
    main()
