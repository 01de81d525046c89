"""List of runs: filtered, sorted, searched, one page at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from kept.store.run_index import RunRow
from kept.ui.report.format import recipe_word
from kept.ui.web.charts import meter, sparkline
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import state_of
from kept.ui.web.templates import figure, gained, share

PAGE = 50

SORTS: dict[str, Callable[[RunRow], float]] = {
    "newest": lambda row: row.started,
    "gain": lambda row: row.gain if row.gain is not None else _raw_gain(row),
    "cost": lambda row: row.usd,
    "rollouts": lambda row: row.rollouts,
    "steps": lambda row: row.steps,
}
STATES = ("running", "finished", "failed", "interrupted", "crashed", "unreadable")


@dataclass(frozen=True, slots=True)
class Line:
    """A run in the list."""

    row: RunRow
    kind: str
    state: str
    result: str
    interval: str
    spark: Markup
    bar: Markup | None
    used: str


@dataclass(frozen=True, slots=True)
class Query:
    """Search, filters, order and page number of the list."""

    q: str = ""
    state: str = ""
    kind: str = ""
    sort: str = "newest"
    page: int = 1


def runs_view(rows: Sequence[RunRow], asked: Query, place: Path) -> dict[str, object]:
    """Template values of one page of the list; `place` is the folder of the runs."""
    kinds = sorted({kind_of(row.recipe).word for row in rows})
    wanted = [row for row in rows if _matches(row, asked)]
    order = SORTS.get(asked.sort, SORTS["newest"])
    wanted.sort(key=order, reverse=True)
    pages = max(1, -(-len(wanted) // PAGE))
    page = min(max(1, asked.page), pages)
    return {
        "lines": [_line(row, place / row.id) for row in wanted[(page - 1) * PAGE : page * PAGE]],
        "total": len(rows),
        "found": len(wanted),
        "page": page,
        "pages": pages,
        "asked": asked,
        "kinds": kinds,
        "states": STATES,
        "sorts": tuple(SORTS),
    }


def _matches(row: RunRow, asked: Query) -> bool:
    if asked.state and state_of(row.status) != asked.state:
        return False
    if asked.kind and kind_of(row.recipe).word != asked.kind:
        return False
    text = f"{row.id} {row.spec} {row.metric} {recipe_word(row.recipe)} {row.reason}".lower()
    return all(word in text for word in asked.q.lower().split())


def _line(row: RunRow, folder: Path) -> Line:
    values = [float(word) for word in row.spark.split()]
    used = f"{share(min(1.0, row.used))} of {row.limit}" if row.limit else ""
    return Line(
        row,
        kind_of(row.recipe).word,
        state_of(row.status),
        kind_of(row.recipe).result(row, folder),
        gained(row.gain, row.low, row.high) if row.gain is not None else "",
        sparkline(values, f"{row.metric} by step, at last {figure(values[-1])}")
        if len(values) > 1
        else Markup(""),
        meter(row.used, f"{used} used") if row.limit else None,
        used,
    )


def _raw_gain(row: RunRow) -> float:
    if row.best_value is None or row.seed_value is None:
        return 0.0
    return abs(row.best_value - row.seed_value)
