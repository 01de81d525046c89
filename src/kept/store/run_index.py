"""Index of all runs of a home, in SQLite.

It is a cache: missing or stale rows are read from the run folders again.
"""

import logging
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from zlib import crc32

from kept.core.plan import AGENT_RUN, ITERATIONS, REFINE
from kept.core.schedules.refine import attempts, reruns, run_folder
from kept.errors import JournalError
from kept.store.candidate_files import make_private
from kept.store.home import Home
from kept.store.jsonl import read_events
from kept.store.lock import holder
from kept.store.overview import Glance
from kept.store.reader import fold_run


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
    """Number of steps with a proposal to judge."""
    keeps: int
    rollouts: int
    usd: float
    metric: str
    seed_value: float | None
    best_value: float | None
    reason: str
    gain: float | None
    low: float | None
    high: float | None
    """Gain of the best, and bounds of the true gain; None if not measured."""
    limit: str
    """Limit of the budget that is used up most, such as `rollouts`; empty without limits."""
    used: float
    """Share of that limit that is used."""
    elapsed: float
    spark: str
    """Incumbent's values over the steps, thinned out for a sparkline, separated by spaces."""
    size: int
    """Size of the journal when this was read; the row is stale if it differs now."""
    parent_run_id: str = ""
    """Run that an agent run started from; empty without one."""
    refinement: str = ""
    """For an iteration, the refinement run that it belongs to; else empty."""
    iteration: int = 0
    """Number of the iteration in that run."""
    folder: str = ""
    """Folder of an iteration; empty for others, whose folder in the home is their id."""

    @property
    def tried(self) -> int:
        """Number of proposals; for a refinement without any, of its attempts."""
        return self.proposals or (self.steps if self.recipe == REFINE else 0)


log = logging.getLogger("kept")

UNREADABLE = "unreadable"
"""Status of a run whose journal cannot be read."""

_COLUMNS = [field.name for field in fields(RunRow)]
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
"""Quoted, since `limit` is an SQL keyword."""
_TABLE = f"runs_{len(_COLUMNS)}_checked_2"
"""Name with the number of columns and a version, so that tables of older versions differ."""


class RunIndex:
    """`index.db` of a home."""

    def __init__(self, home: Home, glance: Callable[[Path], Glance] | None = None) -> None:
        self._home = home
        self._glance = glance or _glance
        """Function that reads a run; callers that read often pass one with a cache."""

    def rows(self) -> list[RunRow]:
        """All runs, newest first; those that changed are read again."""
        known = self._known()
        rows: list[RunRow] = []
        fresh: list[RunRow] = []
        for folder in self._home.folders():
            row = known.get(folder.name)
            size = (folder / "journal.jsonl").stat().st_size
            # a kill or a repaired record may leave the size unchanged
            if row is None or row.size != size or row.status in ("running", UNREADABLE):
                row = self._read(folder)
                fresh.append(row)
            rows.append(row)
        if fresh:
            self._remember(fresh)
        return rows[::-1]

    def with_iterations(self) -> list[RunRow]:
        """All runs, newest first, each refinement followed by the runs of its iterations."""
        known: dict[str, list[RunRow]] = {}
        for row in self._known().values():
            if row.refinement:
                known.setdefault(row.refinement, []).append(row)
        found: list[RunRow] = []
        fresh: list[RunRow] = []
        for row in self.rows():
            found.append(row)
            inner = _INNER_RUNS.get(row.recipe)
            if inner is None:
                continue
            mine = sorted(known.get(row.id, ()), key=lambda one: one.iteration)
            if not mine or any(one.size != row.size for one in mine):
                try:
                    mine = inner(self._home.runs / row.id, row)
                except JournalError as error:
                    # the row itself may be readable: it needs less of the journal
                    found[-1] = _unreadable(row.id, UNREADABLE, str(error.message), row.size)
                    continue
                fresh += mine
            found += mine
        if fresh:
            self._remember(fresh)
        return found

    def find_iteration(self, name: str) -> RunRow | None:
        """Find an iteration by its id, or by the start or end of it; None if not unique."""
        ids = {row.id: row for row in self.with_iterations() if row.refinement}
        hits = [id_ for id_ in ids if id_.startswith(name) or id_.endswith(name)]
        return ids.get(name) or (ids[hits[0]] if len(hits) == 1 else None)

    def _known(self) -> dict[str, RunRow]:
        """Rows in the database, by id; empty if it is missing or unusable."""
        path = self._home.index
        if path is None or not path.exists():
            return {}
        sql = f"SELECT {_NAMES}, checksum FROM {_TABLE}"
        with (
            suppress(sqlite3.Error, UnicodeDecodeError),
            closing(sqlite3.connect(path, timeout=10)) as database,
        ):
            rows = database.execute(sql).fetchall()
            return {row[0]: RunRow(*row[:-1]) for row in rows if row[-1] == _checksum(row[:-1])}
        return {}

    def _remember(self, rows: list[RunRow]) -> None:
        """Store rows for the next listing; skipped if the folder is not writable."""
        path = self._home.index
        if path is None:
            return
        marks = ", ".join("?" for _ in (*_COLUMNS, "checksum"))
        try:
            make_private(path)
            with closing(sqlite3.connect(path, timeout=10)) as database, database:
                database.execute("PRAGMA journal_mode=WAL")
                made = f"CREATE TABLE IF NOT EXISTS {_TABLE} ({_NAMES}, checksum, PRIMARY KEY (id))"
                database.execute(made)
                insert = f"INSERT OR REPLACE INTO {_TABLE} VALUES ({marks})"
                told = [astuple(row) for row in rows]
                database.executemany(insert, [(*row, _checksum(row)) for row in told])
        except (sqlite3.OperationalError, OverflowError, OSError) as error:
            log.debug("index.db is left as it is: %s", error)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            log.warning("%s is damaged (%s) and is made anew", path, error)
            for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                with suppress(OSError):
                    path.with_name(name).unlink()

    def _read(self, folder: Path) -> RunRow:
        size = (folder / "journal.jsonl").stat().st_size
        try:
            told = self._glance(folder)
            started, status = told.begun, told.status
        except JournalError as error:
            status = "running" if holder(folder) is not None else UNREADABLE
            return _unreadable(folder.name, status, str(error.message), size)
        seed_value, best_value = told.values
        spend, gain = told.spend, told.gain
        limit, used = nearest_limit(told)
        return RunRow(
            id=folder.name,
            recipe=started.recipe,
            spec=told.settings.spec.path,
            status=status,
            started=started.t,
            steps=len(told.rows),
            proposals=told.proposals,
            keeps=told.keeps,
            rollouts=spend.rollouts,
            usd=spend.usd,
            metric=told.metric,
            seed_value=seed_value,
            best_value=best_value,
            reason=told.stopped.message if told.stopped else "",
            gain=gain.mean if gain else None,
            low=gain.low if gain else None,
            high=gain.high if gain else None,
            limit=limit,
            used=used,
            elapsed=told.elapsed,
            spark=" ".join(f"{value:.4g}" for value in _staircase(told)),
            size=size,
            parent_run_id=str(started.request.get("parent_run_id") or ""),
        )


