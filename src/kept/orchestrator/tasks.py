"""Tasks that go on from others (rule R37), and the best run of a task.

The best is replaced by a run with a strictly lower loss, unless somebody chose it: that choice
stays until somebody chooses again. Losses are compared only where they were measured alike.
Nothing is taken away before its successor is there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from kept.errors import SetupError
from kept.orchestrator.folders import Experiment, Task, TaskInput, add_task
from kept.orchestrator.loss import first_number
from kept.orchestrator.refine.best import FOLLOW, Held, alone, recover, replace_best
from kept.orchestrator.run_folder.files import read_object, text_in
from kept.orchestrator.run_folder.places import files_below
from kept.orchestrator.run_folder.read import FinishedRun, read_run
from kept.store.home import Home

TERMINAL = ("complete", "partial")
MANIFEST = "manifest.json"

Reason = Literal["auto_loss", "user_override"]


@dataclass(frozen=True, slots=True)
class Carried:
    """What a continuation is given of other tasks."""

    primary: dict[str, bytes] = field(default_factory=dict[str, bytes])
    references: dict[str, bytes] = field(default_factory=dict[str, bytes])
    """By path, which begins with the task it is from."""


def create_task(experiment: Experiment, prompt: str, at: str) -> Task:
    """A task that starts from nothing."""
    return add_task(experiment, prompt, (), "seed", at)


def create_continuation(
    experiment: Experiment, feedback: str, inputs: Sequence[TaskInput], at: str
) -> Task:
    """A task that goes on from others; raises `SetupError` where rule R37 is broken."""
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
    """The files that a continuation is given: of each input what was named, else all of it."""
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
    """Have somebody's choice be the best of a task."""
    run = _usable(run_folder)
    entry = _entry(run)
    with alone(task.folder):
        recover(task.folder)
        _put(task, entry, "user_override", at)
    return run


def set_best_by_loss(task: Task, at: str, among: Path | None = None) -> FinishedRun:
    """Choose the run of a task with the least loss, also over somebody's earlier choice.

    Among them may be one that lies elsewhere; it may be the first.
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
    """Have a run in a folder be the best of its task, if it is better; whether it is."""
    return offer(task, _entry(_usable(run_folder)), at)


def runs_of(task: Task) -> Iterable[FinishedRun]:
    """Finished runs below a task that left something: first ones, and those of refinements."""
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
    """The folder of the run that is the best of a task; raises `SetupError` where there is none."""
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
    """The folder of the first run of a task; raises `SetupError` where there is none."""
    seeds = task.folder / "seed"
    found = next((one.folder for one in runs_of(task) if seeds in one.folder.parents), None)
    if found is None:
        message = f"task {task.task_id} has no first run to start from"
        raise SetupError(message, hint="leave out `--from seed` to start from its best")
    return found


def _names_one(task: Task) -> str:
    """How a task comes to a best that a better one may replace."""
    return (
        f"`kept agent run --target {task.target}` does it, or "
        f"`kept experiment task set-best {task.target} --auto --run RUN_DIR` names a run"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A finished run that may be the best of a task."""

    run_id: str
    source: str
    """Its folder."""
    status: str
    loss: float
    parts: Mapping[str, float]
    signals: Mapping[str, object]
    files: Mapping[str, bytes]
    measure: str = FOLLOW
    """What the loss is: compared with no others."""
    seed_run_id: str = ""
    """The run that it was measured beside; empty for none."""
    seed_loss: float | None = None
    session: str = ""
    """Which found it; empty for none."""

    def beats(self, held: Held) -> bool:
        """Whether it is better than the best, which may be what it was measured beside."""
        if held.is_of(self.session, self.measure):
            return (held.run_id, held.loss) != (self.run_id, self.loss)
        if self.seed_loss is not None and held.run_id == self.seed_run_id:
            return self.loss < self.seed_loss
        return held.beaten_by(self.loss, self.measure)


def held_by(task: Task) -> Held | None:
    """What is the best of a task; None where nothing is."""
    told = read_object(task.best / MANIFEST)
    if told is None:
        return None
    measure = text_in(told.get("measure")) or FOLLOW
    session = text_in(told.get("session_id"))
    return Held(
        text_in(told.get("winner_run_id")), first_number(told.get("loss")), measure, session
    )


def offer(task: Task, entry: Entry, at: str) -> bool:
    """Have a run be the best of its task, if it is better than that; whether it is."""
    if entry.status not in TERMINAL or not entry.files:
        return False
    with alone(task.folder):
        recover(task.folder)
        held = held_by(task)
        if held is not None and (chosen(task) or not entry.beats(held)):
            return False
        _put(task, entry, "auto_loss", at)
        return True


def take_back(task: Task, session: str, measure: str, seed: Path, at: str) -> None:
    """Have a seed be the best of its task again, where a race put another there."""
    entry = _entry(_usable(seed))
    with alone(task.folder):
        recover(task.folder)
        held = held_by(task)
        if held is not None and held.is_of(session, measure) and not chosen(task):
            _put(task, entry, "auto_loss", at)


def chosen(task: Task) -> bool:
    """Whether somebody chose the best of a task: then no loss replaces it."""
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
    # the manifest is what R37 goes by, so a deliverable of that name steps aside
    files = {
        ("manifest.deliverable.json" if p == MANIFEST else p): d for p, d in entry.files.items()
    }
    text = json.dumps(told, indent=2, ensure_ascii=False)
    replace_best(task.folder, {**files, MANIFEST: text.encode() + b"\n"})
