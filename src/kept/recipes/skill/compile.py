"""Skill-training plans from a config and an opened environment: proposers and guards."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from math import ceil
from pathlib import Path
from typing import cast

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import SPLITS, Cases
from kept.core.event import SpecSettings
from kept.core.guards import copy_guard, gold_guard
from kept.core.llm import ModelRequest
from kept.core.objective import Objective
from kept.core.plan import SKILL as RECIPE
from kept.core.plan import Plan
from kept.core.ports import Gate, Guard, Model, Proposer
from kept.core.schedules.epochs import EpochEnd, Epochs
from kept.core.text import count
from kept.errors import Problem, SetupError, SpecError
from kept.evaluators.environments.base import SKILL, Opened
from kept.evaluators.scorers.transforms import MIXED, Mixed
from kept.gates.race import PRESETS, Race, raced, screened
from kept.gates.seed_rules import Selection
from kept.models.context_window import window_of
from kept.models.prompts import SKILL_FILES, SKILLS, prompt
from kept.models.providers import ModelConfig
from kept.models.roles import connect_role, is_free, is_priced, probes_of
from kept.proposers.variants import MEASURED
from kept.recipes.base import Compiled
from kept.recipes.race_choice import default_gate, with_race
from kept.recipes.skill.document import FRONT, REGIONS
from kept.recipes.skill.environment import (
    check_money,
    has_problems,
    heard,
    judge_charges,
    open_skill,
)
from kept.recipes.skill.outputs import SkillFolder, Trained
from kept.recipes.skill.proposers.analyst import Sight
from kept.recipes.skill.proposers.epoch_end import Comparison, MetaReflect, MetaSkill, SlowUpdate
from kept.recipes.skill.proposers.reflect import Analysts, Deep, Lapses
from kept.recipes.skill.proposers.step import StepProposer
from kept.recipes.skill.proposers.teacher import UPDATES, Prompts, Rewriting, Teacher
from kept.recipes.skill.proposers.update import Appendix
from kept.recipes.skill.read import SkillSpec, read_skill
from kept.recipes.skill.request import Training, TrainingFacts
from kept.recipes.skill.spec import effort_of
from kept.recipes.task.make_coding_agent import hash_of
from kept.spec.validate import said
from kept.spec.yaml import YamlFault, read_yaml

_KEPT = ("name",)
"""Keys of the frontmatter that must not change: a skill is found by them."""

EMPTY = (None, "")


def guards_of(opened: Opened) -> tuple[Guard, ...]:
    """Build the guards: readable frontmatter, no gold answers, no text of cases."""
    told = [(case.id, opened.about(case)) for split in SPLITS for case in opened.cases.of(split)]
    golds = [
        (case, text)
        for case, about in told
        for gold in about.golds
        # even a single line of a long answer is refused
        for text in (gold, *gold.splitlines())
    ]
    tasks = [about.task for _, about in told]
    return (Frontmatter(), gold_guard(golds, tasks), copy_guard(opened.cases))


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """Guard against a skill with an unreadable frontmatter, or with another name."""

    name: str = "frontmatter"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Return the problem of the frontmatter of SKILL.md; None if the seed has none."""
        before = _head(seed.texts.get(SKILL, ""))
        if not isinstance(before, dict):
            return None
        after = _head(candidate.texts.get(SKILL, ""))
        if isinstance(after, str):
            return f"{SKILL} has no frontmatter that can be read: {after}"
        for key, value in before.items():
            if key not in after:
                return f"the frontmatter of {SKILL} has lost `{key}`"
            if value not in EMPTY and after[key] in EMPTY:
                return f"the frontmatter of {SKILL} has nothing in `{key}`"
        for key in _KEPT:
            if before.get(key) != after.get(key):
                return f"the frontmatter of {SKILL} has another `{key}`"
        return None


