"""Both commands tune the same agent, round by round, and the page of what they took."""

import argparse
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench import peer
from bench.harness import ArmFailed, say, spread
from bench.peer import holodeck_program, kept_program
from bench.report import RESULTS, Goal, Report, Table, goals_table, show
from bench.test_optimize.world import AT_ONCE, Task, run_command
from bench.test_run.told import KEPT, Found, against, as_json
from bench.test_run.world import Took, serving

CPU_GOAL = 0.2
"""Of the peer's processor time."""

PEER = "holodeck"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is run."""

    whole: Task
    few: Task
    """With it, what one more case costs."""
    repeats: int

    @property
    def tasks(self) -> dict[str, Task]:
        """By what their table says of them."""
        return {f"{t.sweeps} sweeps × {t.cases} cases": t for t in (self.few, self.whole)}


WHOLE = Sizes(Task(13, 20), Task(2, 20), 5)
QUICK = Sizes(Task(3, 4), Task(2, 4), 1)


def measure(sizes: Sizes, programs: Mapping[str, str]) -> tuple[dict[str, Found], str]:
    """What each program took for each task, and why the peer was left out, if it was."""
    took = {name: {arm: list[Took]() for arm in programs} for name in sizes.tasks}
    left, why = dict(programs), ""
    with serving(0.0) as server:
        for arm, program in programs.items():
            # once for nothing: the first start of a fresh installation compiles its modules
            say(f"{arm}: getting warm")
            with suppress(ArmFailed):
                run_command(program, Task(12, 1), server, kept=arm == KEPT)
        for number in range(sizes.repeats):
            for name, task in sizes.tasks.items():
                for arm, program in list(left.items()):
                    say(f"{arm}: {name} ({number + 1} of {sizes.repeats})")
                    try:
                        one = run_command(program, task, server, kept=arm == KEPT)
                        took[name][arm].append(one)
                    except ArmFailed as error:
                        if arm == KEPT:
                            raise
                        why = f"{name}: {error}"
                        del left[arm]
    return {name: {a: rows for a, rows in arms.items() if rows} for name, arms in took.items()}, why


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.test_optimize", description="What tuning costs.")
    parser.add_argument("--quick", action="store_true", help="less of everything: does it run?")
    parser.add_argument("--no-peer", action="store_true", help="Kept only")
    parser.add_argument("--repeats", type=int, help=f"rounds (default: {WHOLE.repeats})")
    parser.add_argument("--out", type=Path, help="where the results go")
    given = parser.parse_args()
    sizes = QUICK if given.quick else replace(WHOLE, repeats=given.repeats or WHOLE.repeats)
    programs = {KEPT: kept_program()}
    other = None if given.no_peer else holodeck_program()
    if other:
        programs[PEER] = other
    load = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    found, why = measure(sizes, programs)
    goals = goals_of(sizes, found)
    tables = [goals_table(goals), whole_table(found), more_table(sizes, found)]
    raw = {"goals": [goal.row() for goal in goals], "took": as_json(found)}
    folder = given.out or (None if given.quick else RESULTS)
    facts = peer.HOLODECK if other else "not run"
    told = " ".join(f"{facts}. Failed: {why}".split()) if why else facts
    head = f"Tuning an agent, at a load of {load} when it began"
    show(Report("test-optimize", head, tables, raw), folder, holodeck=told)


def whole_table(found: Mapping[str, Found]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name, took in found.items():
        for arm, ones in took.items():
            cells = (
                spread(one.calls for one in ones),
                spread((one.wall for one in ones), 2),
                spread((one.cpu for one in ones), 2),
                spread(one.memory for one in ones),
                spread((one.first for one in ones), 2),
            )
            rows.append((name, arm, *cells, *against(took, arm)))
    head = ("task", "command", "calls", "wall s", "CPU s", "peak MB", "s to the first call")
    note = (
        "`kept test optimize agent.yaml` and `holodeck test optimize agent.yaml`, each from the "
        "start of the process to its end: a baseline and a trial for each further sweep, "
        f"{AT_ONCE} cases at once, one number to tune, no gain to be had. Kept decides by `sigma` "
        "with one repeat and no holdout, as the peer does, so that both make the same calls, which "
        "the model counted: a server on loopback in a process of its own, whose time is not "
        "counted, but which shares the cores. Processor time is user and system time of all "
        "processes of the command; median (least–greatest); ratios are taken within a round. The "
        "peer writes its files at the end; Kept keeps a journal that a cut run goes on from. "
        "holodeck's traces to the internet are switched off, for it would wait for them."
    )
    return Table("From start to end", (*head, "kept, of its wall", "of its CPU"), rows, note)


def more_table(sizes: Sizes, found: Mapping[str, Found]) -> Table:
    few, whole = found.values()
    more = sizes.whole.calls - sizes.few.calls
    each = {
        arm: [(b.cpu - a.cpu) / more * 1000 for a, b in zip(few[arm], ones, strict=True)]
        for arm, ones in whole.items()
        if len(few.get(arm, ())) == len(ones)
    }
    rows = [(arm, spread(values, 2)) for arm, values in each.items()]
    note = (
        "The difference between the two tasks, divided by the rollouts: starting is not in it, but "
        "its swing is, so that one round alone tells little. Of Kept's, the search is a part: "
        "the larger task has trials that Optuna chooses, and loads it."
    )
    return Table("A rollout more", ("command", "CPU ms a rollout"), rows, note)


def goals_of(sizes: Sizes, found: Mapping[str, Found]) -> list[Goal]:
    took = list(found.values())[-1]
    task = sizes.whole
    what = f"{task.sweeps} sweeps × {task.cases}: ≤ {CPU_GOAL:g} of holodeck's processor time"
    if PEER not in took:
        return [Goal(what, "", None)]
    parts = [a.cpu / b.cpu for a, b in zip(took[KEPT], took[PEER], strict=False)]
    mine, theirs = (median(one.cpu for one in took[arm]) for arm in (KEPT, PEER))
    part = median(parts)
    return [Goal(what, f"{part:.3f} × ({mine:.1f} s and {theirs:.1f} s)", part <= CPU_GOAL)]


if __name__ == "__main__":
    main()
