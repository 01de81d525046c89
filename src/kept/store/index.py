"""The list of all runs of a home, in SQLite.

A convenience: whatever it lacks or holds stale is read from the run folders again.
"""

import logging
import sqlite3
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from kept.core.objective import Objective
from kept.core.rollout import Purpose
from kept.core.state import State
from kept.errors import JournalError
from kept.store.home import Home
from kept.store.lock import holder
from kept.store.reader import Run
from kept.store.spent import spend_of


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list."""

    id: str
    recipe: str
    spec: str
    status: str
    started: float
    steps: int
    proposals: int
    """Steps that had one to judge."""
    keeps: int
    rollouts: int
    usd: float
    metric: str
    seed_value: float | None
    best_value: float | None
    reason: str
    size: int
    """Of the journal when this was read; a different size now means the row is stale."""


log = logging.getLogger("kept")

_COLUMNS = [field.name for field in fields(RunRow)]
_TABLE = f"runs_{len(_COLUMNS)}"
"""Named by its width, so that a table of an older version is not taken for this one."""


class RunIndex:
    """`index.db` of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def rows(self) -> list[RunRow]:
        """Every run, newest first, read anew where the folder has changed."""
        known = self._known()
        rows: list[RunRow] = []
        fresh: list[RunRow] = []
        for folder in self._home.folders():
            row = known.get(folder.name)
            size = (folder / "journal.jsonl").stat().st_size
            if row is None or row.size != size or row.status == "running":
                row = _read(folder)
                fresh.append(row)
            rows.append(row)
        if fresh:
            self._remember(fresh)
        return rows[::-1]

    def _known(self) -> dict[str, RunRow]:
        """What was read before; nothing where the database is missing or of no use."""
        path = self._home.path / "index.db"
        if not path.exists():
            return {}
        sql = f"SELECT {', '.join(_COLUMNS)} FROM {_TABLE}"
        with suppress(sqlite3.Error), closing(sqlite3.connect(path, timeout=10)) as database:
            return {row[0]: RunRow(*row) for row in database.execute(sql)}
        return {}

    def _remember(self, rows: list[RunRow]) -> None:
        """Spare the next listing the reading; a folder that cannot be written does without."""
        path = self._home.path / "index.db"
        columns = ", ".join(_COLUMNS)
        marks = ", ".join("?" for _ in _COLUMNS)
        try:
            with closing(sqlite3.connect(path, timeout=10)) as database, database:
                database.execute("PRAGMA journal_mode=WAL")
                made = f"CREATE TABLE IF NOT EXISTS {_TABLE} ({columns}, PRIMARY KEY (id))"
                database.execute(made)
                insert = f"INSERT OR REPLACE INTO {_TABLE} ({columns}) VALUES ({marks})"
                database.executemany(insert, [astuple(row) for row in rows])
        except sqlite3.OperationalError as error:
            log.debug("index.db is left as it is: %s", error)
        except sqlite3.DatabaseError as error:
            log.warning("%s is damaged (%s) and is made anew", path, error)
            with suppress(OSError):
                path.unlink()


def values(state: State) -> tuple[float | None, float | None]:
    """The metric of seed and best on the deciding cases, where they were measured."""
    direction = "minimize" if state.fact("direction") == "minimize" else "maximize"
    objective = Objective(direction=direction)
    seed, best = (_losses(state, id_) for id_ in (state.seed, state.best))
    # draws of one purpose for both; those that nothing was selected by first
    orders: tuple[Purpose, ...] = ("test", "promote", "decide", "screen", "measure")
    both: list[Purpose] = [p for p in orders if p in seed and p in best]
    # where a failure has no value there is no score, but what was proven has one all the same
    scored = [p for p in both if seed[p] is not None and best[p] is not None]
    common = scored or both or [*orders[2:]]
    pair = (next((known[p] for p in common if p in known), None) for known in (seed, best))
    found = [None if loss is None else objective.value(loss) for loss in pair]
    return found[0], found[1]


def _losses(state: State, id_: str) -> dict[Purpose, float | None]:
    # where every rollout failed, the loss is the worst there is, and nothing was measured
    ran = (e for e in state.evaluations.get(id_, ()) if e.failed < e.asked)
    return {e.purpose: e.loss for e in ran}


def _read(folder: Path) -> RunRow:
    size = (folder / "journal.jsonl").stat().st_size
    try:
        run = Run(folder)
        state = run.state
    except JournalError as error:
        status = "running" if holder(folder) is not None else "unreadable"
        reason = str(error.message)
        return RunRow(folder.name, "", "", status, 0, 0, 0, 0, 0, 0, "", None, None, reason, size)
    seed_value, best_value = values(state)
    spend = spend_of(folder, state)
    run.close()
    return RunRow(
        id=folder.name,
        recipe=state.started.recipe if state.started else "",
        spec=state.fact("spec"),
        status=run.status,
        started=state.started.t if state.started else 0,
        steps=len(state.closed),
        proposals=sum(not step.verdict.idle for step in state.closed),
        keeps=state.keeps,
        rollouts=spend.rollouts,
        usd=spend.usd,
        metric=state.fact("metric"),
        seed_value=seed_value,
        best_value=best_value,
        reason=state.stopped.message if state.stopped else "",
        size=size,
    )
