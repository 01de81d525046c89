"""Experiments: folder layout, tasks that build on others, best runs, refinements.

The layout is that of the source:

    exp_<8 hex>/experiment.json
    shared/{memory,dynamic_tools,skills}
    tasks/NNN-slug/{task.json,seed,BEST,refinements,optimizations}

Tasks may continue others (rule R37). A run with a strictly lower loss replaces the best of a
task. A best chosen by the user stays until the user chooses again. Losses are compared only if
measured alike. Nothing is removed before its successor exists.

The best of a refinement becomes the best of its task. Its sessions lie below it:

    refinements/session_<ts>/session.json   a session, with its iterations beside it
    refinements/session_<ts>.json           the same, for readers that list sessions
    refinements/session.json                pointer to the latest session
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Literal

from kept.core.text import encoded
from kept.errors import SetupError
from kept.orchestrator.loss import first_number
from kept.orchestrator.refine.attempt import Made
from kept.orchestrator.refine.best import FOLLOW, Held, Winner, alone, recover, replace_best
from kept.orchestrator.refine.session import Session, free_name, session_stamp
from kept.orchestrator.run_folder.read import (
    FinishedRun,
    files_below,
    read_object,
    read_run,
    rows_in,
    text_in,
)
from kept.store.candidate_files import make_folder, write_whole
from kept.store.home import Home

EXPERIMENTS = "experiments"
"""Folder of the experiments in a home."""

LONGEST = 50
"""Maximum characters of a slug."""

Role = Literal["primary", "reference"]
Mode = Literal["seed", "continuation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """Files that a task takes over from another task of its experiment."""

    from_task: str
    role: Role
    paths: tuple[str, ...] = ()
    """Files of that task's best; empty for all of them."""

    def document(self) -> dict[str, Any]:
        """Return the entry of `task.json`: either the whole bundle or paths."""
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
    """Task text; for a continuation, the feedback of the user."""
    inputs: tuple[TaskInput, ...]
    created_at: str
    folder: Path

    @property
    def target(self) -> str:
        """Full name of the task: `EXP:TASK`."""
        return f"{self.experiment_id}:{self.task_id}"

    @property
    def best(self) -> Path:
        """Folder of its best deliverable."""
        return self.folder / "BEST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A group of tasks that belong together."""

    experiment_id: str
    name: str
    goal: str
    created_at: str
    task_order: tuple[str, ...]
    folder: Path

    def task(self, name: str) -> Task:
        """Return one of its tasks, by id or number; raises `SetupError` if there is none."""
        found = [one for one in self.task_order if one == name or one.partition("-")[0] == name]
        if not found:
            known = ", ".join(self.task_order) or "none"
            raise SetupError(
                f"experiment {self.experiment_id} has no task `{name}`", hint=f"it has {known}"
            )
        return read_task(self.folder / "tasks" / found[0])


def create_experiment(root: Path, name: str, goal: str, at: str) -> Experiment:
    """Create an experiment below a folder."""
    salt = f"{name}\0{goal}\0{at}"
    # the number makes a new id if a folder of that name exists
    digests = (hashlib.sha256(f"{salt}{n}".encode()).hexdigest() for n in count())
    id_ = next(one for d in digests if not (root / (one := f"exp_{d[:8]}")).exists())
    folder = root / id_
    for part in ("shared/memory", "shared/dynamic_tools", "shared/skills", "tasks"):
        make_folder(folder / part)
    made = Experiment(
        experiment_id=id_, name=name, goal=goal, created_at=at, task_order=(), folder=folder
    )
    _write_json(folder / "experiment.json", _experiment_document(made))
    return made


def read_experiment(folder: Path) -> Experiment:
    """Read an experiment; raises `SetupError` if there is none."""
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
    """Return the experiment and the task of `EXP:TASK`; raises `SetupError` if there is none."""
    experiment_id, colon, name = text.partition(":")
    if not colon:
        raise SetupError(f"`{text}` names no task", hint="write EXP:TASK, as in exp_0123abcd:001")
    of = read_experiment(root / experiment_id)
    return of, of.task(name)


