"""Both commands on the same agent.yaml, round by round, and the page of what they took."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench import peer
from bench.harness import ArmFailed, ratio, say, spread
from bench.peer import holodeck_program, kept_program
from bench.report import RESULTS, Goal, Report, Table, goals_table, show
from bench.test_run.told import KEPT, Found, against, as_json
from bench.test_run.world import Command, Task, Took, bare, run_command, serving, testing

BUSY_GOAL = 0.9
"""Share of ideal, with all places taken and a model that takes its time."""

BARE, PEER = "bare aiohttp", "holodeck"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    start: Task
    few: Task
    many: Task
    busy: Task
    repeats: int

    @property
    def tasks(self) -> dict[str, Task]:
        """By what their table says of them."""
        named = (self.start, self.few, self.many, self.busy)
        return {
            f"{task.cases} cases, {task.at_once} at once, {task.latency * 1000:g} ms a reply": task
            for task in named
        }


WHOLE = Sizes(Task(20), Task(200), Task(1000), Task(500, 64, 0.1), 3)
# what is alike is run once
QUICK = Sizes(Task(4), Task(4), Task(24, 8, 0.05), Task(24, 8, 0.05), 1)


def measure(sizes: Sizes, commands: Mapping[str, Command]) -> tuple[dict[str, Found], str]:
    """What each command took for each task, and why the peer was left out, if it was."""
    found: dict[str, Found] = {}
    left, why = dict(commands), ""
    with serving(0.0) as server:
        for arm, command in commands.items():
            # once for nothing: the first start of a fresh installation compiles its modules
            say(f"{arm}: getting warm")
            with suppress(ArmFailed):
                run_command(command, Task(1), server)
    for name, task in sizes.tasks.items():
        took: dict[str, list[Took]] = {arm: [] for arm in left}
        with serving(task.latency) as server:
            for number in range(sizes.repeats):
                for arm, command in list(left.items()):
                    say(f"{arm}: {name} ({number + 1} of {sizes.repeats})")
                    try:
                        took[arm].append(run_command(command, task, server))
                    except ArmFailed as error:
                        if arm != PEER:
                            raise
                        why = f"{name}: {error}"
                        del left[arm]
        found[name] = {arm: rows for arm, rows in took.items() if rows}
    return found, why


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.test_run", description="What test runs cost.")
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    parser.add_argument("--no-peer", action="store_true", help="Kept only")
    parser.add_argument("--repeats", type=int, help="rounds (default: 3)")
    parser.add_argument("--out", type=Path, help="where the results go")
    given = parser.parse_args()
    sizes = QUICK if given.quick else replace(WHOLE, repeats=given.repeats or WHOLE.repeats)
    commands: dict[str, Command] = {KEPT: testing(kept_program()), BARE: bare}
    other = None if given.no_peer else holodeck_program()
    if other:
        commands[PEER] = testing(other)
    found, why = measure(sizes, commands)
    goals = goals_of(sizes, found)
    tables = [goals_table(goals), whole_table(found), *case_tables(sizes, found)]
    raw = {"goals": [goal.row() for goal in goals], "took": as_json(found)}
    folder = given.out or (None if given.quick else RESULTS)
    facts = peer.HOLODECK if other else "not run"
    report = Report("test-run", "Runs of test cases", tables, raw)
    show(report, folder, holodeck=" ".join(f"{facts}. Failed: {why}".split()) if why else facts)


def whole_table(found: Mapping[str, Found]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, took in found.items():
        for arm, ones in took.items():
            cells = (
                spread((one.wall for one in ones), 2),
                spread((one.cpu for one in ones), 2),
                spread(one.memory for one in ones),
            )
            rows.append((name, arm, *cells, *against(took, arm)))
    head = ("task", "command", "wall s", "CPU s", "peak MB", "kept, of its wall", "of its CPU")
    note = (
        "`kept test run agent.yaml` and `holodeck test run agent.yaml`, the same file, each from "
        "the start of the process to its end; the model is a server on loopback in a process of "
        "its own, whose time is not counted, but which shares the cores. Processor time is user "
        "and system time of all processes of the command; median (least–greatest). Bare aiohttp "
        "is a client that sends as many requests, as many at once, and does no more. holodeck's "
        "traces to the internet are switched off, for it would wait for them at the end."
    )
    return Table("From start to end", head, rows, note)


def case_tables(sizes: Sizes, found: Mapping[str, Found]) -> list[Table]:
    """What one more case costs, and how busy the model is kept."""
    names = {task: name for name, task in sizes.tasks.items()}
    busy = found[names[sizes.busy]]
    slopes = {arm: slope(sizes, found, arm) for arm in programs_of(sizes, found)}
    warm = [
        (arm, spread((value * 1000 for value in each), 2), ratio(slopes[KEPT], each))
        for arm, each in slopes.items()
    ]
    waits = [
        (
            arm,
            spread(sizes.busy.cases / one.span for one in ones),
            f"{share(sizes.busy, ones):.0%}",
            f"{share(sizes.busy, ones) / share(sizes.busy, busy[BARE]):.0%}",
            spread(one.at_once for one in ones),
        )
        for arm, ones in busy.items()
    ]
    task = sizes.busy
    return [
        Table(
            "A case more",
            ("command", "CPU ms a case", "kept against it"),
            warm,
            f"The difference between {sizes.few.cases} and {sizes.many.cases} cases with a model "
            "that answers at once, divided by the cases: starting is not in it, "
            "but its swing is, so that one round alone tells little.",
        ),
        Table(
            f"{task.cases} cases, {task.at_once} in flight, {task.latency * 1000:g} ms",
            ("command", "cases/s", "of ideal", "of bare aiohttp", "most in flight"),
            waits,
            "From the first request to the last reply, as the server saw them. Ideal is "
            f"{task.ideal:g} s: {-(-task.cases // task.at_once)} rows of requests without a pause. "
            "What bare aiohttp lacks of it is the server's and the machine's, not Kept's.",
        ),
    ]


def programs_of(sizes: Sizes, found: Mapping[str, Found]) -> list[str]:
    """Who did both tasks that a slope needs."""
    names = {task: name for name, task in sizes.tasks.items()}
    return [arm for arm in found[names[sizes.many]] if arm in found[names[sizes.few]]]


def slope(sizes: Sizes, found: Mapping[str, Found], arm: str) -> list[float]:
    """Seconds of processor time that one more case takes, round by round."""
    names = {task: name for name, task in sizes.tasks.items()}
    few, many = found[names[sizes.few]][arm], found[names[sizes.many]][arm]
    more = sizes.many.cases - sizes.few.cases
    return [(b.cpu - a.cpu) / more for a, b in zip(few, many, strict=False)]


def share(task: Task, ones: Sequence[Took]) -> float:
    return median(task.ideal / one.span for one in ones)


def goals_of(sizes: Sizes, found: Mapping[str, Found]) -> list[Goal]:
    names = {task: name for name, task in sizes.tasks.items()}
    start, busy = found[names[sizes.start]], found[names[sizes.busy]]
    part = share(sizes.busy, busy[KEPT])
    goals = [
        Goal(
            f"≥ {BUSY_GOAL:.0%} of ideal with {sizes.busy.at_once} in flight",
            f"{part:.1%}",
            part >= BUSY_GOAL,
        )
    ]
    what = f"{sizes.start.cases} cases take less processor time than holodeck's"
    if PEER not in start:
        return [*goals, Goal(what, "", None)]
    mine, theirs = (median(one.cpu for one in start[arm]) for arm in (KEPT, PEER))
    return [*goals, Goal(what, f"{mine:.1f} s and {theirs:.1f} s", mine < theirs)]


if __name__ == "__main__":
    main()
