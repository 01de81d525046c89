"""The artifact loop: a task.yaml with a runner command and a scorer command."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Cases, implicit_cases
from kept.core.objective import Constraint, Objective, TieBreaker
from kept.core.plan import Plan, fill_width
from kept.core.schedule import RoundRobin
from kept.gates import Strict
from kept.proposers.variants import Variant, Variants
from kept.recipes import Compiled
from kept.runners.command import CommandRunner
from kept.sandbox import Command
from kept.scorers.command import CommandScorer
from kept.spec.cases import overlap_warnings, read_cases
from kept.spec.files import Alternative, read_alternatives, read_artifacts
from kept.spec.load import section, validate
from kept.spec.source import Source, read_source
from kept.spec.task import (
    ArtifactsSpec,
    CasesSpec,
    RunnerSpec,
    ScorerSpec,
    TaskSpec,
    VariantsSpec,
)
from kept.workspace import Scratch

_NO_MEANING = {"id", "description", "budget", "workers", "width"}
"""What a resume may change: it alters how long a run goes on, or how fast, but no verdict."""


@dataclass(frozen=True, slots=True)
class _Files:
    """What a task's files say."""

    texts: Mapping[str, str]
    alternatives: tuple[tuple[Alternative, ...], ...]
    """By proposer."""
    cases: Cases


def compile_task(path: Path, overrides: Sequence[str] = ()) -> Compiled:
    """The plan of a task; raises `SpecError` with everything that is wrong with it."""
    source = read_source(path, overrides)
    task = validate(source, TaskSpec)
    files = _read_files(source)
    source.check()
    assert task is not None, "a task without problems is a task"
    scratch = Scratch()
    runner = Command(
        task.runner.command,
        source.folder / task.runner.cwd,
        task.runner.timeout_seconds,
        task.runner.env,
    )
    scorer = Command(
        task.scorer.command, source.folder / task.scorer.cwd, task.scorer.timeout_seconds
    )
    proposers = tuple(
        Variants(tuple(Variant(found.texts, found.label) for found in group), name)
        for name, group in zip(_names(task), files.alternatives, strict=True)
    )
    workers = task.workers or _processors()
    plan = Plan(
        recipe="artifact",
        seed=Candidate(files.texts),
        rules=Rules(
            {name: Artifact(name) for name in files.texts},
            max_files=task.artifacts.max_files_per_iteration,
        ),
        cases=files.cases,
        runner=CommandRunner(runner, scratch),
        scorer=CommandScorer(scorer, scratch),
        objective=_objective(task),
        proposers=proposers,
        schedule=RoundRobin(tuple(proposer.name for proposer in proposers)),
        gate=Strict(),
        budget=Budget(**task.budget.model_dump()),
        width=task.width or fill_width(workers, len(files.cases.holdout)),
        workers=workers,
        inputs={
            "spec": _hash(task.model_dump(exclude=_NO_MEANING, exclude_defaults=True)),
            "variants": _hash(files.alternatives),
        },
        facts={
            "spec": str(path.resolve()),
            "set": list(overrides),
            "id": task.id or source.folder.name,
            "description": task.description,
        },
    )
    return Compiled(plan, overlap_warnings(files.cases))


def _read_files(source: Source) -> _Files:
    """Look at every file that a right part of the spec names."""
    artifacts = section(source, ("artifacts",), ArtifactsSpec)
    texts = read_artifacts(source, artifacts.include, artifacts.exclude) if artifacts else {}
    groups: list[tuple[Alternative, ...]] = []
    while proposer := section(source, ("proposers", len(groups)), VariantsSpec):
        loc = ("proposers", len(groups), "files")
        groups.append(read_alternatives(source, loc, proposer.files, texts))
    for name, model in (("runner", RunnerSpec), ("scorer", ScorerSpec)):
        command = section(source, (name,), model)
        if command and not (source.folder / command.cwd).is_dir():
            source.report((name, "cwd"), f"there is no folder `{command.cwd}`")
    cases = section(source, ("cases",), CasesSpec)
    found = read_cases(source, cases) if cases else None
    return _Files(texts, tuple(groups), found or implicit_cases())


def _names(task: TaskSpec) -> list[str]:
    """A name of its own for each proposer."""
    kinds = [proposer.kind for proposer in task.proposers]
    nth = [kinds[: at + 1].count(kind) for at, kind in enumerate(kinds)]
    return [f"{kind}-{n}" if n > 1 else kind for kind, n in zip(kinds, nth, strict=True)]


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


def _processors() -> int:
    """Processors that this process may use, which in a container are not all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _hash(value: object) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
