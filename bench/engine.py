"""What the engine costs: processor time a rollout, rollouts a second, resume, memory.

Run it as `.venv/bin/python -m bench.engine [--quick] [--no-gepa] [--out FOLDER]`. It writes its
results to `bench/results`; with `--quick` only where it is told to.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.harness import (
    Arm,
    ArmFailed,
    as_json,
    cpu_each,
    ratio,
    run_rounds,
    say,
    scratch,
    spread,
    start,
)
from bench.peer import gepa_python
from bench.reading import Order, Reading
from bench.report import RESULTS, Goal, Report, Table, goals_table, show
from bench.world import EVALUATOR_SECONDS

KEPT, GEPA, BARE = "bench.arms.kept", "bench.arms.gepa", "bench.arms.bare"

CPU_GOAL = 50.0
"""Microseconds of processor time a rollout."""
FLAT_GOAL = 1.2
"""Processor time a rollout at the largest size against the one before it."""
BUSY_GOAL = 0.9
"""Share of the rollouts a second that workers without a pause would do."""
RESUME_GOAL = 1.0
"""Seconds of processor time until a resumed run opens its next step."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    rollouts: tuple[int, ...] = (2_000, 10_000, 100_000)
    saved: int = 10_000
    """Most rollouts of gepa with its state saved: it writes all of it anew at every iteration."""
    seconds: float = 8.0
    cases: tuple[int, ...] = (20, 128)
    steps: int = 10_000
    peer_steps: int = 1_000
    repeats: int = 5


QUICK = Sizes((500, 2_000), 500, 1.0, (20,), 200, 50, 1)


@dataclass(slots=True)
class Section:
    """One comparison and what it says about the goals."""

    table: Table
    goals: list[Goal] = field(default_factory=list[Goal])
    readings: Mapping[str, Sequence[Reading]] = field(default_factory=dict[str, Sequence[Reading]])


def overhead(sizes: Sizes, gepa: str | None) -> Section:
    """An evaluator that takes no time leaves the engine alone."""
    rows: list[tuple[str, ...]] = []
    everything: dict[str, list[Reading]] = {}
    each: list[float] = []
    for count in sizes.rollouts:
        arms = overhead_arms(count, sizes, gepa)
        found = run_rounds(arms, sizes.repeats)
        kept = cpu_each(found[arms[0].name])
        each.append(median(kept))
        for arm in arms:
            read = found[arm.name]
            cpu = cpu_each(read)
            against = "" if arm is arms[0] else ratio(kept, cpu)
            memory = spread(row.memory for row in read)
            rows.append((f"{count:,}", arm.name, spread(cpu, 1), against, memory, moot(read)))
            everything[f"{arm.name}, {count} rollouts"] = read
    head = ("rollouts", "arm", "µs a rollout", "kept against it", "peak MB", "moot")
    note = (
        "Processor time, user and system, of the whole process without its imports; median "
        "(least–greatest). gepa with a run_dir writes its whole state at every iteration, so its "
        f"cost grows with the square of the run: it is measured up to {sizes.saved:,} rollouts."
    )
    goals = [
        Goal(f"≤ {CPU_GOAL:g} µs a rollout at {count:,}", f"{found:.1f} µs", found <= CPU_GOAL)
        for count, found in zip(sizes.rollouts, each, strict=True)
    ]
    grown = each[-1] / each[-2]
    what = f"flat: {sizes.rollouts[-1]:,} rollouts ≤ {FLAT_GOAL:g} × {sizes.rollouts[-2]:,}"
    goals.append(Goal(what, f"{grown:.2f} ×", grown <= FLAT_GOAL))
    return Section(Table("Instant evaluator", head, rows, note), goals, everything)


def overhead_arms(count: int, sizes: Sizes, gepa: str | None) -> list[Arm]:
    order = Order("instant", rollouts=count)
    arms = [
        Arm("kept", KEPT, order, keeps=True),
        Arm("kept, 1 proposal in 10 wins", KEPT, replace(order, one_in=10), keeps=True),
        Arm("bare loop", BARE, order),
        Arm("bare loop, a JSON line each", BARE, order, keeps=True),
    ]
    if gepa:
        model = replace(order, reflects=True)
        arms += [
            Arm("gepa, nothing saved", GEPA, order, gepa),
            Arm("gepa, nothing saved, by reflection_lm", GEPA, model, gepa),
        ]
        if count <= sizes.saved:
            few = 1 if count > 2_000 else None
            arms.append(Arm("gepa with run_dir", GEPA, order, gepa, keeps=True, repeats=few))
    return arms


def moot(readings: Sequence[Reading]) -> str:
    """Share of the rollouts that were done to no use."""
    if "moot" not in readings[0].numbers:
        return ""
    return f"{median(row.numbers['moot'] / row.rollouts for row in readings):.0%}"


