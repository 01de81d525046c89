"""The artifact loop: a task.yaml with a runner command and a scorer command."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Cases, implicit_cases
from kept.core.objective import Constraint, Objective, TieBreaker
from kept.core.plan import Plan, fill_width
from kept.core.ports import Journal, Sink
from kept.core.schedule import RoundRobin
from kept.gates import Strict
from kept.locate import locate
from kept.recipes import Compiled
from kept.recipes.confine import confine, modes
from kept.recipes.editing import check_proposers
from kept.recipes.guards import check_guards, make_guards
from kept.recipes.proposing import Proposing, Tools, read_proposers
from kept.recipes.scorers import Scoring, check_scorer, make_scorer, scorer_seconds
from kept.runners.command import CommandRunner
from kept.sandbox import Command
from kept.sandbox.command import MIB
from kept.spec.cases import overlap_warnings, read_cases
from kept.spec.companions import check_outputs, read_guidance
from kept.spec.files import read_artifacts
from kept.spec.load import section, validate
from kept.spec.source import Source, read_source
from kept.spec.task import (
    ArtifactsSpec,
    CasesSpec,
    LoggingSpec,
    MutationSpec,
    RunnerSpec,
    TaskSpec,
)
from kept.store.candidates import CandidateFolder
from kept.store.results import ResultsFile
from kept.workspace import Scratch

_NO_MEANING: Mapping[str, Any] = {
    **dict.fromkeys(("id", "description", "budget", "logging", "workers", "width"), True),
    "policy": {"on_failure"},
}
"""What a resume may change: it alters how long a run goes on, or how fast, but no verdict."""


@dataclass(frozen=True, slots=True)
class _Files:
    """What a task's files say."""

    texts: Mapping[str, str]
    editable: Collection[str]
    guidance: Mapping[str, str]
    proposing: Proposing
    cases: Cases


def compile_task(path: Path, overrides: Sequence[str] = ()) -> Compiled:
    """The plan of a task; raises `SpecError` with everything that is wrong with it."""
    source = read_source(path, overrides)
    task = validate(source, TaskSpec)
    files = _read_files(source)
    source.check()
    assert task is not None, "a task without problems is a task"
    scratch = Scratch(modes(source.folder, files.texts))
    confined = confine(source, task, files.texts)
    runner = Command(
        task.runner.command,
        source.folder / task.runner.cwd,
        task.runner.timeout_seconds,
        task.runner.env,
    )
    seed = Candidate(files.texts)
    metric = task.objective.primary_metric
    scoring = Scoring(source.folder, seed, metric, scratch, confined.scorer)
    proposers = files.proposing.make(Tools(scratch, confined.runner))
    workers = task.workers or _processors()
    objective = _objective(task)
    plan = Plan(
        recipe="artifact",
        seed=seed,
        rules=Rules(
            {name: Artifact(name) for name in files.editable},
            max_files=task.artifacts.max_files_per_iteration,
            max_changed_lines=task.mutation.max_changed_lines,
        ),
        cases=files.cases,
        runner=CommandRunner(confined.runner(runner), scratch, task.sandbox.output_mb * MIB),
        scorer=make_scorer(task.scorer, scoring),
        objective=objective,
        locate=locate,
        proposers=proposers,
        schedule=RoundRobin(tuple(proposer.name for proposer in proposers)),
        gate=Strict(),
        guards=make_guards(task.guards, files.cases, demos="demos" in files.proposing.kinds),
        budget=_budget(task),
        worst_usd=task.budget.usd_per_rollout or 0.0,
        width=task.width or fill_width(workers, len(files.cases.holdout)),
        workers=workers,
        inputs={
            "spec": _hash(_meaning(task)),
            "variants": _hash(files.proposing.alternatives),
            **({"guidance": _hash(files.guidance)} if files.guidance else {}),
        },
        facts={
            "spec": str(path.resolve()),
            **_recorded(overrides),
            "id": task.id or source.folder.name,
            "description": task.description,
            "source": str(source.folder.resolve()),
            "runner": task.runner.model_dump(exclude={"env"}),
            "scorer": task.scorer.model_dump(exclude_defaults=True),
            "sandbox": confined.facts(),
        },
        guidance=files.guidance,
        views=_views(task, source.folder, objective),
        worst_seconds=runner.timeout + scorer_seconds(task.scorer),
    )
    return Compiled(plan, (*overlap_warnings(files.cases), *confined.warnings()))


