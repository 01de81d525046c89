"""The folders of experiments and their tasks, as the source lays them out.

exp_<8 hex>/experiment.json
shared/{memory,dynamic_tools,skills}
tasks/NNN-slug/{task.json,seed,BEST,refinements,optimizations}
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from kept.errors import SetupError
from kept.orchestrator.run_folder.files import read_object, rows_in, text_in
from kept.store.files import make_folder, write_whole

EXPERIMENTS = "experiments"
"""The folder of a home that they are kept in."""

LONGEST = 50
"""Characters of a slug."""

Role = Literal["primary", "reference"]
Mode = Literal["seed", "continuation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """What a task takes over from another of its experiment."""

    from_task: str
    role: Role
    paths: tuple[str, ...] = ()
    """Files of that task's best; none for all of them."""

    def document(self) -> dict[str, Any]:
        """As `task.json` has it: a whole bundle, or paths, and never both."""
        told: dict[str, Any] = {"from_task": self.from_task, "role": self.role}
        return {**told, "paths": list(self.paths)} if self.paths else {**told, "bundle": "BEST"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task of an experiment."""

    task_id: str
    experiment_id: str
    task_number: int
    mode: Mode
    prompt: str
    """What is to be done; of a continuation, what somebody wants to be different."""
    inputs: tuple[TaskInput, ...]
    created_at: str
    folder: Path

    @property
    def target(self) -> str:
        """How it is named from anywhere."""
        return f"{self.experiment_id}:{self.task_id}"

    @property
    def best(self) -> Path:
        """Where its best deliverable lies."""
        return self.folder / "BEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Tasks that belong together."""

    experiment_id: str
    name: str
    goal: str
    created_at: str
    task_order: tuple[str, ...]
    folder: Path

    def task(self, name: str) -> Task:
        """One of its tasks, by its id or its number."""
        found = [one for one in self.task_order if one == name or one.partition("-")[0] == name]
        if not found:
            known = ", ".join(self.task_order) or "none"
            raise SetupError(
                f"experiment {self.experiment_id} has no task `{name}`", hint=f"it has {known}"
            )
        return read_task(self.folder / "tasks" / found[0])


def create_experiment(root: Path, name: str, goal: str, at: str) -> Experiment:
    """A new experiment below a folder."""
    salt = f"{name}\0{goal}\0{at}"
    digests = (hashlib.sha256(f"{salt}{n}".encode()).hexdigest() for n in count())
    id_ = next(one for d in digests if not (root / (one := f"exp_{d[:8]}")).exists())
    folder = root / id_
    for part in ("shared/memory", "shared/dynamic_tools", "shared/skills", "tasks"):
        make_folder(folder / part)
    made = Experiment(
        experiment_id=id_, name=name, goal=goal, created_at=at, task_order=(), folder=folder
    )
    _write_experiment(made)
    return made


def read_experiment(folder: Path) -> Experiment:
    """One that is there; raises `SetupError` where none is."""
    told = read_object(folder / "experiment.json")
    if told is None:
        raise SetupError(f"there is no experiment in {folder}", hint="`kept experiment list`")
    return Experiment(
        experiment_id=text_in(told.get("experiment_id")) or folder.name,
        name=text_in(told.get("name")),
        goal=text_in(told.get("goal")),
        created_at=text_in(told.get("created_at")),
        task_order=tuple(text_in(one) for one in told.get("task_order") or ()),
        folder=folder,
    )


def target_of(root: Path, text: str) -> tuple[Experiment, Task]:
    """The experiment and the task that `EXP:TASK` names; a `SetupError` where there is none."""
    experiment_id, colon, name = text.partition(":")
    if not colon:
        raise SetupError(f"`{text}` names no task", hint="write EXP:TASK, as in exp_0123abcd:001")
    of = read_experiment(root / experiment_id)
    return of, of.task(name)


def all_experiments(root: Path) -> list[Experiment]:
    """Every experiment below a folder, by when it was made."""
    folders = [path.parent for path in root.glob("exp_*/experiment.json")]
    found = map(read_experiment, folders)
    return sorted(found, key=lambda one: (one.created_at, one.experiment_id))


def delete_experiment(experiment: Experiment) -> None:
    """Remove one, with all that is in it."""
    shutil.rmtree(experiment.folder)


def add_task(
    experiment: Experiment, prompt: str, inputs: Sequence[TaskInput], mode: Mode, at: str
) -> Task:
    """One more task of an experiment; its inputs have been checked."""
    # from the disk: somebody else may have added one since
    experiment = read_experiment(experiment.folder)
    number = 1 + max((int(one[:3]) for one in experiment.task_order), default=0)
    id_ = f"{number:03d}-{slug_of(prompt)}"
    folder = experiment.folder / "tasks" / id_
    for part in ("seed", "refinements", "optimizations"):
        make_folder(folder / part)
    task = Task(
        task_id=id_,
        experiment_id=experiment.experiment_id,
        task_number=number,
        mode=mode,
        prompt=prompt,
        inputs=tuple(inputs),
        created_at=at,
        folder=folder,
    )
    _write_json(folder / "task.json", _task_document(task))
    order = (*experiment.task_order, id_)
    told = {**_experiment_document(experiment), "task_order": list(order)}
    _write_json(experiment.folder / "experiment.json", told)
    return task


def read_task(folder: Path) -> Task:
    """A task that is there; raises `SetupError` where none is."""
    told = read_object(folder / "task.json")
    if told is None:
        raise SetupError(f"there is no task in {folder}")
    mode: Mode = "continuation" if told.get("mode") == "continuation" else "seed"
    inputs = [
        TaskInput(
            from_task=text_in(row.get("from_task")),
            role="primary" if row.get("role") == "primary" else "reference",
            paths=tuple(text_in(path) for path in row.get("paths") or ()),
        )
        for row in rows_in(told.get("inputs"))
    ]
    return Task(
        task_id=text_in(told.get("task_id")) or folder.name,
        experiment_id=text_in(told.get("experiment_id")),
        task_number=int(told.get("task_number") or 0),
        mode=mode,
        prompt=text_in(told.get("user_feedback" if mode == "continuation" else "user_prompt")),
        inputs=tuple(inputs),
        created_at=text_in(told.get("created_at")),
        folder=folder,
    )


def slug_of(text: str) -> str:
    """A text as a part of a name."""
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:LONGEST].strip("-")
    return slug or "task"


def _task_document(task: Task) -> dict[str, Any]:
    key = "user_feedback" if task.mode == "continuation" else "user_prompt"
    return {
        "task_id": task.task_id,
        "experiment_id": task.experiment_id,
        "task_number": task.task_number,
        "mode": task.mode,
        key: task.prompt,
        "inputs": [one.document() for one in task.inputs],
        "created_at": task.created_at,
    }


def _experiment_document(experiment: Experiment) -> dict[str, Any]:
    told = asdict(experiment)
    told.pop("folder")
    return {**told, "task_order": list(experiment.task_order)}


def _write_experiment(experiment: Experiment) -> None:
    _write_json(experiment.folder / "experiment.json", _experiment_document(experiment))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")
