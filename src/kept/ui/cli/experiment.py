"""`kept experiment`: tasks that belong together, each with its runs and the best of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import Command, Commands, json_option

if TYPE_CHECKING:
    from kept.orchestrator.experiments import Experiment, Task


@click.group(cls=Commands, examples=('kept experiment create Sales --goal "know the sales"',))
def experiment() -> None:
    """Keep tasks together that go on from one another."""


@experiment.command(cls=Command, examples=('kept experiment create Sales --goal "know sales"',))
@click.argument("name")
@click.option("--goal", default="", metavar="TEXT", help="What all its tasks are for.")
@json_option
def create(name: str, goal: str, as_json: bool) -> None:
    """Make an experiment."""
    from kept.orchestrator.experiments import create_experiment
    from kept.store.home import Home

    if not name.strip():
        raise SetupError("the name is empty", hint="name it: kept experiment create NAME")
    Home.find(Path.cwd()).make()
    made = create_experiment(_root(), name, goal, _now())
    _tell({"experiment_id": made.experiment_id, "folder": str(made.folder)}, as_json)


@experiment.command("list", cls=Command, examples=("kept experiment list",))
@json_option
def list_(as_json: bool) -> None:
    """List the experiments of this project."""
    from kept.core.text import count
    from kept.orchestrator.experiments import all_experiments

    found = all_experiments(_root())
    if as_json:
        rows = [{"experiment_id": e.experiment_id, "name": e.name, "goal": e.goal} for e in found]
        _output.document({"experiments": rows})
        return
    lines = [f"{e.experiment_id}  {e.name}  {count(len(e.task_order), 'task')}" for e in found]
    _output.answer("\n".join(lines) or "there is no experiment")


@experiment.command(cls=Command, examples=("kept experiment show exp_0123abcd",))
@click.argument("experiment_id", metavar="EXP")
@json_option
def show(experiment_id: str, as_json: bool) -> None:
    """Show an experiment and its tasks."""
    of = _experiment(experiment_id)
    tasks = [of.task(one) for one in of.task_order]
    if as_json:
        rows = [_row(one) for one in tasks]
        _output.document({"experiment_id": of.experiment_id, "goal": of.goal, "tasks": rows})
        return
    lines = [f"{of.experiment_id}  {of.name}", *([of.goal] if of.goal else [])]
    _output.answer("\n".join([*lines, *map(_line, tasks)]))


@experiment.command(cls=Command, examples=("kept experiment delete exp_0123abcd --yes",))
@click.argument("experiment_id", metavar="EXP")
@click.option("-y", "--yes", is_flag=True, help="Really; all its runs go with it.")
@json_option
def delete(experiment_id: str, yes: bool, as_json: bool) -> None:
    """Remove an experiment with all that is in it."""
    from kept.orchestrator.experiments import delete_experiment

    of = _experiment(experiment_id)
    if not yes:
        hint = f"`kept experiment delete {of.experiment_id} --yes` removes it"
        raise SetupError(f"{of.folder} and all its runs would be gone", hint=hint)
    delete_experiment(of)
    _output.note(f"removed {of.experiment_id}")
    if as_json:
        _output.document({"ok": True, "removed": of.experiment_id})


@experiment.group(cls=Commands, examples=('kept experiment task create EXP "Write a report"',))
def task() -> None:
    """Tasks of an experiment."""


@task.command(
    "create",
    cls=Command,
    examples=(
        'kept experiment task create exp_0123abcd "Write a report"',
        'kept experiment task create exp_0123abcd "Shorter" --continuation --from-task 001',
    ),
)
@click.argument("experiment_id", metavar="EXP")
@click.argument("text")
@click.option("--continuation", is_flag=True, help="TEXT says what is to be different.")
@click.option("--from-task", multiple=True, metavar="TASK", help="To go on from. Repeatable.")
@click.option(
    "--primary",
    multiple=True,
    metavar="TASK[/PATH]",
    help="What is worked on: a task's best, or a file of it. Repeatable.",
)
@click.option(
    "--reference", multiple=True, metavar="TASK[/PATH]", help="What is looked at. Repeatable."
)
@json_option
def create_task_(
    experiment_id: str,
    text: str,
    continuation: bool,
    from_task: tuple[str, ...],
    primary: tuple[str, ...],
    reference: tuple[str, ...],
    as_json: bool,
) -> None:
    """Add a task to an experiment; a continuation goes on from finished ones.

    What is named by --primary and --reference belongs to a task of --from-task; a task without
    either is taken over whole.
    """
    from kept.orchestrator.experiments import TaskInput, create_continuation, create_task

    if not text.strip():
        hint = 'say what is to be done: kept experiment task create EXP "TEXT"'
        raise SetupError("the task is empty", hint=hint)
    of = _experiment(experiment_id)
    named = [("primary", one) for one in primary] + [("reference", one) for one in reference]
    if not continuation:
        if from_task or named:
            raise SetupError("only a continuation goes on from others", hint="add --continuation")
        _tell(_row(create_task(of, text, _now())), as_json)
        return
    inputs: list[TaskInput] = []
    for role, one in named:
        source, _, path = one.partition("/")
        paths = (path,) if path else ()
        whose = "primary" if role == "primary" else "reference"
        inputs.append(TaskInput(from_task=source, role=whose, paths=paths))
    spoken = {of.task(one.from_task).task_id for one in inputs}
    # a task without --primary or --reference is an input as a whole
    inputs += [
        TaskInput(from_task=one, role="primary")
        for one in from_task
        if of.task(one).task_id not in spoken
    ]
    _tell(_row(create_continuation(of, text, inputs, _now())), as_json)


@task.command("list", cls=Command, examples=("kept experiment task list exp_0123abcd",))
@click.argument("experiment_id", metavar="EXP")
@json_option
def list_tasks(experiment_id: str, as_json: bool) -> None:
    """List the tasks of an experiment."""
    of = _experiment(experiment_id)
    tasks = [of.task(one) for one in of.task_order]
    if as_json:
        _output.document({"experiment_id": of.experiment_id, "tasks": [*map(_row, tasks)]})
    else:
        _output.answer("\n".join(map(_line, tasks)) or "there is no task")


@task.command("show", cls=Command, examples=("kept experiment task show exp_0123abcd:001",))
@click.argument("target", metavar="EXP:TASK")
@json_option
def show_task(target: str, as_json: bool) -> None:
    """Show one task."""
    _tell(_row(_target(target)), as_json)


@task.command(
    "set-best",
    cls=Command,
    examples=(
        "kept experiment task set-best exp_0123abcd:001 --auto --run .kept/runs/ID",
        "kept experiment task set-best exp_0123abcd:001 --auto",
        "kept experiment task set-best exp_0123abcd:001 --run .kept/runs/ID",
    ),
)
@click.argument("target", metavar="EXP:TASK")
@click.option("--run", type=click.Path(path_type=Path), metavar="RUN_DIR", help="This one.")
@click.option("--auto", is_flag=True, help="The one with the least loss.")
@json_option
def set_best_(target: str, run: Path | None, auto: bool, as_json: bool) -> None:
    """Say which run of a task is its best.

    A run that was named stays the best until another is, or --auto chooses by the loss again. With
    both, the named run is one of those that --auto chooses from, and whatever is better later, by
    `kept refine --target` say, replaces it.
    """
    from kept.orchestrator.experiments import set_best, set_best_by_loss

    if run is None and not auto:
        hint = "--run RUN_DIR, --auto, or both"
        raise SetupError("name one run, or let the loss choose", hint=hint)
    of, at = _target(target), _now()
    named = None if auto else run
    chosen = set_best_by_loss(of, at, run) if named is None else set_best(of, named, at)
    told = {"task_id": of.task_id, "winner_run_id": chosen.run_id, "loss": chosen.loss.total}
    _tell({**told, "best": str(of.best)}, as_json)


def _root() -> Path:
    from kept.orchestrator.experiments import EXPERIMENTS
    from kept.store.home import Home

    return Home.find(Path.cwd()).path / EXPERIMENTS


def _now() -> str:
    import time

    from kept.orchestrator.refine.session import session_stamp

    return session_stamp(time.time())


def _experiment(id_: str) -> "Experiment":
    from kept.orchestrator.experiments import read_experiment

    return read_experiment(_root() / id_)


def _target(text: str) -> "Task":
    from kept.orchestrator.experiments import target_of

    return target_of(_root(), text)[1]


def _row(task: "Task") -> dict[str, object]:
    from kept.orchestrator.experiments import chosen, held_by

    held = held_by(task)
    reason = "user_override" if chosen(task) else "auto_loss"
    won = (
        {} if held is None else {"winner_run_id": held.run_id, "loss": held.loss, "reason": reason}
    )
    return {
        "task_id": task.task_id,
        "mode": task.mode,
        "prompt": task.prompt,
        "inputs": [one.document() for one in task.inputs],
        "best": str(task.best) if task.best.exists() else None,
        **won,
        "folder": str(task.folder),
    }


def _line(task: "Task") -> str:
    return f"{task.task_id}  {task.mode}  {'best' if task.best.exists() else '-'}"


def _tell(told: dict[str, object], as_json: bool) -> None:
    if as_json:
        _output.document({"ok": True, **told})
    else:
        _output.answer(_output.pairs([(name, _words(value)) for name, value in told.items()]))


def _words(value: object) -> str:
    """Value of a JSON document as text."""
    if value is None or value == []:
        return "none"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, list):
        inputs: list[str] = []
        for one in cast("list[dict[str, Any]]", value):
            what = ", ".join(cast("list[str]", one.get("paths", ()))) or "all of its best"
            inputs.append(f"{one['from_task']} as {one['role']} ({what})")
        return ", ".join(inputs)
    return str(value)
