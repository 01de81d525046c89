"""The tables: the whole at a glance, then every world for itself."""

from collections.abc import Sequence

from bench.gates.cells import Found, Wanted
from bench.gates.measure import Cell
from bench.gates.worlds import BY_NAME as WORLD
from bench.report import Table

HEAD = (
    "arm",
    "true gain, incumbent",
    "true gain, best",
    "claimed − true",
    "keeps a run",
    "false, of keeps",
    "runs with a false keep",
    "promoted anything",
    "best not better, of those",
    "best not better, of all",
    "best worse",
    "ends worse",
    "rollouts a decision",
    "proposals",
)


def tables(found: Found, wanted: Wanted) -> list[Table]:
    return [
        gains(found, wanted),
        false_keeps(found, wanted),
        *(of_world(name, found, wanted.arms) for name in wanted.worlds),
        costs(found, wanted.arms),
    ]


def gains(found: Found, wanted: Wanted) -> Table:
    rows = [
        (
            arm,
            str(wanted.runs_of(arm)),
            *(f"{found.cells[world, arm].best.value:+.3f}" for world in wanted.worlds),
        )
        for arm in wanted.arms
    ]
    note = (
        "On 800 fresh cases of the same population. Every rollout of either side is counted, those "
        f"of the sealed test too: {wanted.budget:,} a run. Seed {wanted.seed}."
    )
    return Table("True gain of the promoted best", ("arm", "runs", *wanted.worlds), rows, note)


def false_keeps(found: Found, wanted: Wanted) -> Table:
    rows = [
        (arm, *(found.cells[world, arm].any_false.plain() for world in wanted.worlds))
        for arm in wanted.arms
    ]
    note = (
        "A keep is false when it is not better on fresh cases than the incumbent that it replaced. "
        "In the heterogeneous world no edit has an effect on average, so that fresh cases call one "
        "in two of them better by chance: there, see who promoted anything at all. Below, shares "
        "have Wilson's interval of 95 %, means their standard error."
    )
    return Table("Runs with a false keep", ("arm", *wanted.worlds), rows, note)


def of_world(name: str, found: Found, arms: Sequence[str]) -> Table:
    world = WORLD[name]
    cells = [found.cells[name, arm] for arm in arms]
    note = f"{world.about[0].upper()}{world.about[1:]}."
    if world.drift or world.flaky:
        then = ", ".join(f"{cell.arm} {cell.optimism_then}" for cell in cells)
        note += (
            " The truth is that of an evaluator without either. Claimed minus what the evaluator "
            f"itself would have shown in the mean when the run reports: {then}."
        )
    return Table(f"World: {name}", HEAD, [row(cell) for cell in cells], note)


def row(cell: Cell) -> tuple[str, ...]:
    return (
        cell.arm,
        str(cell.final),
        str(cell.best),
        str(cell.optimism),
        f"{cell.keeps:.2f}",
        cell.false_keeps.plain(),
        str(cell.any_false),
        cell.promoted.plain(),
        cell.not_better.plain(),
        str(cell.not_better_all),
        cell.best_worse.plain(),
        cell.ends_worse.plain(),
        f"{cell.per_decision:.0f}",
        f"{cell.proposals:.0f}",
    )


def costs(found: Found, arms: Sequence[str]) -> Table:
    rows: list[tuple[str, ...]] = []
    for arm in arms:
        mine = [cell for (_, name), cell in found.cells.items() if name == arm]
        runs = sum(cell.runs for cell in mine)
        proposals = sum(cell.proposals * cell.runs for cell in mine)
        looks = sum(cell.looks * cell.runs for cell in mine)
        gate = sum(cell.seconds for cell in mine) / max(looks, 1)
        took = found.seconds[arm]
        rows.append(
            (arm, f"{1e3 * took / runs:.0f}", f"{proposals / took:,.0f}", f"{1e3 * gate:.3f}")
        )
    head = ("arm", "ms a run", "proposals/s", "ms a look, the gate alone")
    whole = sum(found.seconds.values()) / 60
    note = f"Of one process; a look is one `decide`. In all {whole:.0f} minutes of processor time."
    return Table("What the bench took", head, rows, note)
