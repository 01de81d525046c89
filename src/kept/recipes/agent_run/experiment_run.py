"""Agent run of an experiment's task: its inputs from other tasks, and export to the task."""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kept.core.event import Event, RunStopped
from kept.core.ports import Journal, Sink
from kept.core.state import State
from kept.core.text import one_line
from kept.errors import SetupError
from kept.orchestrator.experiments import (
    EXPERIMENTS,
    Task,
    carried,
    chosen,
    held_by,
    offer_best,
    target_of,
)
from kept.orchestrator.refine.best import FOLLOW
from kept.orchestrator.refine.session import session_stamp
from kept.orchestrator.run_folder.write import Layout, sweep, write_run
from kept.recipes.agent_run.journal_view import agent_run_of, deliveries_of
from kept.store.candidate_files import write_below
from kept.store.home import Home
from kept.store.journal import RunJournal
from kept.store.reader import Run

TARGET = "target="
"""Prefix of the tag that links a run to a task."""

PRIMARY, REFERENCE = "primary", "reference"
"""Input folders of a continuation."""

_HEAD = 200
"""Characters of a reference that the manager sees."""

log = logging.getLogger("kept")


def tag_of(task: Task) -> str:
    """Tag of the runs of a task."""
    return f"{TARGET}{task.target}"


def targets_in(tags: Sequence[str]) -> list[str]:
    """Tasks that the tags of a run name, each as `EXP:TASK`."""
    return [tag.removeprefix(TARGET) for tag in tags if tag.startswith(TARGET)]


def task_named(folder: Path, target: str) -> Task:
    """Task that `EXP:TASK` names, seen from a folder."""
    return target_of(Home.find(folder).path / EXPERIMENTS, target)[1]


def lay_inputs(folder: Path, target: str) -> tuple[tuple[str, ...], str]:
    """Write a task's inputs from other tasks; return their folders and the manager's brief."""
    experiment, task = target_of(Home.find(folder).path / EXPERIMENTS, target)
    given = carried(experiment, task)
    root = task.folder / "seed" / "inputs"
    shutil.rmtree(root, ignore_errors=True)
    both = {PRIMARY: given.primary, REFERENCE: given.references}
    for name, files in both.items():
        if files:
            write_below(root / name, files)
    return tuple(str(root / name) for name, files in both.items() if files), _brief(task, both)


def _brief(task: Task, both: "dict[str, dict[str, bytes]]") -> str:
    if task.mode != "continuation":
        return ""
    rows = [
        "## CONTINUATION",
        "",
        "This task goes on from what earlier ones delivered; it does not start from nothing.",
        "",
        f"To work on, in `input/{PRIMARY}/`:",
        *(f"  - {path} ({len(data)} bytes)" for path, data in both[PRIMARY].items()),
    ]
    if both[REFERENCE]:
        rows += ["", f"To look at, in `input/{REFERENCE}/`:"]
        for path, data in both[REFERENCE].items():
            head = one_line(data[: 4 * _HEAD].decode("utf-8", "replace"), _HEAD)
            rows.append(f"  - {path} ({len(data)} bytes): {head}")
    rows += ["", "The task says what is to be different. Leave the rest as it is."]
    return "\n".join(rows)


def task_views(folder: Path, tags: Sequence[str]) -> tuple[Callable[[Journal], Sink], ...]:
    """Views that write a run to its tasks; empty for a run without a task."""
    targets = targets_in(tags)
    return tuple(lambda journal, t=one: TaskRun(task_named(folder, t), journal) for one in targets)


class TaskRun:
    """Sink that writes a finished run to its task, and offers it as the task's best."""

    def __init__(self, task: Task, journal: Journal) -> None:
        self._task = task
        self._folder = journal.folder if isinstance(journal, RunJournal) else None

    def on_event(self, event: Event, state: State) -> None:
        """Write the run when it stops."""
        if not isinstance(event, RunStopped) or self._folder is None:
            return
        with Run(self._folder) as run:
            record = agent_run_of(run)
            *before, files = deliveries_of(run) or [{}]
        if record is None:
            return
        below = self._task.folder / "seed"
        layout = Layout(f"workspace/runs/{record.run_id}")
        try:
            sweep(below, record.run_id, before, layout)
            write_run(below, record, files, layout)
            if files:
                self._offer(below / layout.run)
        except SetupError as error:
            log.info("%s", error.message)  # the run failed, and cannot be the best
        except OSError as error:
            log.warning("cannot write %s: %s", error.filename, error.strerror)

    def _offer(self, folder: Path) -> None:
        if offer_best(self._task, folder, session_stamp(time.time())):
            return
        held = held_by(self._task)
        if held is not None and held.measure != FOLLOW and not chosen(self._task):
            log.warning("%s is left as it is: %s", self._task.best, held.stays(FOLLOW))
