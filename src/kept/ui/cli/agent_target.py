"""What an agent run is to do: a task in words, or one of an experiment."""

from pathlib import Path
from typing import NamedTuple

from kept.errors import SetupError


class Wanted(NamedTuple):
    """What is to be done, and what comes with it."""

    task: str
    brief: str = ""
    inputs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


def wanted(words: str | None, target: str | None) -> Wanted:
    """By what was typed; a `SetupError` where that is both or neither."""
    if (words is None) == (target is None):
        hint = '`kept agent run "TASK"`, or `kept agent run --target EXP:TASK`'
        raise SetupError("say what is to be done, once", hint=hint)
    if words is not None:
        return Wanted(words)
    from kept.recipes.agent_run.experiment_run import lay_inputs, tag_of, task_named

    here = Path.cwd()
    task = task_named(here, target or "")
    inputs, brief = lay_inputs(here, task.target)
    return Wanted(task.prompt, brief, inputs, (tag_of(task),))
