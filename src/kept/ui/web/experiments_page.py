"""Experiments as a tree: their tasks, and the runs of each with the best of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.errors import SetupError
from kept.orchestrator.folders import Experiment, Task, all_experiments, read_task
from kept.orchestrator.loss import first_number
from kept.orchestrator.run_folder.files import part, read_object, text_in
from kept.orchestrator.run_folder.places import COMPLETION, files_below
from kept.orchestrator.run_folder.read import read_run
from kept.store.home import Home
from kept.ui.web.loss_bar import LossShown, loss_shown

MOST = 100
"""Runs of a task that are shown."""


@dataclass(frozen=True, slots=True)
class RunShown:
    """A run of a task."""

    id: str
    part: str
    """Which part of the task it is of: `seed`, `refinements` …"""
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
    """Why its best is that."""
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
        """How many there are."""
        return sum(len(task.runs) + task.left_out for task in self.tasks)


REASONS = {"auto_loss": "the least loss", "user_override": "somebody's choice"}


def experiments_view(home: Home) -> list[ExperimentShown]:
    """Every experiment, the newest first."""
    return [_shown(one) for one in reversed(all_experiments(home.path / "experiments"))]


def _shown(experiment: Experiment) -> ExperimentShown:
    root = experiment.folder / "tasks"
    # what is there, in the order that the experiment tells; no name of a file is made a path
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
        tuple(_run(folder, task.folder, best) for folder in inside[:MOST]),
        max(0, len(inside) - MOST),
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
    """The same for programs."""
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
