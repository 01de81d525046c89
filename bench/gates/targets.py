"""What `race` is judged by: the table of the design, row by row."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from bench.gates.arms import BY_NAME, Arm
from bench.gates.drive import Drive
from bench.gates.ground import Ground, Split
from bench.gates.measure import Cell, Rate
from bench.gates.worlds import MIXED
from bench.report import Goal

Cells = Mapping[tuple[str, str], Cell]
"""By world and arm."""

NO_GAIN = ("null", "heterogeneous", "overfit")
"""Worlds without a better proposal: there, a keep is false whoever makes it."""
TIMES_SIGMA = {"mixed": 1.5, "hard": 2.5, "concentrated": 2.0, "small": 1.0}
STRETCH = "small", 1.2
AT_MOST = 0.05
WORSE = 0.01
OPTIMISM = 0.01
MILLISECONDS = 1.0
LOOK_CASES = 200


def targets(cells: Cells, judged: str = "race", look: float | None = None) -> list[Goal]:
    """Each target, what was measured, and whether it was met; `look` in milliseconds."""
    mine = {world: cell for (world, arm), cell in cells.items() if arm == judged}
    return [
        _highest(
            "null, runs of ≥ 30 proposals with any false keep ≤ 5 %",
            _of(mine, ("null",)),
            lambda cell: cell.any_false_long,
            AT_MOST,
        ),
        *(
            _highest(
                f"{world}, runs whose promoted best is not better on new cases ≤ 5 %",
                _of(mine, (world,)),
                lambda cell: cell.not_better_all,
                AT_MOST,
            )
            for world in ("heterogeneous", "overfit")
        ),
        _highest(
            "share of keeps that are false, any world with better proposals ≤ 5 %",
            [cell for world, cell in mine.items() if world not in NO_GAIN],
            lambda cell: cell.false_keeps,
            AT_MOST,
        ),
        *(_against_sigma(cells, judged, world, times) for world, times in TIMES_SIGMA.items()),
        _against_sigma(cells, judged, *STRETCH, stretch=True),
        _highest(
            "runs whose promoted best is truly worse than the seed, any world ≤ 1 %",
            list(mine.values()),
            lambda cell: cell.best_worse,
            WORSE,
        ),
        _optimism(list(mine.values())),
        Goal(
            f"a look at {LOOK_CASES} cases ≤ {MILLISECONDS:g} ms",
            "" if look is None else f"{look:.3f} ms",
            None if look is None else look <= MILLISECONDS,
        ),
    ]


def _of(mine: Mapping[str, Cell], worlds: Iterable[str]) -> list[Cell]:
    return [mine[world] for world in worlds if world in mine]


def _highest(what: str, cells: Sequence[Cell], rate: Callable[[Cell], Rate], most: float) -> Goal:
    """The world in which a rate is highest decides."""
    found = [(rate(cell), cell.world) for cell in cells if rate(cell).of]
    if not found:
        # nothing was kept: nothing was kept wrongly
        return Goal(what, "no keeps" if cells else "", True if cells else None)
    worst, world = max(found, key=lambda one: one[0].value or 0.0)
    where = f", {world}" if len(cells) > 1 else ""
    return Goal(what, f"{worst}{where}", (worst.value or 0.0) <= most)


def _against_sigma(
    cells: Cells, judged: str, world: str, times: float, *, stretch: bool = False
) -> Goal:
    what = f"{world}, promoted true gain ≥ {times:g} × sigma"
    what += " (stretch)" if stretch else ""
    mine, sigma = cells.get((world, judged)), cells.get((world, "sigma"))
    if mine is None or sigma is None or sigma.best.value <= 0:
        return Goal(what, "", None)
    ratio = mine.best.value / sigma.best.value
    measured = f"{ratio:.2f} × ({mine.best} against {sigma.best})"
    return Goal(what, measured, ratio >= times)


def _optimism(cells: Sequence[Cell]) -> Goal:
    what = "mean claimed minus true, any world, within ± 0.01"
    if not cells:
        return Goal(what, "", None)
    worst = max(cells, key=lambda cell: abs(cell.optimism.value))
    met = abs(worst.optimism.value) <= OPTIMISM
    return Goal(what, f"{worst.optimism}, {worst.world}", met)


def look_time(name: str, seed: int, runs: int = 2) -> float | None:
    """Milliseconds that a gate takes for a look at 200 deciding cases; None without such an arm."""
    arm = BY_NAME.get(name)
    return None if arm is None else _look_time(arm, seed, runs)


def _look_time(arm: Arm, seed: int, runs: int) -> float:
    split = Split(LOOK_CASES * 3 // 5, LOOK_CASES, LOOK_CASES * 2 // 5)
    world = replace(MIXED, cases=sum(split))
    done = [Drive(arm, Ground(world, split, seed, run, 20_000)).run() for run in range(runs)]
    return 1e3 * sum(run.seconds for run in done) / max(1, sum(run.looks for run in done))
