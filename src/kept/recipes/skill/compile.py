"""Skill training: from a config and an opened environment to a plan."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import Cases
from kept.core.objective import Objective
from kept.core.plan import SKILL as RECIPE
from kept.core.plan import Plan
from kept.core.ports import Gate, Model, Scorer
from kept.core.protect import Protected
from kept.core.schedules.epochs import EpochEnd, Epochs
from kept.core.words import count
from kept.errors import Problem, SetupError
from kept.evaluators.environments.opened import SKILL, Opened
from kept.evaluators.scorers.mixed import MIXED, Mixed
from kept.gates.expected_cost import raced, screened
from kept.gates.race import PRESETS, Race
from kept.gates.selection import Selection
from kept.models.config import ModelConfig
from kept.models.roles import connect_role, is_free, is_priced, probes_of
from kept.proposers.measured import MEASURED
from kept.recipes.race_choice import default_gate, with_race
from kept.recipes.recipes import Compiled
from kept.recipes.skill.document import REGIONS
from kept.recipes.skill.folder import SkillFolder, Trained
from kept.recipes.skill.guards import guards_of
from kept.recipes.skill.judging import judge_facts
from kept.recipes.skill.money import check_money
from kept.recipes.skill.proposers.modes import UPDATES
from kept.recipes.skill.proposing import check_prompts, proposers_of, read_prompts, teacher_of
from kept.recipes.skill.read import SkillSpec, read_skill
from kept.recipes.task.hashing import hash_of
from kept.spec.load import said

FLOORS = (-0.2, 0.0, 0.05, 0.1)
"""What a step must show on so many passes over train cases, in deviations of one draw."""

PASSES = 8
"""Over what leads, on train cases: all steps until the next keep are held against the same."""

PATIENCE = 1.2
"""Of a race, as in a careful one, for there are few of them."""

CLAIM_DRAWS = 300
"""Of each side, that a claim is by at least: the test split is the largest there is."""

_NOT_DECIDING = ("out_root", "exports", "workers", "limit")
"""Keys of `env` that change no result by themselves; a `limit` is seen in the cases."""

OUTPUTS = Path("outputs")
"""Where the files of runs go, unless a config says otherwise."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The optimizer, where it is at hand already."""

    model: Model
    config: ModelConfig


def compile_skill(
    path: Path,
    overrides: Sequence[str] = (),
    began: str = "",
    *,
    folder: Path | None = None,
    problems: Sequence[Problem] = (),
) -> Compiled:
    """The plan of a config; raises `SpecError` with all that is wrong with it.

    `problems` are those of the command line that the overrides come from.
    """
    from kept.recipes.skill.opening import has_problems, heard, open_skill

    spec = read_skill(path, overrides, folder)
    spec.source.problems += problems
    sound = not has_problems(spec, "model")
    opened = open_skill(spec)
    asked = heard(spec, lambda: _teacher(spec), ("model",)) if sound else None
    if asked is not None:
        configs = (asked.config, spec.student)
        heard(spec, lambda: check_money(spec, *configs), ("budget", "max_usd"))
    heard(spec, lambda: read_prompts(spec), ("prompts",))
    if opened is not None:
        heard(spec, lambda: check_prompts(spec, opened.prompts), ("env", "name"))
    spec.source.check()
    assert opened is not None and asked is not None, "what keeps them is reported"
    return plan_of(spec, opened, overrides, began, asked)


