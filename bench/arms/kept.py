"""Kept, through `kept.optimize` alone, with its journal on disk.

`make` grows a run until so many steps have closed and then kills itself, as a crash would; `resume`
goes on with it.
"""

import asyncio
import os
import signal
from importlib import import_module
from pathlib import Path
from random import Random

from bench.reading import Order, Reading, Stopwatch, read_order, tell
from bench.world import EVALUATOR_SECONDS, SEED, TRAIN, line, score
from kept import Append, Brief, Budget, Candidate, Case, Cases, Proposal, Result, optimize
from kept.core.event import Event, StepClosed, StepOpened
from kept.core.ports import Sink
from kept.core.state import State

AT_USE = (
    *("run_sync", "core.guards", "core.forecast", "recipes.function.validate"),
    *("recipes.function.compile", "recipes.gate_choice"),
    *("evaluators.runners.function", "store.run_index"),
)
"""Modules that Kept loads when a run is asked for; imports are not what is measured."""


class World:
    """The evaluator and the proposer, counting."""

    def __init__(self, order: Order) -> None:
        self._one_in = order.one_in
        self._chance = Random(order.cases)
        self.calls = 0

    async def instantly(self, candidate: Candidate, case: object) -> float:
        self.calls += 1
        return score(candidate.text)

    async def slowly(self, candidate: Candidate, case: object) -> float:
        await asyncio.sleep(EVALUATOR_SECONDS)
        self.calls += 1
        return score(candidate.text)

    async def by_chance(self, candidate: Candidate, case: object) -> float:
        """Pass or fail, more often a pass with every `+` line."""
        await asyncio.sleep(EVALUATOR_SECONDS)
        self.calls += 1
        better, worse = candidate.text.count("+"), candidate.text.count("-")
        return float(self._chance.random() < 0.4 + 0.09 * better - 0.04 * worse)

    def propose(self, brief: Brief) -> Proposal:
        return Proposal((Append("text", line(brief.step, self._one_in)),))


class KillAt:
    """A sink that ends the process with the verdict on a step, as a crash would."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_event(self, event: Event, state: State) -> None:
        if isinstance(event, StepClosed) and event.step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


class FirstOpening:
    """A sink that reads the watch when the next step opens."""

    def __init__(self, watch: Stopwatch, world: World) -> None:
        self._watch = watch
        self._world = world
        self.reading: Reading | None = None

    def on_event(self, event: Event, state: State) -> None:
        if self.reading is None and isinstance(event, StepOpened):
            self.reading = self._watch.read(self._world.calls)


def run(order: Order, world: World, budget: Budget, *sinks: Sink, resume: str = "") -> Result:
    cases = Cases(
        train=tuple(Case(f"train-{number}", number) for number in range(TRAIN)),
        holdout=tuple(Case(f"holdout-{number}", number) for number in range(order.cases)),
    )
    evaluate = {"slow": world.slowly, "race": world.by_chance}.get(order.task, world.instantly)
    return optimize(
        SEED,
        evaluate,
        cases,
        gate="race" if order.task == "race" else "strict",
        bounds=(0.0, 1.0) if order.task == "race" else None,
        proposers=[world.propose],
        budget=budget,
        workers=order.workers,
        home=Path(order.folder),
        resume=resume or None,
        sinks=sinks,
    )


def instant(order: Order) -> Reading:
    world = World(order)
    watch = Stopwatch()
    result = run(order, world, Budget(max_rollouts=order.rollouts))
    return watch.read(world.calls, **numbers(result))


def slow(order: Order) -> Reading:
    world = World(order)
    watch = Stopwatch()
    result = run(order, world, Budget(max_minutes=order.seconds / 60))
    return watch.read(world.calls, **numbers(result))


def make(order: Order) -> Reading:
    run(order, World(order), Budget(), KillAt(order.steps - 1))
    raise AssertionError("the run should have been killed")


def resume(order: Order) -> Reading:
    world = World(order)
    watch = Stopwatch()
    opening = FirstOpening(watch, world)
    # enough for one more step to open, whatever the width
    run(order, world, Budget(max_iterations=order.steps + 100), opening, resume="last")
    assert opening.reading is not None, "no step opened"
    read = opening.reading
    return Reading(read.cpu, read.wall, read.rollouts, read.memory, {"repeated": repeated(order)})


def numbers(result: Result) -> dict[str, float]:
    spend, state = result.state.spend, result.state
    return {
        "moot": spend.moot,
        "cancelled": spend.cancelled,
        "steps": len(state.history),
        "keeps": state.keeps,
    }


def repeated(order: Order) -> int:
    """Rollouts that stand in the journal more than once: paid for twice."""
    (path,) = Path(order.folder).glob("runs/*/rollouts.jsonl")
    rows = [row for row in path.read_text().splitlines() if '"kind":"rollout"' in row]
    pairs = {row[row.index('"candidate"') : row.index('"metrics"')] for row in rows}
    return len(rows) - len(pairs)


def main() -> None:
    order = read_order()
    for name in AT_USE:
        import_module(f"kept.{name}")
    tasks = {"instant": instant, "slow": slow, "race": slow, "make": make, "resume": resume}
    tell(tasks[order.task](order))


if __name__ == "__main__":
    main()
