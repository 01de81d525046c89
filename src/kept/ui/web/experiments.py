"""Pages and JSON of experiments and prompt artifacts.

Experiments are a tree: their tasks, and the runs of each with its best. Prompt artifacts and
epochs are read from SQLite files with the source's tables, opened read-only. A damaged file, or
one without the tables, shows nothing.
"""

import logging
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from kept.core.parsing import parse_json
from kept.core.untyped import is_dict
from kept.errors import SetupError
from kept.orchestrator.experiments import Experiment, Task, all_experiments, read_task
from kept.orchestrator.loss import first_number
from kept.orchestrator.prompt_registry import damage_of
from kept.orchestrator.run_folder.read import (
    COMPLETION,
    files_below,
    part,
    read_object,
    read_run,
    rows_in,
    text_in,
)
from kept.orchestrator.toolkit import own_artifacts
from kept.settings import variable
from kept.store.home import Home
from kept.ui.web.charts import LossShown, loss_shown, score_chart
from kept.ui.web.refine_sessions import attempt_steps, task_documents, tasks_of
from kept.ui.web.site import Site
from kept.ui.web.step_page import FileChange, side_by_side

log = logging.getLogger("kept")

MAX_EPOCHS = 200
"""Maximum number of epochs shown, the newest."""
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
    """Change of one artifact in an epoch."""

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
    """One pass through a suite."""

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
    """One database of prompt artifacts."""

    path: Path
    name: str
    """Path in display form."""
    versions: tuple[Version, ...]
    """Versions of every artifact, newest first."""
    epochs: tuple[EpochShown, ...]
    """Epochs, newest first."""

    @property
    def active(self) -> list[Version]:
        """Active versions, which runs use, by name."""
        return sorted((one for one in self.versions if one.active), key=lambda one: one.name)

    @property
    def losses(self) -> list[tuple[int, float]]:
        """Mean loss of each epoch, in order."""
        known = enumerate((one.loss for one in reversed(self.epochs)), 1)
        return [(n, loss) for n, loss in known if loss is not None]


def registries(home: Home) -> list[Registry]:
    """Registries of a home and of its experiments."""
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
    """Registry in a file; None if the file is not one or is damaged."""
    # a read-only connection cannot remove the side files of SQLite, so avoid creating them
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
    # version 0 stands for the built-in prompt
    own = own_artifacts()
    contents = {**{(name, 0): text for name, text in own.items()}, **contents}
    for row in _rows(database, "SELECT * FROM epochs ORDER BY rowid DESC LIMIT ?", MAX_EPOCHS):
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
    """Changes that an epoch recorded; without a record, versions that differ before and after."""
    child = _object(row.get("child_artifacts_json"))
    before = _numbers(_object(row.get("parent_artifacts_json")))
    after = _numbers(child)
    told = list(rows_in(child.get("events")))
    for one in told:
        # several spellings of each key are accepted
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
    rows = inside if is_dict(inside) else _NOTHING
    found = {name: _whole(number) for name, number in rows.items()}
    return {name: number for name, number in found.items() if number is not None}


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, str):
        return _NOTHING
    try:
        told: object = parse_json(value)
    except ValueError:
        return _NOTHING
    return told if is_dict(told) else _NOTHING


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value)


MAX_RUNS = 100
"""Maximum number of runs of a task that are shown."""


@dataclass(frozen=True, slots=True)
class RunShown:
    """A run of a task."""

    id: str
    part: str
    """Folder of the run within the task: `seed`, `refinements` …"""
    status: str
    loss: LossShown | None
    best: bool


@dataclass(frozen=True, slots=True)
class TaskShown:
    """A task with its runs."""

    task: Task
    runs: tuple[RunShown, ...]
    left_out: int
    best_run: str
    best_loss: float | None
    chosen: str
    """Reason for the choice of the best run."""
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExperimentShown:
    """An experiment with its tasks."""

    experiment: Experiment
    tasks: tuple[TaskShown, ...]
    broken: tuple[str, ...]
    """Tasks that cannot be read."""

    @property
    def runs(self) -> int:
        """Number of runs in all tasks."""
        return sum(len(task.runs) + task.left_out for task in self.tasks)


REASONS = {"auto_loss": "the least loss", "user_override": "somebody's choice"}


def experiments_view(home: Home) -> list[ExperimentShown]:
    """Every experiment, newest first."""
    return [_shown(one) for one in reversed(all_experiments(home.path / "experiments"))]