def _checksum(row: tuple[object, ...]) -> int:
    """Checksum of a row: SQLite does not notice a flipped bit."""
    return crc32(repr(row).encode("utf-8", "surrogatepass"))


def iterations_of(folder: Path, of: RunRow) -> list[RunRow]:
    """Runs of the finished iterations of a refinement, oldest first.

    Raises `JournalError` if a record of the journal is damaged.
    """
    path = folder / "journal.jsonl"
    state = fold_run(read_events(path), path).state
    root = str(state.started.facts.get(ITERATIONS, "")) if state.started else ""
    return [
        replace(
            of,
            id=one.run_id,
            recipe=AGENT_RUN,
            status=one.status,
            steps=0,
            proposals=0,
            keeps=0,
            rollouts=0,
            usd=0.0,  # counted in the refinement's own row
            seed_value=None,
            best_value=one.loss,
            reason="",
            gain=None,
            low=None,
            high=None,
            limit="",
            used=0.0,
            elapsed=one.seconds,
            spark="",
            parent_run_id=one.parent_run_id,
            refinement=of.id,
            iteration=one.k,
            folder=run_folder(root, one),
        )
        for one in attempts(reruns(state))
    ]


_INNER_RUNS: Mapping[str, Callable[[Path, RunRow], list[RunRow]]] = {REFINE: iterations_of}
"""Functions that list the runs inside a run, by recipe."""


def _glance(folder: Path) -> Glance:
    return Glance(folder).refresh()


def _unreadable(name: str, status: str, reason: str, size: int) -> RunRow:
    nothing = (0.0, 0, 0, 0, 0, 0.0, "", None, None)
    return RunRow(name, "", "", status, *nothing, reason, None, None, None, "", 0.0, 0.0, "", size)


def nearest_limit(told: Glance) -> tuple[str, float]:
    """Return the limit of a run's budget that is used up most, and its used share."""
    limits, spend = told.settings.budget, told.spend
    used = {
        "max_iterations": len(told.rows),
        "max_minutes": told.elapsed / 60,
        "max_usd": spend.usd,
        "max_rollouts": spend.rollouts,
    }
    shares = {
        name.removeprefix("max_"): done / limit
        for name, done in used.items()
        if (limit := getattr(limits, name))
    }
    return max(shares.items(), key=lambda share: share[1], default=("", 0.0))


def _staircase(told: Glance, points: int = 48) -> list[float]:
    """Value of the incumbent after each step; in long runs after every keep and some others."""
    now, found = told.values[0], list[float]()
    every = max(1, len(told.rows) // points)
    for row in told.rows:
        now = told.value(row.measured) if row.kept and row.measured is not None else now
        if now is not None and (row.step % every == 0 or row.kept):
            found.append(now)
    return found[-2 * points :]