def _head(text: str) -> dict[str, object] | str:
    """Return the frontmatter of a skill, or the reason why it cannot be read."""
    found = FRONT.match(text)
    if found is None:
        return "it does not begin with one"
    try:
        data = read_yaml(found[1]).data
    except YamlFault as fault:
        return f"line {fault.line + 1}: {fault.message}"
    return cast("dict[str, object]", data) if isinstance(data, dict) else "it is no mapping"


def teacher_of(
    spec: SkillSpec, model: Model, config: ModelConfig, prompts: Mapping[str, str]
) -> Teacher:
    """Build the teacher; the user's prompts override the environment's, and these Kept's."""
    # the last level: `Prompts.find` takes the first that has a name
    own = {name: prompt(name) for name in SKILLS}
    check_prompts(spec, prompts)
    return Teacher(
        model=model,
        request=ModelRequest((), max_tokens=config.max_tokens),
        prompts=Prompts((read_prompts(spec), dict(prompts), own)),
        window=window_of(config),
        rewriting=Rewriting(
            effort_of(spec.run.rewrite_reasoning_effort), spec.run.rewrite_max_completion_tokens
        ),
        rounds=spec.gradient.max_analyst_rounds,
        at_once=spec.gradient.analyst_workers,
    )


def check_prompts(spec: SkillSpec, prompts: Mapping[str, str]) -> None:
    """Raise a `SpecError` if an environment has a prompt that is never used."""
    _refuse_strange(spec.where("name"), "env.name", prompts)


def read_prompts(spec: SkillSpec) -> dict[str, str]:
    """Read the user's own prompts by name; `SpecError` for a file that replaces none."""
    if not spec.prompts:
        return {}
    paths = sorted((spec.folder / spec.prompts).glob("*.md"))
    _refuse_strange(spec.source.where(("prompts",)), "prompts", [path.stem for path in paths])
    return {path.stem: _text_of(path, spec.source.where(("prompts",))) for path in paths}