def all_experiments(root: Path) -> list[Experiment]:
    """Return all experiments below a folder, oldest first."""
    folders = [path.parent for path in root.glob("exp_*/experiment.json")]
    found = map(read_experiment, folders)
    return sorted(found, key=lambda one: (one.created_at, one.experiment_id))


def delete_experiment(experiment: Experiment) -> None:
    """Delete an experiment with all its files."""
    shutil.rmtree(experiment.folder)


def add_task(
    experiment: Experiment, prompt: str, inputs: Sequence[TaskInput], mode: Mode, at: str
) -> Task:
    """Add a task to an experiment; its inputs must be valid."""
    # read again: another process may have added a task
    experiment = read_experiment(experiment.folder)
    number = 1 + max((int(one[:3]) for one in experiment.task_order), default=0)
    slug = re.sub(r"[^a-z0-9]+", "-", prompt.lower()).strip("-")[:LONGEST].strip("-")
    id_ = f"{number:03d}-{slug or 'task'}"
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
    # the task first: an order that names a missing task could not be read
    _write_json(folder / "task.json", _task_document(task))
    order = (*experiment.task_order, id_)
    told = {**_experiment_document(experiment), "task_order": list(order)}
    _write_json(experiment.folder / "experiment.json", told)
    return task


def read_task(folder: Path) -> Task:
    """Read a task; raises `SetupError` if there is none."""
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


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")


TERMINAL = ("complete", "partial")
MANIFEST = "manifest.json"

Reason = Literal["auto_loss", "user_override"]


@dataclass(frozen=True, slots=True)
class Carried:
    """Files that a continuation receives from other tasks."""

    primary: dict[str, bytes] = field(default_factory=dict[str, bytes])
    references: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """Reference files by path, which begins with the id of their task."""


def create_task(experiment: Experiment, prompt: str, at: str) -> Task:
    """Create a task that starts from nothing."""
    return add_task(experiment, prompt, (), "seed", at)


def create_continuation(
    experiment: Experiment, feedback: str, inputs: Sequence[TaskInput], at: str
) -> Task:
    """Create a task that continues others; raises `SetupError` if rule R37 is broken."""
    if not inputs:
        raise SetupError(
            "a continuation needs something to go on from", hint="name it with --from-task"
        )
    resolved: list[TaskInput] = []
    for one in inputs:
        source = experiment.task(one.from_task)
        manifest = read_object(source.best / MANIFEST)
        if manifest is None or not text_in(manifest.get("winner_run_id")):
            raise SetupError(
                f"task {source.task_id} has no finished run to go on from", hint=_names_one(source)
            )
        held = _held(source)
        for path in one.paths:
            if path not in held:
                names = ", ".join(sorted(held)[:10])
                raise SetupError(
                    f"`{path}` is not in the best of task {source.task_id}", hint=f"it has {names}"
                )
        resolved.append(TaskInput(from_task=source.task_id, role=one.role, paths=one.paths))
    return add_task(experiment, feedback, resolved, "continuation", at)


def carried(experiment: Experiment, task: Task) -> Carried:
    """Return the files that a continuation receives: the named paths of each input, else all."""
    found = Carried()
    for one in task.inputs:
        held = _held(experiment.task(one.from_task))
        wanted = {path: held[path] for path in one.paths or held if path in held}
        if one.role == "primary":
            found.primary.update(wanted)
        else:
            found.references.update({f"{one.from_task}/{path}": d for path, d in wanted.items()})
    return found


def _held(task: Task) -> dict[str, bytes]:
    files = files_below(task.best)
    return {path: file.read_bytes() for path, file in files.items() if path != MANIFEST}


def set_best(task: Task, run_folder: Path, at: str) -> FinishedRun:
    """Make a run that the user chose the best of a task."""
    run = _usable(run_folder)
    entry = _entry(run)
    with alone(task.folder):
        recover(task.folder)
        _put(task, entry, "user_override", at)
    return run


