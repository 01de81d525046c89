"""Plan of a task.yaml: its artifacts are improved by a runner and a scorer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import SPLITS, Case, Cases, Labels, fields_of, labels_of, too_few
from kept.core.event import SpecSettings
from kept.core.forecast import enough_steps
from kept.core.objective import Constraint, Objective, TieBreaker
from kept.core.plan import TASK, Plan
from kept.core.ports import Journal, Sink
from kept.evaluators.runners.registry import RUNNERS, model_asked
from kept.evaluators.scorers.assertions.component import assert_usage
from kept.evaluators.scorers.registry import SCORERS
from kept.gates.seed_rules import Strict
from kept.models.providers import PROVIDERS
from kept.models.roles import is_free, probes_of
from kept.recipes.base import Compiled, Facts, Request
from kept.recipes.gate_choice import repeats_of, schedule_of
from kept.recipes.race_choice import Decided, default_gate, race_of, raced_ties, with_race
from kept.recipes.task.cases import overlap_warnings
from kept.recipes.task.charges import charges_of, endpoints_of, limited_by, open_ended
from kept.recipes.task.components import needs_of
from kept.recipes.task.guards import make_guards, make_protected
from kept.recipes.task.inputs import ReadTask, exposed, inputs_of, read_task
from kept.recipes.task.models import told
from kept.recipes.task.sandbox import confine, modes
from kept.recipes.task.spec import RaceSpec, TaskSpec
from kept.sandbox.command import MIB
from kept.sandbox.workspace import Scratch
from kept.settings import processors
from kept.spec.components import BuildContext
from kept.spec.locate.tree import locate
from kept.spec.source import Source, open_spec, split_override
from kept.store.exports import CandidateFolder, ResultsFile

API_WORKERS = 8
"""Rollouts in flight at once if a model behind an API is asked."""


def compile_task(spec: Path | Source, overrides: Sequence[str] = (), began: str = "") -> Compiled:
    """Compile the plan of a task; raises `SpecError` with all its problems."""
    read = read_task(open_spec(spec, overrides))
    made = plan_of(read, Candidate(read.files.texts), overrides, began)
    few = too_few(read.files.cases)
    warnings = (*([few] if few else []), *overlap_warnings(_material(read)), *made.warnings)
    return Compiled(with_race(made.plan), warnings)


def _material(read: ReadTask) -> Cases:
    """Return the cases without their assertions, which many of them have in common."""
    fields = SCORERS.needs(read.task.scorer).assertions
    cases = read.files.cases
    if not fields:
        return cases

    def without(case: Case) -> Case:
        data = {key: value for key, value in fields_of(case).items() if key not in fields}
        return Case(case.id, data)

    return Cases(*(tuple(map(without, cases.of(split))) for split in SPLITS))


def plan_of(read: ReadTask, seed: Candidate, overrides: Sequence[str], began: str = "") -> Compiled:
    """Build the plan of a task for a seed candidate, with its overrides."""
    source, task, files = read.source, read.task, read.files
    bits = modes(source.folder, files.texts)
    scratch = Scratch(bits)
    confined = confine(source, task, files.texts)
    protected = make_protected(task.mutation.protect)
    runs, scores = RUNNERS.needs(task.runner), SCORERS.needs(task.scorer)
    context = BuildContext(
        source.folder,
        seed,
        confined,
        scratch,
        task.models,
        task.objective.primary_metric,
        files.guidance.get("rubric", ""),
        runs.case_fields,
        files.given,
        assert_usage(files.cases, scores.assertions),
        task.sandbox.output_mb * MIB,
        files.editable,
    )
    proposers = files.proposing.build(context)
    agents = [
        model
        for needs in (runs, *files.proposing.needs)
        for model in needs.models
        if model.by_agent
    ]
    workers = task.workers or _default_workers(task, source.folder)
    objective = _objective(task)
    models, about_models = told(task, source.folder, needs_of(task, files.proposing))
    charges = charges_of(task, files.proposing, source.folder)
    # the price of a rollout is no limit of the run: the plan has it as `worst_usd`
    limits = task.budget.model_dump(exclude={"usd_per_rollout"})
    if task.policy.on_failure == "stop":
        limits["max_failures"] = 1
    # variables may be secrets: only their names are recorded for a resume
    hidden = [given for given in overrides if ".env" in split_override(given)[0]]
    plan = Plan(
        recipe=TASK,
        seed=seed,
        rules=Rules(
            {name: Artifact(name, protected) for name in files.editable},
            max_files=task.artifacts.max_files_per_iteration,
            max_changed_lines=task.mutation.max_changed_lines,
            file_types=task.mutation.allowed_file_types,
        ),
        cases=files.cases,
        runner=RUNNERS.build(task.runner, context),
        scorer=SCORERS.build(task.scorer, context),
        objective=objective,
        locate=locate,
        modes=bits,
        proposers=proposers,
        schedule=schedule_of(proposers, task.schedule, 0),
        gate=Strict(),
        guards=make_guards(task.guards, files.cases, files.proposing.kinds),
        budget=Budget(**limits),
        worst_usd=task.budget.usd_per_rollout or 0.0,
        priced=open_ended(charges, task.budget.usd_per_rollout),
        probes=probes_of([], endpoints_of(task, files.proposing, source.folder)),
        dear=not all(
            is_free(config)
            for agent in agents
            if (config := agent.config(task.models, source.folder)) is not None
        ),
        workers=workers,
        spec=SpecSettings(
            path=str(source.path.resolve()),
            overrides=tuple([given for given in overrides if given not in hidden]),
            hidden=tuple([split_override(given)[0] for given in hidden]),
            id=task.id or source.folder.name,
            description=task.description,
            source=str(source.folder.resolve()),
            runner=_runner_facts(task),
            scorer=task.scorer.model_dump(exclude_defaults=True),
            sandbox={**confined.facts(), "agents": [agent.by_agent for agent in agents]},
        ),
        request=Request(),
        facts=Facts(
            models=models,
            prompts=files.proposing.own_prompts,
            charges=charges,
            limited_by=tuple(limited_by(task, files.proposing, source.folder)),
            pass_at=task.objective.pass_at,
        ),
        guidance=files.guidance,
        labels=_labels(task, files.cases),
        views=_views(task, source.folder, objective),
        worst_seconds=runs.worst_seconds + scores.worst_seconds,
    )
    # the gate and the width depend on the rest of the plan, so they are set last
    gate, why = _gate(task, plan, began)
    inputs = inputs_of(source, task, files, gate.name)
    plan = replace(plan, gate=gate, not_race=why, inputs=inputs)
    plan = replace(plan, width=task.width or enough_steps(plan))
    # an agent sees nothing of the task's folder
    by_agent = any(model.by_agent for model in runs.models)
    exposes = () if by_agent else exposed(source, task, files.texts, confined.inside.hidden)
    about_runner = RUNNERS.of(task.runner).warnings(task.runner, context)
    about_components = dict.fromkeys((*about_runner, *files.proposing.warnings(context)))
    warnings = (*confined.warnings(), *exposes, *about_models, *about_components)
    return Compiled(plan, warnings)


def _runner_facts(task: TaskSpec) -> Mapping[str, object]:
    """Return the facts of the runner for reports; of variables only the names."""
    told = task.runner.model_dump(by_alias=True, exclude={"env", "model"})
    for model in RUNNERS.needs(task.runner).models:
        block = model.named or task.models.target
        told["model"] = block.name if block else None
    return {**told, "env": list(getattr(task.runner, "env", ()))}


def _default_workers(task: TaskSpec, folder: Path) -> int:
    """Return the rollouts in flight: 8 for a model behind an API, else one per processor."""
    asked = model_asked(RUNNERS.needs(task.runner))
    if asked is None:
        return processors()
    config = asked.config(task.models, folder)
    local = config is None or PROVIDERS[config.provider].speech == "none"
    return processors() if local else API_WORKERS


def _labels(task: TaskSpec, cases: Cases) -> Labels:
    """Return the fields in which the cases have their inputs and expected outputs."""
    spec = task.cases
    if spec is None:
        return Labels()
    found = labels_of(cases, RUNNERS.needs(task.runner).case_fields)
    asserted = SCORERS.needs(task.scorer).assertions
    return replace(
        found,
        expected=spec.expected or found.expected,
        assertions=asserted[0] if asserted else "",
        shown=spec.show_expected,
    )


def _gate(task: TaskSpec, plan: Plan, began: str) -> Decided:
    """Return the gate that is named, or that a key of only one gate means; else the default."""
    if task.gate == "race" or task.race:
        raced_ties(plan)
        return Decided(race_of(task.race or RaceSpec()))
    if task.gate is not None:
        return Decided(repeats_of(plan) if task.gate == "repeats" else Strict())
    # set explicitly, even if to its default
    if "keep_if" in task.policy.model_fields_set:
        return Decided(Strict(), "`policy.keep_if` asks for it")
    return default_gate(plan, began)


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
        deterministic=spec.deterministic,
    )


def _views(
    task: TaskSpec, folder: Path, objective: Objective
) -> tuple[Callable[[Journal], Sink], ...]:
    made: list[Callable[[Journal], Sink]] = []
    if task.logging.results_file:
        path = folder / task.logging.results_file
        made.append(partial(ResultsFile, path, folder, objective, task.policy.on_failure))
    if task.logging.candidate_dir:
        made.append(partial(CandidateFolder, folder / task.logging.candidate_dir, folder))
    return tuple(made)