def _text_of(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError([Problem(where, "prompts", f"cannot read {path}: {error}")]) from error


def _refuse_strange(where: str, key: str, names: Iterable[str]) -> None:
    """Raise a `SpecError` for an unknown name of a prompt, which would silently be ignored."""
    problems: list[Problem] = []
    for name in names:
        if name not in SKILL_FILES:
            near = get_close_matches(name, SKILL_FILES, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`kept prompts list` has them all"
            problems.append(Problem(where, key, f"`{name}` is no prompt of skill training", hint))
    if problems:
        raise SpecError(problems)


def _proposers(spec: SkillSpec, opened: Opened, teacher: Teacher) -> Iterator[Proposer]:
    optimizer, gradient = spec.optimizer, spec.gradient
    pictures = opened.pictures if gradient.pictures_to_teacher else None
    traces = spec.run.codex_trace_to_teacher
    sight = Sight(opened.about, gradient.reference_to_teacher, traces, pictures)
    lapses = None
    if optimizer.use_skill_aware_reflection:
        sources = optimizer.skill_aware_appendix_source
        lapses = Lapses(sources, optimizer.skill_aware_consolidate_threshold)
    deep = None
    if gradient.use_deep_reflect:
        numbers = (gradient.deep_reflect_failures, gradient.deep_reflect_successes)
        deep = Deep(opened.probe, sight, *numbers)
    comparison = Comparison(sight, optimizer.slow_update_samples, spec.train.seed)
    if optimizer.use_slow_update:
        yield SlowUpdate(teacher, comparison)
    if optimizer.use_meta_skill:
        yield MetaSkill(teacher, comparison)
    if optimizer.use_meta_reflect:
        yield MetaReflect(teacher, optimizer.meta_learning_rate)
    if lapses is not None:
        yield Appendix(teacher, lapses, optimizer.appendix_gate == "flush")
    yield StepProposer(
        teacher=teacher,
        analysts=Analysts(
            sight,
            UPDATES[optimizer.skill_update_mode],
            gradient.minibatch_size,
            gradient.failure_only,
            lapses,
        ),
        batch=spec.train.batch_size,
        accumulation=spec.train.accumulation,
        run_seed=spec.train.seed,
        max_edits=optimizer.learning_rate,
        merge_size=gradient.merge_batch_size,
        deep=deep,
    )


FLOORS = (-0.2, 0.0, 0.05, 0.1)
"""Gains that a step must show after 1 to 4 passes over train cases, in deviations of a rollout."""

PASSES = 8
"""Passes of the incumbent over train cases, with which all steps to the next keep are compared."""

PATIENCE = 1.2
"""Patience of a race, as in the preset `careful`: training has few races."""

CLAIM_DRAWS = 300
"""Rollouts of each side that are enough for a claim; the test split is the largest of all."""

_NOT_DECIDING = ("out_root", "exports", "workers", "limit")
"""Keys of `env` that change no result; a changed `limit` shows in the cases."""

OUTPUTS = Path("outputs")
"""Default folder of the files of runs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The connected optimizer model, with its config."""

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
    """Compile the plan of a config; raises `SpecError` with all its problems.

    `problems` are those of the command line that the overrides come from.
    """
    spec = read_skill(path, overrides, folder)
    spec.source.problems += problems
    # the teacher is only connected if its section is valid
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
    """Build the plan of a config whose environment is open."""
    asked = teacher or _teacher(spec)
    check_money(spec, asked.config, spec.student)
    told = teacher_of(spec, asked.model, asked.config, opened.prompts)
    cases = opened.cases if spec.evaluation.eval_test else replace(opened.cases, test=())
    schedule = schedule_of(spec, cases)
    configs = [one for one in (asked.config, spec.student, opened.judge) if one is not None]
    scorer = opened.scorer
    if spec.evaluation.gate_metric == MIXED:
        scorer = Mixed(scorer, spec.evaluation.gate_mixed_weight)
    plan = Plan(
        recipe=RECIPE,
        seed=Candidate(dict(opened.skill)),
        rules=Rules(
            {name: Artifact(name, REGIONS if name == SKILL else ()) for name in opened.skill}
        ),
        cases=cases,
        runner=opened.runner,
        scorer=scorer,
        objective=Objective(spec.evaluation.gate_metric, "maximize", (0.0, 1.0)),
        proposers=tuple(_proposers(spec, opened, told)),
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
            # only the prompts of the user and of the environment, not Kept's own
            "prompts": hash_of([dict(level) for level in told.prompts.levels[:2]]),
        },
        spec=_settings(spec, opened, overrides),
        request=Training(folder=str(spec.folder)),
        facts=TrainingFacts(
            config=spec.told(),
            judge=opened.judge.name if opened.judge else "",
            charges=judge_charges(opened.judge),
        ),
    )
    gate = _gate(spec, plan, began)
    plan = replace(plan, gate=gate, inputs={**plan.inputs, "gate": hash_of(repr(gate))})
    plan = with_race(plan)
    if gate.name == "selection":
        own = replace(schedule, sealed=bool(cases.test))
        plan = replace(plan, schedule=own, proposers=(*plan.proposers, *MEASURED))
    config = spec.told()
    # exported with the gate that decides, which the config may not name
    evaluation = {**config["evaluation"], "gate": gate.name}
    trained = Trained(
        place=_place(spec, opened),
        named=bool(spec.env.out_root),
        config={**config, "evaluation": evaluation, "prompts": spec.prompts},
        metric=spec.evaluation.gate_metric,
        full=spec.env.exports == "full",
        agent=_agent_prefix(spec),
        materialise=opened.materialise,
    )
    plan = replace(plan, views=(partial(SkillFolder, trained),))
    warnings = (*opened.warnings, *opened.ignored, *_warnings(spec, plan, asked.config))
    return Compiled(plan, tuple(dict.fromkeys(warnings)))


def schedule_of(spec: SkillSpec, cases: Cases) -> Epochs:
    """Return the schedule: epochs of steps, and proposers at the end of each epoch."""
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


def _teacher(spec: SkillSpec) -> Asked:
    config = spec.teacher
    if config is None:
        raise SetupError(
            "the config names no optimizer", hint="give `model.teacher`, or `model.optimizer`"
        )
    return Asked(connect_role("optimizer", config), config)


def _gate(spec: SkillSpec, plan: Plan, began: str) -> Gate:
    """Return the named gate, or that of a resumed run; else the race if there are enough cases."""
    named = said(spec.source, ("evaluation", "gate")) is not None
    if began == "selection" or (named and spec.evaluation.gate == "selection"):
        return Selection()
    if named or began == "race" or default_gate(plan).gate.name == "race":
        race = unhurried(PRESETS["balanced"], len(plan.cases.train))
        return replace(race, claim_passes=claim_passes(race.claim_passes, len(plan.cases.test)))
    return Selection()


def claim_passes(usual: int, test: int) -> int:
    """Return the passes over the test cases: many cases need fewer passes than few cases."""
    return max(1, min(usual, ceil(CLAIM_DRAWS / max(1, test))))


def unhurried(race: Race, train: int) -> Race:
    """Return the race as training needs it: a step is costly, so a few rollouts cannot drop it.

    The screen completes one pass over its train cases before it may reject, as for a phase of
    coordinate descent (docs/decisions/0036).
    """
    once = min(race.screen.cases, train)
    usual = enumerate(zip(race.screen.steps, FLOORS, strict=True), 1)
    steps = tuple([(max(size, n * once), floor) for n, ((size, _), floor) in usual])
    return replace(race, patience=PATIENCE, screen=replace(race.screen, steps=steps, passes=PASSES))


def usual_rollouts(race: Race, schedule: Epochs, cases: Cases) -> int:
    """Estimate the rollouts of all steps, if each is as good as the incumbent: few are raced."""
    # `bar`: rollouts of the incumbent on train cases, paid once and shared by all steps
    bar = race.screen.passes * min(race.screen.cases, len(cases.train))
    looked = screened(race.screen.steps[:3], bar)
    each = raced(len(cases.holdout), race.most, race.aim, race.patience)
    batch = min(len(cases.train), schedule.batch * schedule.accumulation)
    step = batch + looked.draws + looked.share * each.challenger
    return ceil(bar + schedule.total * step + each.incumbent)


def _few_rollouts(spec: SkillSpec, plan: Plan) -> Iterator[str]:
    """Warn of a budget that is too small for all epochs of a race."""
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
    """Return the parts of the config that decide results: not the budget, not the outputs."""
    told = spec.told()
    del told["budget"]
    told["env"] = {k: v for k, v in told["env"].items() if k not in _NOT_DECIDING}
    if not spec.gradient.pictures_to_teacher:
        # so that a run that began before this key existed can resume
        del told["gradient"]["pictures_to_teacher"]
    return told


def _place(spec: SkillSpec, opened: Opened) -> Path:
    return spec.folder / (spec.env.out_root or OUTPUTS / opened.name)


def _agent_prefix(spec: SkillSpec) -> str:
    """Return the prefix of the files of an agent CLI; empty for a chat model."""
    if spec.agent is None:
        return ""
    # imported at use: most students are chat models, and the harness imports slowly
    from kept.sandbox.coding_agents.run import CLIS

    return CLIS[spec.agent].short


def _settings(spec: SkillSpec, opened: Opened, overrides: Sequence[str]) -> SpecSettings:
    """Return the settings of a run: its config, overrides, and folders."""
    known = SpecSettings(
        path=str(spec.source.path.resolve()),
        overrides=tuple(overrides),
        id=opened.name,
        results=str(_place(spec, opened)),
        named=bool(spec.env.out_root),
    )
    path = spec.folder / Path(spec.env.skill_init).expanduser()
    if not spec.env.skill_init or not path.exists():
        return known
    source = path if path.is_dir() else path.parent
    names = {SKILL: path.name} if path.is_file() else {}
    return replace(known, source=str(source.resolve()), names=names)


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