def set_best_by_loss(task: Task, at: str, among: Path | None = None) -> FinishedRun:
    """Make the run with the least loss the best of a task, even over an earlier choice of the user.

    `among` adds a run from another folder, which may be the only one.
    """
    runs = [*runs_of(task), *([] if among is None else [_usable(among)])]
    if not runs:
        raise SetupError(
            f"task {task.task_id} has no finished run with a deliverable",
            hint=f"its best was left as it is; {_names_one(task)}",
        )
    best = min(runs, key=lambda one: one.loss.total)
    entry = _entry(best)
    with alone(task.folder):
        recover(task.folder)
        _put(task, entry, "auto_loss", at)
    return best


def offer_best(task: Task, run_folder: Path, at: str) -> bool:
    """Make a run in a folder the best of its task if it is better; True if it was."""
    return offer(task, _entry(_usable(run_folder)), at)


def runs_of(task: Task) -> Iterable[FinishedRun]:
    """Yield finished runs of a task with a deliverable: first runs and refinements."""
    for path in sorted(task.folder.rglob("run_completion.json")):
        if task.best in path.parents:
            continue
        run = read_run(path.parent)
        if run.status in TERMINAL and run.delivered is not None:
            yield run


def _usable(folder: Path) -> FinishedRun:
    run = read_run(folder)
    if run.status not in TERMINAL:
        raise SetupError(f"run {run.run_id} ended {run.status or 'nowhere'}: it cannot be a best")
    if run.delivered is None:
        raise SetupError(f"run {run.run_id} left no deliverable: it cannot be a best")
    return run


def best_run(task: Task) -> Path:
    """Return the folder of the best run of a task; raises `SetupError` if there is none."""
    manifest = read_object(task.best / MANIFEST) or {}
    source = text_in(manifest.get("winner_source"))
    hint = _names_one(task)
    if not source:
        raise SetupError(f"task {task.task_id} has no best run to start from", hint=hint)
    folder = Home.find(task.folder).moved(Path(source))
    if not folder.is_dir():
        message = f"the best run of task {task.task_id} is gone: {source}"
        raise SetupError(message, hint=hint)
    return folder


def first_run(task: Task) -> Path:
    """Return the folder of the first run of a task; raises `SetupError` if there is none."""
    seeds = task.folder / "seed"
    found = next((one.folder for one in runs_of(task) if seeds in one.folder.parents), None)
    if found is None:
        message = f"task {task.task_id} has no first run to start from"
        raise SetupError(message, hint="leave out `--from seed` to start from its best")
    return found