def throughput(sizes: Sizes, gepa: str | None) -> Section:
    """An evaluator that takes 50 ms shows whether the workers are ever idle."""
    rows: list[tuple[str, ...]] = []
    goals: list[Goal] = []
    everything: dict[str, list[Reading]] = {}
    for cases in sizes.cases:
        arms = throughput_arms(cases, sizes, gepa)
        ideal = arms[0].order.workers / EVALUATOR_SECONDS
        found = run_rounds(arms, 1)
        for arm in arms:
            (read,) = found[arm.name]
            rate = read.rollouts / read.wall
            useful = rate * (1 - read.numbers.get("moot", 0) / read.rollouts)
            stopped = read.numbers.get("cancelled")
            cancelled = "" if stopped is None else f"{stopped / read.rollouts:.0%}"
            cells = f"{rate:,.0f}", f"{useful / ideal:.0%}", moot([read]), cancelled
            rows.append((str(cases), arm.name, *cells))
            if arm.name == "kept":
                what = f"≥ {BUSY_GOAL:.0%} of {ideal:,.0f} rollouts a second with {cases} cases"
                goals.append(Goal(what, f"{useful / ideal:.1%}", useful / ideal >= BUSY_GOAL))
        everything |= {f"{name}, {cases} cases": read for name, read in found.items()}
    head = ("cases", "arm", "rollouts/s", "useful, of ideal", "moot", "cancelled")
    note = (
        f"64 workers, {EVALUATOR_SECONDS * 1000:g} ms an evaluation, about {sizes.seconds:g} s "
        "each. Moot: finished, but an earlier step was kept meanwhile, so its result is not used; "
        "cancelled: stopped in flight for that reason. Both as shares of the finished rollouts."
    )
    return Section(Table("Evaluator of 50 ms", head, rows, note), goals, everything)


def throughput_arms(cases: int, sizes: Sizes, gepa: str | None) -> list[Arm]:
    order = Order("slow", seconds=sizes.seconds, cases=cases)
    tenth = replace(order, one_in=10)
    # long enough for a few races, and for the end of a run
    race = replace(order, task="race", one_in=5, seconds=2 * sizes.seconds)
    arms = [
        Arm("kept", KEPT, order, keeps=True),
        Arm("kept, 1 proposal in 10 wins", KEPT, tenth, keeps=True),
        Arm("kept, racing, pass or fail by chance", KEPT, race, keeps=True),
        Arm("bare loop", BARE, order),
    ]
    if gepa:
        arms += [
            Arm("gepa", GEPA, order, gepa),
            Arm("gepa, 1 proposal in 10 wins", GEPA, tenth, gepa),
            Arm("gepa, every proposal wins", GEPA, replace(order, one_in=1), gepa),
            Arm("gepa, 21 proposals at once", GEPA, replace(order, proposals=21), gepa),
            Arm("gepa, 21 at once, 1 in 10 wins", GEPA, replace(tenth, proposals=21), gepa),
        ]
    return arms


def resumption(sizes: Sizes, gepa: str | None) -> Section:
    """From the call to the moment the next step opens."""
    with scratch() as folder:
        arms = [made(arm, folder / str(n)) for n, arm in enumerate(resume_arms(sizes, gepa))]
        found = run_rounds(arms, sizes.repeats)
    rows: list[tuple[str, ...]] = []
    for arm in arms:
        read = found[arm.name]
        cells = (spread((row.cpu for row in read), 3), spread((row.wall for row in read), 3))
        rows.append((arm.name, *cells, spread(row.numbers["repeated"] for row in read)))
    head = ("run", "CPU s", "wall s", "evaluations repeated")
    note = (
        "Kept's runs were killed by SIGKILL with steps open; gepa's ended by themselves, and are "
        "shorter because making them is quadratic. Every run has 2 deciding cases."
    )
    kept = found[arms[0].name]
    seconds, again = median(row.cpu for row in kept), max(row.numbers["repeated"] for row in kept)
    goals = [
        Goal(
            f"resume of {sizes.steps:,} steps in < {RESUME_GOAL:g} s",
            f"{seconds:.2f} s",
            seconds < RESUME_GOAL,
        ),
        Goal("no rollout repeated by a resume", f"{again:.0f}", again == 0),
    ]
    return Section(Table("Resume", head, rows, note), goals, found)


def resume_arms(sizes: Sizes, gepa: str | None) -> list[Arm]:
    long = Order("resume", steps=sizes.steps, cases=2)
    short = replace(long, steps=sizes.peer_steps)
    arms = [
        Arm(f"kept, {sizes.steps:,} steps", KEPT, long),
        Arm(f"kept, {sizes.peer_steps:,} steps", KEPT, short),
    ]
    if gepa:
        arms += [
            Arm(f"gepa, {sizes.peer_steps:,} steps", GEPA, short, gepa),
            Arm(
                f"gepa, {sizes.peer_steps:,} steps, all kept", GEPA, replace(short, one_in=1), gepa
            ),
        ]
    return arms


def made(arm: Arm, folder: Path) -> Arm:
    """The arm with the run that it is to go on with."""
    say(f"making the run of: {arm.name}")
    folder.mkdir()
    start(arm, replace(arm.order, task="make", folder=str(folder)))
    if not any(folder.iterdir()):
        raise ArmFailed(f"`{arm.name}` made no run")
    return replace(arm, past=folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.engine", description="What the engine costs.")
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    parser.add_argument("--no-gepa", action="store_true", help="Kept and the bare loop only")
    parser.add_argument("--out", type=Path, help="where the results go")
    given = parser.parse_args()
    sizes = QUICK if given.quick else Sizes()
    gepa = None if given.no_gepa else gepa_python()
    sections = [task(sizes, gepa) for task in (overhead, throughput, resumption)]
    goals = [goal for section in sections for goal in section.goals]
    tables = [goals_table(goals), *(section.table for section in sections)]
    raw = {
        "goals": [goal.row() for goal in goals],
        "readings": {section.table.title: as_json(section.readings) for section in sections},
    }
    folder = given.out or (None if given.quick else RESULTS)
    show(Report("engine", "The engine", tables, raw), folder)


if __name__ == "__main__":
    main()
