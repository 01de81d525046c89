"""Every file that a task names: found, looked at, read.

All that is wrong is told at once, so a part of a spec that is wrong does not keep the others from
being looked at.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kept.core.case import Cases, implicit_cases
from kept.evaluators.runners.agents import AgentRunnerSpec
from kept.recipes.task.agents import given_files
from kept.recipes.task.cases import read_cases
from kept.recipes.task.companions import check_outputs, read_guidance
from kept.recipes.task.editing import check_proposers
from kept.recipes.task.guards import check_guards
from kept.recipes.task.make_runner import check_runner
from kept.recipes.task.models import check_models, take_seed_names
from kept.recipes.task.owning import check_own_measures
from kept.recipes.task.prompts import check_prompts_folder, take_prompts
from kept.recipes.task.proposing import Proposing, read_proposers
from kept.recipes.task.protecting import check_protected
from kept.recipes.task.sandbox import check_sandbox
from kept.recipes.task.scorers import check_scorer
from kept.recipes.task.task import ArtifactsSpec, MutationSpec, TaskSpec
from kept.spec.files import read_artifacts
from kept.spec.load import section, validate
from kept.spec.source import Source


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """What a task's files say."""

    texts: Mapping[str, str]
    editable: Collection[str]
    guidance: Mapping[str, str]
    proposing: Proposing
    cases: Cases
    given: Mapping[str, tuple[str, ...]]
    """Of each case, what an agent is given of the task's folder."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """A task in order, with all that it names."""

    source: Source
    task: TaskSpec
    files: TaskFiles


def read_task(source: Source, *, proposes: bool = True) -> ReadTask:
    """What a source says; raises `SpecError` with everything that is wrong with it."""
    take_seed_names(source)
    take_prompts(source)
    task = validate(source, TaskSpec)
    files = read_files(source, proposes)
    if task is not None:
        check_own_measures(source, task)
    source.check()
    assert task is not None, "a task without problems is a task"
    return ReadTask(source, task, files)


def read_files(source: Source, proposes: bool) -> TaskFiles:
    """Look at every file that a right part of the spec names."""
    limits = ("max_files_per_iteration",)
    artifacts = section(source, ("artifacts",), ArtifactsSpec, unread=limits)
    texts = read_artifacts(source, artifacts.include, artifacts.exclude) if artifacts else {}
    mutation = section(source, ("mutation",), MutationSpec) or MutationSpec()
    editable = {name: texts[name] for name in texts if _may_edit(name, mutation)}
    if texts and not editable:
        message = "leaves no artifact to edit"
        source.report(("mutation", "allowed_file_types"), message, f"there are {', '.join(texts)}")
    check_protected(source, mutation.protect, editable)
    check_outputs(source, texts)
    check_prompts_folder(source)
    if proposes:
        check_proposers(source)
    found = read_cases(source)
    check_scorer(source, texts, found)
    check_guards(source, texts)
    check_sandbox(source)
    check_models(source)
    check_runner(source, texts, found)
    guidance = read_guidance(source, texts)
    proposing = read_proposers(source, editable, found)
    agent = section(source, ("runner",), AgentRunnerSpec)
    given = given_files(source, agent, found) if agent else {}
    return TaskFiles(texts, editable, guidance, proposing, found or implicit_cases(), given)


def _may_edit(name: str, mutation: MutationSpec) -> bool:
    return not mutation.allowed_file_types or name.endswith(mutation.allowed_file_types)
