"""The artifact loop: a task.yaml with a runner and a scorer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import SPLITS, Case, Cases, Labels, labels_of, too_few
from kept.core.event import SpecSettings
from kept.core.forecast import enough_steps
from kept.core.objective import Constraint, Objective, TieBreaker
from kept.core.plan import TASK, Plan
from kept.core.ports import Journal, Sink
from kept.evaluators.runners.coding_agent import AgentRunnerSpec
from kept.evaluators.runners.command import ModelRunnerSpec
from kept.evaluators.runners.model import fields_of
from kept.evaluators.scorers.assertions.spec import AssertionsScorerSpec
from kept.evaluators.scorers.spec import leaves_of
from kept.gates.seed_rules import Strict
from kept.models.providers import PROVIDERS
from kept.models.roles import is_free, probes_of
from kept.recipes.base import Compiled, Facts, Request
from kept.recipes.gate_choice import repeats_of, schedule_of
from kept.recipes.race_choice import Decided, default_gate, race_of, raced_ties, with_race
from kept.recipes.task.cases import overlap_warnings
from kept.recipes.task.charges import charges_of, endpoints_of, limited_by, open_ended
from kept.recipes.task.guards import make_guards, make_protected
from kept.recipes.task.inputs import ReadTask, exposed, inputs_of, read_task
from kept.recipes.task.make_coding_agent import Sending, agent_warnings
from kept.recipes.task.make_proposers import Tools
from kept.recipes.task.make_runner import Running, facts_of, make_runner, prompt_warnings
from kept.recipes.task.make_scorer import Scoring, make_scorer, measured, scorer_seconds
from kept.recipes.task.models import told
from kept.recipes.task.sandbox import confine, modes
from kept.recipes.task.spec import RaceSpec, TaskSpec
from kept.sandbox.workspace import Scratch
from kept.settings import processors
from kept.spec.locate.tree import locate
from kept.spec.source import Source, open_spec, split_override
from kept.store.exports import CandidateFolder, ResultsFile

API_WORKERS = 8
"""Rollouts in flight at once where a model behind an API is asked."""


def compile_task(spec: Path | Source, overrides: Sequence[str] = (), began: str = "") -> Compiled:
    """The plan of a task; raises `SpecError` with everything that is wrong with it."""
    read = read_task(open_spec(spec, overrides))
    made = plan_of(read, Candidate(read.files.texts), overrides, began)
    few = too_few(read.files.cases)
    warnings = (*([few] if few else []), *overlap_warnings(_material(read)), *made.warnings)
    return Compiled(with_race(made.plan), warnings)


def _material(read: ReadTask) -> Cases:
    """The cases without what they assert, which many of them have in common."""
    fields = {s.field for s in leaves_of(read.task.scorer) if isinstance(s, AssertionsScorerSpec)}
    cases = read.files.cases
    if not fields:
        return cases

    def without(case: Case) -> Case:
        data = {key: value for key, value in fields_of(case).items() if key not in fields}
        return Case(case.id, data)

    return Cases(*(tuple(map(without, cases.of(split))) for split in SPLITS))


def plan_of(read: ReadTask, seed: Candidate, overrides: Sequence[str], began: str = "") -> Compiled:
    """What a task makes of a seed, with what was set besides."""
    source, task, files = read.source, read.task, read.files
    bits = modes(source.folder, files.texts)
    scratch = Scratch(bits)
    confined = confine(source, task, files.texts)
    protected = make_protected(task.mutation.protect)
    metric = task.objective.primary_metric
    scoring = Scoring(
        source.folder,
        seed,
        metric,
        scratch,
        confined.scorer,
        task.models.judge,
        files.guidance.get("rubric", ""),
        _shown(task),
    )
    runner = (task.runner,) if isinstance(task.runner, AgentRunnerSpec) else ()
    agents = (*runner, *files.proposing.agents)
    sending = Sending(source.folder, scratch, confined.agent)
    counts = measured(task, files.cases)
    running = Running(source.folder, scratch, confined, files.given, counts)
    proposers = files.proposing.make(Tools(scratch, confined.runner, sending))
    workers = task.workers or _default_workers(task, source.folder)
    objective = _objective(task)
    models, about_models = told(task, source.folder)
    charges = charges_of(task, files.proposing, source.folder)
    limits = task.budget.model_dump(exclude={"usd_per_rollout"})
    if task.policy.on_failure == "stop":
        limits["max_failures"] = 1
    # of variables only the names are kept for a resume, for they may be secrets
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
        runner=make_runner(task, running),
        scorer=make_scorer(task.scorer, scoring),
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
        dear=not all(is_free(agent.model.config(source.folder)) for agent in agents),
        workers=workers,
        spec=SpecSettings(
            path=str(source.path.resolve()),
            overrides=tuple([given for given in overrides if given not in hidden]),
            hidden=tuple([split_override(given)[0] for given in hidden]),
            id=task.id or source.folder.name,
            description=task.description,
            source=str(source.folder.resolve()),
            runner=facts_of(task),
            scorer=task.scorer.model_dump(exclude_defaults=True),
            sandbox={**confined.facts(), "agents": [agent.agent for agent in agents]},
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
        worst_seconds=task.runner.timeout_seconds + scorer_seconds(task.scorer),
    )
    gate, why = _gate(task, plan, began)
    inputs = inputs_of(source, task, files, gate.name)
    plan = replace(plan, gate=gate, not_race=why, inputs=inputs)
    plan = replace(plan, width=task.width or enough_steps(plan))
    # an agent sees nothing of the task's folder
    exposes = () if runner else exposed(source, task, files.texts, confined.inside.hidden)
    about_agents = agent_warnings(agents, source.folder)
    about_prompts = prompt_warnings(task, seed.texts)
    warnings = (*confined.warnings(), *exposes, *about_models, *about_agents, *about_prompts)
    return Compiled(plan, warnings)


def _shown(task: TaskSpec) -> tuple[str, ...]:
    """The fields of a case that a model or an agent sees."""
    if isinstance(task.runner, ModelRunnerSpec | AgentRunnerSpec):
        return task.runner.input or ()
    return ()


def _default_workers(task: TaskSpec, folder: Path) -> int:
    """Rollouts in flight: a model behind an API takes more than this machine has processors."""
    if not isinstance(task.runner, ModelRunnerSpec):
        return processors()
    target = task.runner.model or task.models.target
    local = target is None or PROVIDERS[target.config(folder).provider].speech == "none"
    return processors() if local else API_WORKERS


def _labels(task: TaskSpec, cases: Cases) -> Labels:
    """Where the cases of a task have their inputs and expected outputs."""
    spec = task.cases
    if spec is None:
        return Labels()
    found = labels_of(cases, _shown(task))
    leaves = [one for one in leaves_of(task.scorer) if isinstance(one, AssertionsScorerSpec)]
    return replace(
        found,
        expected=spec.expected or found.expected,
        assertions=leaves[0].field if leaves else "",
        shown=spec.show_expected,
    )


def _gate(task: TaskSpec, plan: Plan, began: str) -> Decided:
    """The gate that is named, by its own name or by what only one of them has."""
    if task.gate == "race" or task.race:
        raced_ties(plan)
        return Decided(race_of(task.race or RaceSpec()))
    if task.gate is not None:
        return Decided(repeats_of(plan) if task.gate == "repeats" else Strict())
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