def plan_of(
    spec: SkillSpec,
    opened: Opened,
    overrides: Sequence[str] = (),
    began: str = "",
    teacher: Asked | None = None,
) -> Compiled:
    """The plan of a config whose environment is open."""
    asked = teacher or _teacher(spec)
    check_money(spec, asked.config, spec.student)
    told = teacher_of(spec, asked.model, asked.config, opened.prompts)
    cases = opened.cases if spec.evaluation.eval_test else replace(opened.cases, test=())
    schedule = schedule_of(spec, cases)
    configs = [one for one in (asked.config, spec.student, opened.judge) if one is not None]
    plan = Plan(
        recipe=RECIPE,
        seed=Candidate(dict(opened.skill)),
        rules=Rules({name: Artifact(name, _protected(name)) for name in opened.skill}),
        cases=cases,
        runner=opened.runner,
        scorer=_scorer(spec, opened),
        objective=Objective(spec.evaluation.gate_metric, "maximize", (0.0, 1.0)),
        proposers=proposers_of(spec, opened, told),
        schedule=schedule,
        gate=Selection(),
        guards=guards_of(opened),
        budget=Budget(
            max_minutes=spec.budget.max_minutes,
            max_usd=spec.budget.max_usd,
            max_rollouts=spec.budget.max_rollouts,
        ),
        width=spec.train.steps_at_once,
        workers=spec.env.workers,
        random_seed=spec.train.seed,
        priced=not all(map(is_free, configs)) or spec.agent is not None,
        dear=spec.agent is not None,
        probes=probes_of(
            [],
            [
                ("target", spec.student if spec.agent is None else None),
                ("judge", opened.judge),
                ("optimizer", asked.config),
            ],
        ),
        inputs={
            **(opened.inputs or {}),
            "config": hash_of(_deciding(spec)),
            "prompts": hash_of([dict(level) for level in told.prompts.levels[:2]]),
        },
        facts=_facts(spec, opened, overrides),
    )
    gate = _gate(spec, plan, began)
    plan = replace(plan, gate=gate, inputs={**plan.inputs, "gate": hash_of(repr(gate))})
    plan = with_race(plan)
    if gate.name == "selection":
        own = replace(schedule, sealed=bool(cases.test))
        plan = replace(plan, schedule=own, proposers=(*plan.proposers, *MEASURED))
    trained = Trained(
        place=_place(spec, opened),
        named=bool(spec.env.out_root),
        config=_told(spec, gate),
        metric=spec.evaluation.gate_metric,
        full=spec.env.exports == "full",
        agent=_agent_prefix(spec),
        materialise=opened.materialise,
    )
    plan = replace(plan, views=(partial(SkillFolder, trained),))
    warnings = (*opened.warnings, *opened.ignored, *_warnings(spec, plan, asked.config))
    return Compiled(plan, tuple(dict.fromkeys(warnings)))


def schedule_of(spec: SkillSpec, cases: Cases) -> Epochs:
    """Epochs of steps, and what each ends with."""
    optimizer, train = spec.optimizer, spec.train
    ends: list[EpochEnd] = []
    aware = optimizer.use_skill_aware_reflection
    if aware and optimizer.appendix_gate == "batch":
        ends.append(EpochEnd("appendix"))
    if optimizer.use_slow_update:
        ends.append(EpochEnd("slow_update", 2))
    if optimizer.use_meta_skill:
        ends.append(EpochEnd("meta_skill", 2, races=False))
    if optimizer.use_meta_reflect:
        ends.append(EpochEnd("meta_reflect"))
    return Epochs(
        cases=len(cases.train),
        epochs=train.num_epochs,
        batch=train.batch_size,
        accumulation=train.accumulation,
        curve=optimizer.lr_scheduler,
        max_edits=optimizer.learning_rate,
        min_edits=optimizer.min_learning_rate,
        after=("appendix",) if aware and optimizer.appendix_gate == "flush" else (),
        ends=tuple(ends),
    )


def _protected(name: str) -> tuple[Protected, ...]:
    return REGIONS if name == SKILL else ()


def _scorer(spec: SkillSpec, opened: Opened) -> Scorer:
    if spec.evaluation.gate_metric != MIXED:
        return opened.scorer
    return Mixed(opened.scorer, spec.evaluation.gate_mixed_weight)


def _teacher(spec: SkillSpec) -> Asked:
    config = spec.teacher
    if config is None:
        raise SetupError(
            "the config names no optimizer", hint="give `model.teacher`, or `model.optimizer`"
        )
    return Asked(connect_role("optimizer", config), config)


def _gate(spec: SkillSpec, plan: Plan, began: str) -> Gate:
    """The gate that is named, or that the run began with; else the race, if cases are enough."""
    named = said(spec.source, ("evaluation", "gate")) is not None
    if began == "selection" or (named and spec.evaluation.gate == "selection"):
        return Selection()
    if named or began == "race" or default_gate(plan).gate.name == "race":
        race = unhurried(PRESETS["balanced"], len(plan.cases.train))
        return replace(race, claim_passes=claim_passes(race.claim_passes, len(plan.cases.test)))
    return Selection()


def claim_passes(usual: int, test: int) -> int:
    """Over the test cases: many cases say by one pass what a few say by several."""
    return max(1, min(usual, ceil(CLAIM_DRAWS / max(1, test))))


def unhurried(race: Race, train: int) -> Race:
    """The race as training needs it: a step costs many calls, so a few draws do not drop it.

    The screen goes through the train cases that it looks at once before it may say no, as for a
    phase of coordinate descent (docs/decisions/0036).
    """
    once = min(race.screen.cases, train)
    usual = enumerate(zip(race.screen.steps, FLOORS, strict=True), 1)
    steps = tuple([(max(size, n * once), floor) for n, ((size, _), floor) in usual])
    return replace(race, patience=PATIENCE, screen=replace(race.screen, steps=steps, passes=PASSES))


