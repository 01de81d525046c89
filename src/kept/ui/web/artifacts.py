"""Prompt artifacts and the epochs that changed them, from SQLite files with the source's tables.

Opens files for reading alone. A file that is damaged, or lacks a table, has nothing to show.
"""

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kept.core.parsing import parse_json
from kept.orchestrator.loss import first_number
from kept.orchestrator.prompt_registry import damage_of
from kept.orchestrator.run_folder.files import rows_in
from kept.orchestrator.texts import own_artifacts
from kept.settings import variable
from kept.store.home import Home
from kept.ui.web.diffing import FileChange, side_by_side

log = logging.getLogger("kept")

MOST = 200
"""Epochs that are shown, the newest."""
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one artifact."""

    name: str
    number: int
    content: str
    parent: int | None
    created: str
    epoch: str
    active: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What an epoch did to one artifact."""

    name: str
    old: int
    new: int
    rollback: bool
    why: str
    diff: tuple[FileChange, ...]


@dataclass(frozen=True, slots=True)
class EpochRun:
    """One task of a suite in one epoch."""

    run: str
    task: str
    loss: float | None


@dataclass(frozen=True, slots=True)
class EpochShown:
    """One time through a suite."""

    id: str
    number: int
    suite: str
    started: str
    completed: str
    loss: float | None
    runs: tuple[EpochRun, ...]
    changes: tuple[Change, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Registry:
    """One file of prompt artifacts."""

    path: Path
    name: str
    """Where it lies, for people."""
    versions: tuple[Version, ...]
    """Of every artifact, the newest first."""
    epochs: tuple[EpochShown, ...]
    """The newest first."""

    @property
    def active(self) -> list[Version]:
        """The versions that runs have, by name."""
        return sorted((one for one in self.versions if one.active), key=lambda one: one.name)

    @property
    def losses(self) -> list[tuple[int, float]]:
        """The mean loss of each epoch, in order."""
        known = enumerate((one.loss for one in reversed(self.epochs)), 1)
        return [(n, loss) for n, loss in known if loss is not None]


def registries(home: Home) -> list[Registry]:
    """Every registry of a home and of its experiments."""
    root = home.path / "experiments"
    places = [home.path, *(sorted(root.glob("exp_*")) if root.is_dir() else [])]
    paths = [path for place in places for path in sorted(place.glob("*.db")) if path != home.index]
    files = {path: str(path.relative_to(home.path)) for path in paths if not path.is_symlink()}
    elsewhere = variable("KEPT_ARTIFACTS")
    if elsewhere:
        files = {Path(elsewhere).expanduser(): elsewhere, **files}
    found = (read_registry(path, name) for path, name in files.items() if path.is_file())
    return [one for one in found if one is not None]


def read_registry(path: Path, name: str) -> Registry | None:
    """A file with prompt artifacts; None for any other."""
    # one that only reads cannot remove the files that SQLite makes beside such a database
    busy = any(path.with_name(f"{path.name}-{end}").exists() for end in ("wal", "journal"))
    address = f"{path.resolve().as_uri()}?mode=ro{'' if busy else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=2)) as database:
            database.row_factory = sqlite3.Row
            if "artifact_versions" not in _tables(database):
                return None
            if what := damage_of(database):
                log.warning("%s is damaged, and is not shown: %s", path, what)
                return None
            versions = tuple(_versions(database))
            return Registry(path, name, versions, tuple(_epochs(database, versions)))
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def _tables(database: sqlite3.Connection) -> set[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {str(row[0]) for row in rows}


def _rows(database: sqlite3.Connection, sql: str, *values: object) -> Iterator[Mapping[str, Any]]:
    for row in database.execute(sql, values):
        yield {key: row[key] for key in row.keys()}  # noqa: SIM118 # a row is no mapping


def _versions(database: sqlite3.Connection) -> Iterator[Version]:
    sql = "SELECT * FROM artifact_versions ORDER BY artifact_name, version DESC"
    for row in _rows(database, sql):
        yield Version(
            _text(row.get("artifact_name")),
            _whole(row.get("version")) or 0,
            _text(row.get("content")),
            _whole(row.get("parent_version")),
            _text(row.get("created_at")),
            _text(row.get("epoch_id")),
            bool(row.get("is_active")),
        )


def _epochs(database: sqlite3.Connection, versions: tuple[Version, ...]) -> Iterator[EpochShown]:
    there = _tables(database)
    if "epochs" not in there:
        return
    suites = {
        row["id"]: _text(row.get("name"))
        for row in (_rows(database, "SELECT * FROM task_suites") if "task_suites" in there else ())
    }
    contents = {(one.name, one.number): one.content for one in versions}
    own = own_artifacts()
    contents = {**{(name, 0): text for name, text in own.items()}, **contents}
    for row in _rows(database, "SELECT * FROM epochs ORDER BY rowid DESC LIMIT ?", MOST):
        runs = (
            _rows(database, "SELECT * FROM epoch_runs WHERE epoch_id = ?", row["id"])
            if "epoch_runs" in there
            else ()
        )
        yield EpochShown(
            _text(row.get("id")),
            _whole(row.get("epoch_num")) or 0,
            suites.get(row.get("suite_id"), ""),
            _text(row.get("started_at")),
            _text(row.get("completed_at")),
            first_number(row.get("mean_loss")),
            tuple(
                EpochRun(
                    _text(one.get("run_id")),
                    _text(one.get("task_name")),
                    first_number(one.get("loss")),
                )
                for one in runs
            ),
            tuple(_changes(row, contents)),
            _text(_object(row.get("child_artifacts_json")).get("reason")),
        )


def _changes(row: Mapping[str, Any], contents: Mapping[tuple[str, int], str]) -> Iterator[Change]:
    """What an epoch tried, by what it told; else what is another version after it than before."""
    child = _object(row.get("child_artifacts_json"))
    before = _numbers(_object(row.get("parent_artifacts_json")))
    after = _numbers(child)
    told = list(rows_in(child.get("events")))
    for one in told:
        name = _text(_first(one, "artifact", "artifact_name", "name"))
        old = _whole(_first(one, "from", "from_version", "parent_version"))
        new = _whole(_first(one, "to", "to_version", "new_version", "version"))
        back = _text(_first(one, "type", "kind", "event")) == "rollback"
        if name and new is not None:
            old = before.get(name, 0) if old is None else old
            why = _text(_first(one, "rationale", "why", "reason"))
            yield Change(name, old, new, back, why, _diff(name, (old, new), contents))
    for name in sorted(after) if not told else ():
        old, new = before.get(name, 0), after[name]
        if old != new:
            yield Change(name, old, new, new < old, "", _diff(name, (old, new), contents))


def _diff(
    name: str, numbers: tuple[int, int], contents: Mapping[tuple[str, int], str]
) -> tuple[FileChange, ...]:
    old, new = ({name: contents.get((name, number), "")} for number in numbers)
    return tuple(side_by_side(old, new))


def _first(row: Mapping[str, Any], *names: str) -> object:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _numbers(told: Mapping[str, Any]) -> dict[str, int]:
    inside = told.get("artifacts", told)
    rows = cast("Mapping[str, Any]", inside) if isinstance(inside, dict) else _NOTHING
    found = {name: _whole(number) for name, number in rows.items()}
    return {name: number for name, number in found.items() if number is not None}


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, str):
        return _NOTHING
    try:
        told: object = parse_json(value)
    except ValueError:
        return _NOTHING
    return cast("Mapping[str, Any]", told) if isinstance(told, dict) else _NOTHING


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)
