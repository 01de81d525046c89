"""Registry of versioned prompt artifacts of agent runs, in SQLite.

The tables are those of the source. Version 0 of an artifact is Kept's own text, which is in no
table. It is used if no version is active. Optimizations are recorded epoch by epoch, each once and
in one transaction.
"""

import json
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from kept import settings
from kept.errors import SetupError
from kept.store.candidate_files import database_trouble, is_private, make_folder, make_private
from kept.store.home import Home

FILE = "artifacts.db"
"""File name of the registry in a home; an experiment has its own file."""

VERSION = 1
"""Version of the file format, in `user_version`."""

OF_EXPERIMENT = "outer_loop.db"

_TABLES = """
CREATE TABLE IF NOT EXISTS artifact_versions (
  id INTEGER PRIMARY KEY, artifact_name TEXT NOT NULL, version INTEGER NOT NULL,
  content TEXT NOT NULL, parent_version INTEGER, created_at TEXT NOT NULL, epoch_id TEXT,
  is_active INTEGER NOT NULL DEFAULT 0, UNIQUE (artifact_name, version));
CREATE TABLE IF NOT EXISTS task_suites (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, tasks_json TEXT NOT NULL,
  baseline_artifacts_json TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS epochs (
  id TEXT PRIMARY KEY, suite_id TEXT NOT NULL, epoch_num INTEGER NOT NULL,
  started_at TEXT NOT NULL, completed_at TEXT, mean_loss REAL,
  parent_artifacts_json TEXT NOT NULL, child_artifacts_json TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS epoch_runs (
  epoch_id TEXT NOT NULL, run_id TEXT NOT NULL, task_name TEXT NOT NULL, loss REAL,
  scores_json TEXT NOT NULL, PRIMARY KEY (epoch_id, run_id));
"""

_DIGESTS = (
    "CREATE TABLE IF NOT EXISTS row_digests (row TEXT NOT NULL PRIMARY KEY, sha256 TEXT NOT NULL)"
)
"""Digest of every row at Kept's last write: SQLite does not detect flipped bits."""

_TABLE_NAMES = ("artifact_versions", "task_suites", "epochs", "epoch_runs")
_MADE = "SELECT 1 FROM sqlite_master WHERE name = 'artifact_versions'"


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an artifact."""

    name: str
    number: int
    content: str
    parent: int | None = None
    created: str = "1970-01-01T00:00:00Z"
    epoch: str = ""
    """Epoch that made it; empty if no optimization did."""
    active: bool = False


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task in an epoch."""

    run_id: str
    task: str
    loss: float | None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Tasks that the artifacts of a registry are optimized on."""

    id: str
    name: str
    tasks: Sequence[Mapping[str, object]]
    baseline: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Result of one epoch."""

    id: str
    suite: str
    number: int
    started: float
    """Unix time in seconds, as is `ended`."""
    ended: float
    loss: float | None
    before: Mapping[str, str]
    """Texts in use when it began, by artifact."""
    after: Mapping[str, str]
    """Texts that it tried; equal to `before` if nothing was proposed."""
    kept: bool
    """True if the tried texts become the incumbent."""
    uses: tuple[str, ...] = ()
    """Artifacts whose text in `after` becomes active."""
    reason: str = ""
    runs: Sequence[TaskRun] = ()


def registry_path(home: Home) -> Path:
    """Path of the registry of a project: `KEPT_ARTIFACTS`, or a file of its home."""
    return settings.artifacts_db() or home.path / FILE