def usual_rollouts(race: Race, schedule: Epochs, cases: Cases) -> int:
    """What all steps come to where they are as good as what leads: some are raced, most are not."""
    bar = race.screen.passes * min(race.screen.cases, len(cases.train))
    looked = screened(race.screen.steps[:3], bar)
    each = raced(len(cases.holdout), race.most, race.aim, race.patience)
    batch = min(len(cases.train), schedule.batch * schedule.accumulation)
    step = batch + looked.draws + looked.share * each.challenger
    return ceil(bar + schedule.total * step + each.incumbent)


def _few_rollouts(spec: SkillSpec, plan: Plan) -> Iterator[str]:
    """A budget in which a race does not come to the end of its epochs."""
    limit, schedule = spec.budget.max_rollouts, schedule_of(spec, plan.cases)
    if limit is None or not isinstance(plan.gate, Race):
        return
    usual = usual_rollouts(plan.gate, schedule, plan.cases)
    if usual + plan.reserve > limit:
        yield (
            f"{limit} rollouts are few for a race of {count(schedule.total, 'step')}: they usually "
            f"take {usual}, and {plan.reserve} are for the end; not all will be made, and small "
            "gains are not proven"
        )


def _deciding(spec: SkillSpec) -> dict[str, object]:
    """What makes a run another run; how long it may go on and where it writes are no part of it."""
    told = spec.told()
    del told["budget"]
    told["env"] = {k: v for k, v in told["env"].items() if k not in _NOT_DECIDING}
    if not spec.gradient.pictures_to_teacher:
        # a run that began before there was the key goes on
        del told["gradient"]["pictures_to_teacher"]
    return told


def _told(spec: SkillSpec, gate: Gate) -> dict[str, object]:
    """The config for its readers: with the gate that decides, where it names none."""
    told = spec.told()
    evaluation = {**told["evaluation"], "gate": gate.name}
    return {**told, "evaluation": evaluation, "prompts": spec.prompts}


def _place(spec: SkillSpec, opened: Opened) -> Path:
    return spec.folder / (spec.env.out_root or OUTPUTS / opened.name)


def _agent_prefix(spec: SkillSpec) -> str:
    """Prefix of the files of an agent CLI; empty for a chat model."""
    if spec.agent is None:
        return ""
    # at use: most students are chat models, and the harness takes long to import
    from kept.sandbox.coding_agents.harness import CLIS

    return CLIS[spec.agent].short


def _facts(spec: SkillSpec, opened: Opened, overrides: Sequence[str]) -> dict[str, object]:
    """What a reader of the run, and its resume, want to know."""
    facts: dict[str, object] = {
        "spec": str(spec.source.path.resolve()),
        "set": list(overrides),
        "folder": str(spec.folder),
        "id": opened.name,
        RECIPE: spec.told(),
        "results": str(_place(spec, opened)),
        "named": bool(spec.env.out_root),
        **judge_facts(opened.judge),
    }
    path = spec.folder / Path(spec.env.skill_init).expanduser()
    if spec.env.skill_init and path.exists():
        facts["source"] = str((path if path.is_dir() else path.parent).resolve())
        if path.is_file():
            facts["names"] = {SKILL: path.name}
    return facts


def _warnings(spec: SkillSpec, plan: Plan, teacher: ModelConfig) -> Iterator[str]:
    for config in (teacher, *((spec.student,) if spec.student else ())):
        if not is_priced(config):
            yield f"the price of `{config.name}` is not known: what it costs is not counted"
    if plan.gate.name == "selection" and said(spec.source, ("evaluation", "gate")) is None:
        why = default_gate(plan).why or "the run began with it"
        yield f"`selection` decides, which keeps noise more often: {why}"
    yield from _few_rollouts(spec, plan)
    optimizer = spec.optimizer
    if optimizer.use_skill_aware_reflection and not UPDATES[optimizer.skill_update_mode].capped:
        yield (
            "`use_skill_aware_reflection` does nothing here: who writes a whole skill with "
            f"`{optimizer.skill_update_mode}` is not asked for reminders"
        )
    batch = spec.train.batch_size * spec.train.accumulation
    if batch > len(plan.cases.train):
        yield f"a batch would have {batch} cases, and there are {len(plan.cases.train)} to train on"
