"""The proposers of skill training, made from a config."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path

from kept.core.model import ModelRequest
from kept.core.ports import Model, Proposer
from kept.errors import Problem, SpecError
from kept.evaluators.environments.opened import Opened
from kept.models.config import ModelConfig
from kept.models.prompts import SKILL_FILES, SKILLS, prompt
from kept.models.window import window_of
from kept.recipes.skill.proposers.analyst import Sight
from kept.recipes.skill.proposers.appendix import Appendix
from kept.recipes.skill.proposers.comparing import Comparison
from kept.recipes.skill.proposers.deep import Deep
from kept.recipes.skill.proposers.lapses import Lapses
from kept.recipes.skill.proposers.modes import UPDATES
from kept.recipes.skill.proposers.reflect import Analysts
from kept.recipes.skill.proposers.slow import MetaReflect, MetaSkill, SlowUpdate
from kept.recipes.skill.proposers.step import StepProposer
from kept.recipes.skill.proposers.teacher import Prompts, Rewriting, Teacher
from kept.recipes.skill.read import SkillSpec
from kept.recipes.skill.spec import effort_of


def teacher_of(
    spec: SkillSpec, model: Model, config: ModelConfig, prompts: Mapping[str, str]
) -> Teacher:
    """Who is asked: with prompts of the user before the environment's, and those before ours."""
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
    """A `SpecError` where an environment brings a prompt that nobody asks for."""
    _refuse_strange(spec.where("name"), "env.name", prompts)


def read_prompts(spec: SkillSpec) -> dict[str, str]:
    """The user's own prompts, by name; a `SpecError` for a file that stands for none."""
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
    """Raise where a prompt has a name that nobody asks for: it would be left unread in silence."""
    problems: list[Problem] = []
    for name in names:
        if name not in SKILL_FILES:
            near = get_close_matches(name, SKILL_FILES, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "`kept prompts list` has them all"
            problems.append(Problem(where, key, f"`{name}` is no prompt of skill training", hint))
    if problems:
        raise SpecError(problems)


def proposers_of(spec: SkillSpec, opened: Opened, teacher: Teacher) -> tuple[Proposer, ...]:
    """All that have a turn."""
    return tuple(_proposers(spec, opened, teacher))


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
