"""The list of all runs of a home, in SQLite.

A convenience: whatever it lacks or holds stale is read from the run folders again.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from kept.core.objective import Objective
from kept.core.state import State
from kept.errors import JournalError
from kept.store.home import Home
from kept.store.lock import holder
from kept.store.reader import Run


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run in the list."""

    id: str
    recipe: str
    spec: str
    status: str
    started: float
    steps: int
    keeps: int
    rollouts: int
    usd: float
    metric: str
    seed_value: float | None
    best_value: float | None
    reason: str
    size: int
    """Of the journal when this was read; a different size now means the row is stale."""


_COLUMNS = [field.name for field in fields(RunRow)]


class RunIndex:
    """`index.db` of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def rows(self) -> list[RunRow]:
        """Every run, newest first, read anew where the folder has changed."""
        with self._database() as database:
            sql = f"SELECT {', '.join(_COLUMNS)} FROM runs"
            known = {row[0]: RunRow(*row) for row in database.execute(sql)}
            rows: list[RunRow] = []
            for folder in self._home.folders():
                row = known.get(folder.name)
                size = (folder / "journal.jsonl").stat().st_size
                running = row is not None and row.status == "running"
                if row is None or row.size != size or running:
                    row = _read(folder)
                    marks = ", ".join("?" for _ in _COLUMNS)
                    database.execute(f"INSERT OR REPLACE INTO runs VALUES ({marks})", astuple(row))
                rows.append(row)
        return rows[::-1]

    @contextmanager
    def _database(self) -> Generator[sqlite3.Connection]:
        path = self._home.path / "index.db"
        try:
            self._home.path.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(path, timeout=10)
            database.execute("PRAGMA journal_mode=WAL")
            columns = ", ".join(_COLUMNS)
            database.execute(f"CREATE TABLE IF NOT EXISTS runs ({columns}, PRIMARY KEY (id))")
        except sqlite3.Error as error:
            raise JournalError(
                f"cannot use {path}: {error}", hint="delete it; it is made anew from the runs"
            ) from error
        try:
            with database:
                yield database
        finally:
            database.close()


def values(state: State) -> tuple[float | None, float | None]:
    """The metric of seed and best on the deciding cases, where they were measured."""
    direction = "minimize" if state.fact("direction") == "minimize" else "maximize"
    objective = Objective(direction=direction)
    found: list[float | None] = []
    for id_ in (state.seed, state.best):
        known = {e.purpose: e.loss for e in state.evaluations.get(id_, ())}
        loss = known.get("decide", known.get("screen"))
        found.append(None if loss is None else objective.value(loss))
    return found[0], found[1]


def _read(folder: Path) -> RunRow:
    size = (folder / "journal.jsonl").stat().st_size
    try:
        run = Run(folder)
        state = run.state
    except JournalError as error:
        status = "running" if holder(folder) is not None else "unreadable"
        reason = str(error.message)
        return RunRow(folder.name, "", "", status, 0, 0, 0, 0, 0, "", None, None, reason, size)
    seed_value, best_value = values(state)
    run.close()
    return RunRow(
        id=folder.name,
        recipe=state.started.recipe if state.started else "",
        spec=state.fact("spec"),
        status=run.status,
        started=state.started.t if state.started else 0,
        steps=len(state.closed),
        keeps=state.keeps,
        rollouts=state.spend.rollouts,
        usd=state.spend.usd,
        metric=state.fact("metric"),
        seed_value=seed_value,
        best_value=best_value,
        reason=state.stopped.message if state.stopped else "",
        size=size,
    )