def _read_files(source: Source) -> _Files:
    """Look at every file that a right part of the spec names."""
    artifacts = section(source, ("artifacts",), ArtifactsSpec)
    texts = read_artifacts(source, artifacts.include, artifacts.exclude) if artifacts else {}
    mutation = section(source, ("mutation",), MutationSpec) or MutationSpec()
    editable = {name: texts[name] for name in texts if _may_edit(name, mutation)}
    if texts and not editable:
        message = "leaves no artifact to edit"
        source.report(("mutation", "allowed_file_types"), message, f"there are {', '.join(texts)}")
    logging = section(source, ("logging",), LoggingSpec) or LoggingSpec()
    check_outputs(source, logging.results_file, logging.candidate_dir, texts)
    check_proposers(source)
    runner = section(source, ("runner",), RunnerSpec)
    if runner and not (source.folder / runner.cwd).is_dir():
        source.report(("runner", "cwd"), f"there is no folder `{runner.cwd}`")
    check_scorer(source, texts)
    check_guards(source, texts)
    cases = section(source, ("cases",), CasesSpec)
    found = read_cases(source, cases) if cases else None
    guidance = read_guidance(source, texts)
    proposing = read_proposers(source, editable, found)
    return _Files(texts, editable, guidance, proposing, found or implicit_cases())


def _may_edit(name: str, mutation: MutationSpec) -> bool:
    return not mutation.allowed_file_types or name.endswith(mutation.allowed_file_types)


def _objective(task: TaskSpec) -> Objective:
    spec = task.objective
    return Objective(
        spec.primary_metric,
        spec.direction,
        spec.bounds,
        tuple(Constraint(c.metric, c.op, c.value) for c in task.constraints),
        tuple(
            TieBreaker(t.lower, "lower") if t.lower else TieBreaker(t.higher or "", "higher")
            for t in task.policy.tie_breakers
        ),
        spec.tie_tolerance,
    )


def _recorded(overrides: Sequence[str]) -> dict[str, object]:
    """What was set besides, for a resume; of variables only the names, for they may be secrets."""
    hidden = [given for given in overrides if ".env" in given.partition("=")[0]]
    shown = [given for given in overrides if given not in hidden]
    return {"set": shown, "set_again": [given.partition("=")[0] for given in hidden]}


def _budget(task: TaskSpec) -> Budget:
    limits = task.budget.model_dump(exclude={"usd_per_rollout"})
    if task.policy.on_failure == "stop":
        limits["max_failures"] = 1
    return Budget(**limits)


def _views(
    task: TaskSpec, folder: Path, objective: Objective
) -> tuple[Callable[[Path, Journal], Sink], ...]:
    made: list[Callable[[Path, Journal], Sink]] = []
    if task.logging.results_file:
        path = folder / task.logging.results_file
        made.append(partial(ResultsFile, path, objective, task.policy.on_failure))
    if task.logging.candidate_dir:
        made.append(partial(CandidateFolder, folder / task.logging.candidate_dir))
    return tuple(made)


def _meaning(task: TaskSpec) -> dict[str, Any]:
    """What verdicts depend on; spelling a default out changes nothing."""
    dump = task.model_dump(exclude=dict(_NO_MEANING), exclude_defaults=True)
    return {name: value for name, value in dump.items() if value != {}}


def _processors() -> int:
    """Processors that this process may use, which in a container are not all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