class PromptRegistry:
    """Registry of prompt artifacts; the file is only opened, or created, when needed."""

    def __init__(
        self,
        path: Path,
        own: Mapping[str, str],
        begins: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.path = path
        self._own = own
        """Texts of version 0, by artifact."""
        self._begins = begins
        """Texts in use while the file does not exist, by artifact."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all artifacts."""
        return tuple(self._own)

    def active(self) -> dict[str, Version]:
        """Return the version in use of every artifact."""
        found = {one.name: one for one in self._rows("WHERE is_active") if one.name in self._own}
        return {name: found.get(name) or self._first(name, active=True) for name in self._own}

    def texts(self) -> dict[str, str]:
        """Return the text in use of every artifact."""
        return {name: version.content for name, version in self.active().items()}

    def versions(self, name: str) -> list[Version]:
        """Return all versions of an artifact, oldest first."""
        self._known(name)
        rows = self._rows("WHERE artifact_name = ? ORDER BY version", name)
        return [self._first(name, active=not any(row.active for row in rows)), *rows]

    def version(self, name: str, number: int) -> Version:
        """Return one version; raises `SetupError` if it does not exist."""
        found = {one.number: one for one in self.versions(name)}
        if number not in found:
            there = ", ".join(map(str, found))
            raise SetupError(f"`{name}` has no version {number}", hint=f"there are {there}")
        return found[number]

    def activate(self, name: str, number: int) -> Version:
        """Activate a version; return the one that was in use before."""
        self.version(name, number)
        before = self.active()[name]
        with self._writing() as database:
            _activate(database, name, number)
        return before

    def register(self, suite: Suite) -> None:
        """Store a suite, unless it is stored already."""
        row = (
            suite.id,
            suite.name,
            _json(suite.tasks),
            _json(suite.baseline),
            _stamp(datetime.now(UTC).timestamp()),
        )
        with self._writing() as database:
            database.execute("INSERT OR IGNORE INTO task_suites VALUES (?, ?, ?, ?, ?)", row)

    def record(self, epoch: Epoch) -> bool:
        """Store an epoch in one transaction; False if it is stored already."""
        with self._writing() as database:
            known = database.execute("SELECT 1 FROM epochs WHERE id = ?", (epoch.id,)).fetchone()
            if known is not None:
                return False
            changed = [name for name in self._own if epoch.before[name] != epoch.after[name]]
            parents = {name: self._number(database, name, epoch.before[name]) for name in self._own}
            tried = {name: self._ensured(database, name, epoch, parents[name]) for name in changed}
            # a version becomes active in the transaction that records why
            for name in epoch.uses:
                _activate(database, name, self._number(database, name, epoch.after[name]))
            self._tell(database, epoch, parents, tried)
        return True

    def _tell(
        self,
        database: sqlite3.Connection,
        epoch: Epoch,
        parents: Mapping[str, int],
        tried: Mapping[str, int],
    ) -> None:
        kind = "update" if epoch.kept else "rollback"
        events = [
            {"type": kind, "artifact": name, "from": parents[name], "to": number}
            for name, number in tried.items()
        ]
        proven = [name for name in epoch.uses if name not in tried]
        events += [{"type": "promotion", "artifact": name, "to": parents[name]} for name in proven]
        now = {**parents, **tried} if epoch.kept else dict(parents)
        child = {"artifacts": now, "events": events, "reason": epoch.reason}
        row = (
            epoch.id,
            epoch.suite,
            epoch.number,
            _stamp(epoch.started),
            _stamp(epoch.ended),
            epoch.loss,
            _json(parents),
            _json(child),
        )
        database.execute("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        database.executemany(
            "INSERT OR IGNORE INTO epoch_runs VALUES (?, ?, ?, ?, ?)",
            [(epoch.id, r.run_id, r.task, r.loss, _json(r.scores)) for r in epoch.runs],
        )

    def epochs(self) -> list[tuple[str, int, float | None, dict[str, object]]]:
        """Return id, number, loss and result of every epoch, oldest first."""
        sql = "SELECT id, epoch_num, mean_loss, child_artifacts_json FROM epochs ORDER BY rowid"
        with self._reading() as database:
            rows = database.execute(sql).fetchall() if database is not None else []
        return [(row[0], row[1], row[2], json.loads(row[3])) for row in rows]

    def _ensured(self, database: sqlite3.Connection, name: str, epoch: Epoch, parent: int) -> int:
        """Return the version with a text that an epoch tried; create it if needed."""
        text = epoch.after[name]
        found = self._find(database, name, text)
        if found is not None:
            return found
        newest = "SELECT COALESCE(MAX(version), 0) + 1 FROM artifact_versions"
        sql = f"{newest} WHERE artifact_name = ?"
        number: int = database.execute(sql, (name,)).fetchone()[0]
        database.execute(
            "INSERT INTO artifact_versions (artifact_name, version, content, parent_version,"
            " created_at, epoch_id, is_active) VALUES (?, ?, ?, ?, ?, ?, 0)",
            (name, number, text, parent, _stamp(epoch.ended), epoch.id),
        )
        return number

    def _number(self, database: sqlite3.Connection, name: str, text: str) -> int:
        """Return the version that has a text; a text from a user's file becomes a version first."""
        found = self._find(database, name, text)
        if found is not None:
            return found
        begun = Epoch(
            id="",
            suite="",
            number=0,
            started=0.0,
            ended=datetime.now(UTC).timestamp(),
            loss=None,
            before={},
            after={name: text},
            kept=False,
        )
        return self._ensured(database, name, begun, 0)

    def _find(self, database: sqlite3.Connection, name: str, text: str) -> int | None:
        if text == self._own[name]:
            return 0
        sql = (
            "SELECT version FROM artifact_versions WHERE artifact_name = ? AND content = ?"
            " ORDER BY is_active DESC, version DESC"
        )
        row = database.execute(sql, (name, text)).fetchone()
        return None if row is None else int(row[0])

    def _first(self, name: str, *, active: bool) -> Version:
        return Version(name, 0, self._own[name], active=active)

    def _known(self, name: str) -> None:
        if name not in self._own:
            raise SetupError(
                f"`{name}` is no prompt artifact", hint=f"there are {', '.join(self._own)}"
            )

    def _rows(self, where: str, *values: object) -> list[Version]:
        columns = (
            "artifact_name, version, content, parent_version, created_at,"
            " COALESCE(epoch_id, ''), is_active = 1"
        )
        with self._reading() as database:
            if database is None:
                return [one for one in self._first_rows() if not values or one.name in values]
            rows = database.execute(f"SELECT {columns} FROM artifact_versions {where}", values)
            return [Version(*row) for row in rows]

    def check(self) -> None:
        """Raise `SetupError` if the file is damaged; it need not exist."""
        with self._reading():
            pass

    def _verify(self, database: sqlite3.Connection) -> None:
        if what := damage_of(database):
            hint = "the file was changed by something else: restore it from a copy"
            raise SetupError(f"{self.path}: {what}", hint=hint)

    def _first_rows(self) -> list[Version]:
        """Return the initial versions: creating the file must not change the texts in use."""
        found = {name: text for name, text in self._begins().items() if name in self._own}
        return [
            Version(name, 1, text, parent=0, active=True)
            for name, text in found.items()
            if text != self._own[name]
        ]

    def _make(self, database: sqlite3.Connection) -> None:
        """Create missing tables, in the current transaction."""
        new = database.execute(_MADE).fetchone() is None
        for table in (*_TABLES.split(";"), _DIGESTS, f"PRAGMA user_version = {VERSION}"):
            database.execute(table)
        for one in self._first_rows() if new else ():
            database.execute(
                "INSERT INTO artifact_versions (artifact_name, version, content, parent_version,"
                " created_at, is_active) VALUES (?, ?, ?, ?, ?, 1)",
                (one.name, one.number, one.content, 0, _stamp(datetime.now(UTC).timestamp())),
            )

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection | None]:
        """Open the database to read; None if it does not exist: reading must not create it."""
        if not self.path.exists():
            yield None
            return
        with self._open() as database:
            # one consistent snapshot, even if another process writes
            database.execute("BEGIN")
            self._verify(database)
            yield database if database.execute(_MADE).fetchone() else None

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        try:
            make_folder(self.path.parent)
            if is_private(self.path):
                make_private(self.path)
        except OSError as error:
            raise SetupError(f"cannot write to {self.path.parent}: {error.strerror}") from error
        with self._open() as database:
            database.execute("PRAGMA journal_mode=WAL")
            # take the write lock now: upgrading a read lock later fails instead of waiting
            database.execute("BEGIN IMMEDIATE")
            try:
                self._verify(database)
                self._make(database)
                yield database
                # rewrite all digests, including rows that other tools added since
                database.execute("DELETE FROM row_digests")
                database.executemany(
                    "INSERT INTO row_digests VALUES (?, ?)", _row_digests(database)
                )
            except BaseException:
                database.rollback()
                raise
            database.commit()

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._useless(error) from error
        try:
            yield database
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._useless(error) from error
        finally:
            database.close()

    def _useless(self, error: Exception) -> SetupError:
        hint = "KEPT_ARTIFACTS names another file; without one, Kept's own texts are used"
        why, hint = database_trouble(self.path, error, hint)
        return SetupError(f"cannot use the prompt artifacts in {self.path}: {why}", hint=hint)