def _shown(experiment: Experiment) -> ExperimentShown:
    root = experiment.folder / "tasks"
    # list existing folders, sorted by the experiment's order; names from files never become paths
    order = {name: n for n, name in enumerate(experiment.task_order)}
    folders = [one for one in root.iterdir() if one.is_dir()] if root.is_dir() else []
    folders.sort(key=lambda one: (order.get(one.name, len(order)), one.name))
    tasks: list[TaskShown] = []
    broken: list[str] = []
    for folder in folders:
        try:
            tasks.append(_task(read_task(folder)))
        except (SetupError, ValueError, TypeError):
            broken.append(folder.name)
    return ExperimentShown(experiment, tuple(tasks), tuple(broken))


def _task(task: Task) -> TaskShown:
    manifest = read_object(task.best / "manifest.json") or {}
    best = text_in(manifest.get("winner_run_id"))
    paths = sorted(task.folder.rglob(COMPLETION))
    inside = [path.parent for path in paths if task.best not in path.parents]
    held = files_below(task.best) if task.best.is_dir() else {}
    return TaskShown(
        task,
        tuple(_run(folder, task.folder, best) for folder in inside[:MAX_RUNS]),
        max(0, len(inside) - MAX_RUNS),
        best,
        first_number(manifest.get("loss"), part(manifest, "loss_breakdown").get("total")),
        REASONS.get(text_in(manifest.get("reason")), ""),
        tuple(path for path in held if path != "manifest.json"),
    )


def _run(folder: Path, task: Path, best: str) -> RunShown:
    where = folder.relative_to(task).parts
    try:
        run = read_run(folder)
    except SetupError:
        return RunShown(folder.name, where[0] if where else "", "unreadable", None, False)
    return RunShown(
        run.run_id,
        where[0] if where else "",
        run.status,
        loss_shown(run.loss.parts()),
        run.run_id == best,
    )


def tree_json(shown: list[ExperimentShown]) -> list[Mapping[str, object]]:
    """Experiments as a JSON document."""
    return [
        {
            "experiment_id": one.experiment.experiment_id,
            "name": one.experiment.name,
            "goal": one.experiment.goal,
            "created_at": one.experiment.created_at,
            "tasks": [
                {
                    "task_id": task.task.task_id,
                    "mode": task.task.mode,
                    "prompt": task.task.prompt,
                    "best_run_id": task.best_run or None,
                    "best_loss": task.best_loss,
                    "runs": [
                        {
                            "run_id": run.id,
                            "part": run.part,
                            "status": run.status,
                            "loss": run.loss.total if run.loss else None,
                        }
                        for run in task.runs
                    ],
                }
                for task in one.tasks
            ],
        }
        for one in shown
    ]


def add_experiments(app: FastAPI, site: Site) -> None:
    """Register the routes of experiments and prompt artifacts."""

    @app.get("/experiments", response_class=HTMLResponse)
    def experiments() -> HTMLResponse:
        home = site.runs.home
        own = {folder.name for folder in home.folders()}
        shown = experiments_view(home)
        found = [one for task in tasks_of(home) for one in task_documents(task)]
        return site.page(
            "experiments.html",
            title="experiments",
            shown=shown,
            own=own,
            # for every attempt in a task's refinements: its refinement and step
            attempts=attempt_steps(found, site.seeds.all_refinements()),
            registries=registries(home),
        )

    @app.get("/prompts", response_class=HTMLResponse)
    def prompts() -> HTMLResponse:
        found = registries(site.runs.home)
        own = {folder.name for folder in site.runs.home.folders()}
        charts = {one.name: score_chart(one.losses, "mean loss", "epoch") for one in found}
        return site.page(
            "prompts.html", title="prompt artifacts", registries=found, charts=charts, own=own
        )

    @app.get("/api/experiments")
    def tree() -> list[Mapping[str, object]]:
        return tree_json(experiments_view(site.runs.home))

    @app.get("/api/prompts")
    def artifacts() -> list[Mapping[str, object]]:
        return [_json(one) for one in registries(site.runs.home)]


def _json(one: Registry) -> Mapping[str, object]:
    return {
        "registry": one.name,
        "active": {version.name: version.number for version in one.active},
        "epochs": [
            {
                "id": epoch.id,
                "epoch_num": epoch.number,
                "suite": epoch.suite,
                "mean_loss": epoch.loss,
                "runs": [
                    {"run_id": run.run, "task_name": run.task, "loss": run.loss}
                    for run in epoch.runs
                ],
                "changes": [
                    {
                        "artifact": change.name,
                        "from": change.old,
                        "to": change.new,
                        "rollback": change.rollback,
                    }
                    for change in epoch.changes
                ],
            }
            for epoch in one.epochs
        ],
    }
