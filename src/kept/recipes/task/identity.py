"""What verdicts of a run depend on, as hashes: a resume notices when any of it changed."""

from collections.abc import Mapping
from typing import Any

from kept.recipes.task.agents import file_hashes
from kept.recipes.task.companions import GUIDANCE
from kept.recipes.task.hashing import hash_of
from kept.recipes.task.measure import measure_files
from kept.recipes.task.reading import TaskFiles
from kept.recipes.task.task import TaskSpec
from kept.spec.source import Source

_NO_MEANING: Mapping[str, Any] = {
    **dict.fromkeys(("id", "description", "budget", "logging", "workers", "width"), True),
    **dict.fromkeys(("gate", "race"), True),
    "policy": {"on_failure", "keep_if"},
}
"""What a resume may change: it alters how long a run goes on, or how fast, but no verdict. What the
gate is follows from more than its key, and stands for itself."""


def inputs_of(source: Source, task: TaskSpec, files: TaskFiles, gate: str) -> dict[str, str]:
    """A hash for each thing that a run depends on, by the name that a person knows it by."""
    return {
        "spec": hash_of(_meaning(task)),
        "gate": hash_of([gate, *(_racing(task) if gate == "race" else (None,))]),
        **_companions(files),
        **measure_files(source, task, files.texts),
        **file_hashes(source, files.given, files.texts),
    }


def _racing(task: TaskSpec) -> tuple[object, ...]:
    """How it is raced; what is not said is not there, so that a new key leaves old runs alone."""
    if task.race is None:
        return ("balanced",)
    said = task.race.said
    return (task.race.preset, *((said,) if said else ()))


def _companions(files: TaskFiles) -> dict[str, str]:
    """Hashes of the files that are read with the task, by the names that a person knows."""
    texts = {GUIDANCE[name]: text for name, text in files.guidance.items()}
    found = {f"`{name}`": hash_of(text) for name, text in texts.items()}
    for alternatives in files.proposing.alternatives:
        found |= {f"`{one.label}`": hash_of(one.texts) for one in alternatives}
    return found | {f"`{file}`": hash_of(text) for file, text in files.proposing.prompts.items()}


def _meaning(task: TaskSpec) -> dict[str, Any]:
    """What verdicts depend on; spelling a default out changes nothing."""
    dump = task.model_dump(exclude=dict(_NO_MEANING), exclude_defaults=True)
    return {name: value for name, value in dump.items() if value != {}}