def damage_of(database: sqlite3.Connection) -> str:
    """Return the damage of a database; empty if none. Rows added by other tools are accepted."""
    told = str(database.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if told != "ok":
        return told.replace("\n", " ")
    # a damaged header may also show a larger version
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        return f"it is of version {version}, which a newer Kept wrote or damage"
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    tables = {name for (name,) in rows}
    if "row_digests" not in tables:
        return ""
    lacking = [name for name in _TABLE_NAMES if name not in tables]
    if lacking:
        return f"the table `{lacking[0]}` is missing"
    now = dict(_row_digests(database))
    for row, digest in database.execute("SELECT row, sha256 FROM row_digests"):
        if now.get(row) != digest:
            return f"{row} is not what was written"
    return ""


def _row_digests(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return name and digest of every row."""
    found: list[tuple[str, str]] = []
    for table in _TABLE_NAMES:
        for number, *row in database.execute(f"SELECT rowid, * FROM {table}"):
            name = f"row {number} of `{table}`"
            if table == "artifact_versions":
                name = f"version {row[2]} of `{row[1]}`"
            digest = sha256(repr((number, *row)).encode("utf-8", "surrogatepass")).hexdigest()
            found.append((name, digest))
    return found


def _activate(database: sqlite3.Connection, name: str, number: int) -> None:
    database.execute(
        "UPDATE artifact_versions SET is_active = (version = ?) WHERE artifact_name = ?",
        (number, name),
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _stamp(t: float) -> str:
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