def _names_one(task: Task) -> str:
    """Return a hint with the commands that give a task a best run."""
    return (
        f"`kept agent run --target {task.target}` does it, or "
        f"`kept experiment task set-best {task.target} --auto --run RUN_DIR` names a run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A finished run that may become the best of a task."""

    run_id: str
    source: str
    """Folder of the run."""
    status: str
    loss: float
    parts: Mapping[str, float]
    signals: Mapping[str, object]
    files: Mapping[str, bytes]
    measure: str = FOLLOW
    """Kind of measure of the loss; only losses of one kind are compared."""
    seed_run_id: str = ""
    """Run that was measured together with this one; empty for none."""
    seed_loss: float | None = None
    session: str = ""
    """Session that found it; empty for none."""

    def beats(self, held: Held) -> bool:
        """True if it should replace the held best.

        A race always updates the entry that it made itself. A held run that was measured
        together with this one is compared by its loss from that measurement.
        """
        if held.is_of(self.session, self.measure):
            return (held.run_id, held.loss) != (self.run_id, self.loss)
        if self.seed_loss is not None and held.run_id == self.seed_run_id:
            return self.loss < self.seed_loss
        return held.beaten_by(self.loss, self.measure)


def held_by(task: Task) -> Held | None:
    """Return the best of a task; None if there is none."""
    told = read_object(task.best / MANIFEST)
    if told is None:
        return None
    measure = text_in(told.get("measure")) or FOLLOW
    session = text_in(told.get("session_id"))
    return Held(
        text_in(told.get("winner_run_id")), first_number(told.get("loss")), measure, session
    )


def offer(task: Task, entry: Entry, at: str) -> bool:
    """Make a run the best of its task if it is better; True if it was."""
    if entry.status not in TERMINAL or not entry.files:
        return False
    with alone(task.folder):
        recover(task.folder)
        held = held_by(task)
        # a choice of the user always wins
        if held is not None and (chosen(task) or not entry.beats(held)):
            return False
        _put(task, entry, "auto_loss", at)
        return True


def take_back(task: Task, session: str, measure: str, seed: Path, at: str) -> None:
    """Make a seed the best of its task again, if this race had put another run there."""
    entry = _entry(_usable(seed))
    with alone(task.folder):
        recover(task.folder)
        held = held_by(task)
        if held is not None and held.is_of(session, measure) and not chosen(task):
            _put(task, entry, "auto_loss", at)


def chosen(task: Task) -> bool:
    """True if the user chose the best of a task, so that no loss replaces it."""
    manifest = read_object(task.best / MANIFEST) or {}
    return manifest.get("reason") == "user_override"


def _entry(run: FinishedRun) -> Entry:
    assert run.delivered is not None, "who left nothing is not usable"
    return Entry(
        run_id=run.run_id,
        source=str(run.folder),
        status=run.status,
        loss=round(run.loss.total, 6),
        parts=run.loss.parts(),
        signals=asdict(run.loss.signals),
        files=run.delivered.read(),
    )


def _put(task: Task, entry: Entry, reason: Reason, at: str) -> None:
    told = {
        "winner_run_id": entry.run_id,
        "winner_source": entry.source,
        "reason": reason,
        "loss": entry.loss,
        "measure": entry.measure,
        "loss_breakdown": dict(entry.parts),
        "raw_signals": dict(entry.signals),
        "updated_at": at,
        **({"session_id": entry.session} if entry.session else {}),
    }
    # R37 reads `manifest.json`, so a deliverable of that name is renamed
    files = {
        ("manifest.deliverable.json" if p == MANIFEST else p): d for p, d in entry.files.items()
    }
    text = json.dumps(told, indent=2, ensure_ascii=False)
    replace_best(task.folder, {**files, MANIFEST: text.encode() + b"\n"})


SESSION = "session.json"


def sessions_of(task: Task) -> Path:
    """Return the folder of the sessions of a task."""
    return task.folder / "refinements"


def new_task_session(task: Task, t: float) -> str:
    """Return a session name that is still free: two sessions may begin in one second."""
    name = datetime.fromtimestamp(t, UTC).strftime("session_%Y%m%d_%H%M%S")
    return free_name(name, (), sessions_of(task))


@dataclass(frozen=True, slots=True)
class InTask:
    """Sessions and best of a task; implements `kept.orchestrator.refine.session.Shelf`."""

    task: Task
    seed: Path
    """Folder of the refined run, which was the best of the task."""

    def write(self, session: Session) -> None:
        """Write both copies of the session, and the pointer to the latest."""
        folder, name = sessions_of(self.task), session.session_id
        whole = session.document()
        _write(folder / name / SESSION, whole)
        _write(folder / f"{name}.json", whole)
        latest = {
            "latest": name,
            "path": f"{name}/{SESSION}",
            "started_at": session.started_at,
            "completed_at": session.completed_at,
            "stop_reason": session.stop_reason,
        }
        _write(folder / SESSION, latest)

    def put(self, winner: Winner, made: Made) -> None:
        """Put it in BEST of the task if its loss is lower and the user chose no other."""
        entry = Entry(
            run_id=winner.best_run_id,
            source=winner.winning_run_dir,
            status=made.status,
            loss=winner.best_loss,
            parts=winner.loss_breakdown,
            signals=made.findings.signals,
            files=made.files,
            measure=winner.measure,
            seed_run_id=winner.start_run_id or winner.seed_run_id,
            seed_loss=winner.seed_loss if winner.start_loss is None else winner.start_loss,
            session=winner.session_id,
        )
        offer(self.task, entry, _now())

    def withdraw(self, session: str, measure: str) -> None:
        """Restore the best of the task from before the session."""
        take_back(self.task, session, measure, self.seed, _now())

    def holds(self) -> Held | None:
        """Return the content of BEST of the task."""
        return held_by(self.task)

    def recover(self) -> None:
        """Restore BEST after a kill."""
        with alone(self.task.folder):
            recover(self.task.folder)


def _now() -> str:
    return session_stamp(datetime.now(UTC).timestamp())


def _write(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    write_whole(path, encoded(text) + b"\n")
