"""From a config to its environment, with the student that works in it.

What is wrong is reported to the source of the config, as much of it as can be found at once: an
option that nobody knows does not hide that there is no skill at a path.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from typing import TypeVar

from kept.core.ports import Scorer
from kept.errors import KeptError, Problem, SpecError
from kept.evaluators.environments.finding import find_env
from kept.evaluators.environments.opened import Opened
from kept.evaluators.environments.opening import opened, parted
from kept.evaluators.environments.settings import RATIO, EnvSettings, ratio_of
from kept.evaluators.environments.skills import skill_at
from kept.recipes.skill.judging import KEY as JUDGE
from kept.recipes.skill.judging import connect_judge, judge_config, judge_warnings
from kept.recipes.skill.read import SkillSpec
from kept.recipes.skill.spec import EnvSection
from kept.recipes.skill.students import named_student, student_of
from kept.spec.source import dotted
from kept.spec.yaml import Loc

T = TypeVar("T")

METRICS = "metrics"
"""The key of `env` that says how answers are measured."""

_SURE = 0.8
"""How like a key must be to one that is known, where nobody knows which others there are."""

_OF_MODE = {"ratio": ("data_path", "split_output_dir"), "split_dir": ("split_dir",)}
"""Keys that one way of splitting reads, and the other does not."""


def open_skill(spec: SkillSpec, *, deciding: bool = True) -> Opened | None:
    """The environment of a config, ready to be worked in; None, and reports, where it is not.

    `deciding` is False for a measurement, which needs no cases to decide by.
    """
    settings, scorer = _measured(spec, settings_of(spec))
    env = heard(spec, lambda: find_env(settings), ("env", "name")) if settings.name else None
    student = None
    if not has_problems(spec, "model"):
        config = heard(spec, lambda: named_student(spec), ("model",))
        if config is not None and env is not None:
            student = heard(spec, lambda: student_of(spec, env), ("model",))
    if env is None or has_problems(spec, "env"):
        _look_alone(spec, settings, known=env is not None)
        return None
    by_split = heard(spec, lambda: parted(env, settings, deciding=deciding), ("env",))
    if by_split is None:
        for key, told in _unread(spec):
            spec.source.report(("env", key), told, "set `split_mode` as well")
    if by_split is None or student is None:
        return None
    config = heard(spec, lambda: judge_config(spec, env), ("env", JUDGE))
    judge = heard(spec, lambda: connect_judge(spec, config), ("env", JUDGE)) if config else None
    made = opened(env, settings, by_split, lambda _: student, scorer, judge)
    unread = (f"`env.{key}` {told}" for key, told in _unread(spec))
    ignored = (*made.ignored, *unread, *judge_warnings(env, config))
    return replace(made, judge=config, ignored=ignored)


def heard(spec: SkillSpec, find: Callable[[], T], loc: Loc) -> T | None:
    """What is found; None, and reports, where something is wrong: at its place, else at this."""
    try:
        return find()
    except SpecError as error:
        spec.source.problems += error.problems
    except KeptError as error:
        if any(told.message == error.message for told in spec.source.problems):
            return None  # once is enough, wherever it was found first
        where = spec.source.where(loc)
        spec.source.problems.append(Problem(where, dotted(loc), error.message, error.hint))
    return None


def has_problems(spec: SkillSpec, section: str) -> bool:
    """Whether something of a section is wrong, and more would be found only because of that."""
    paths = (problem.path.partition(".")[0] for problem in spec.source.problems)
    return section in paths


def settings_of(spec: SkillSpec) -> EnvSettings:
    """What an environment is told; what is wrong with it is reported."""
    env, evaluation = spec.env, spec.evaluation
    if env.name is None and not has_problems(spec, "env"):
        hint = "give it in the config, or with --env"
        spec.source.problems.append(Problem(spec.where("name"), "env.name", "missing", hint))
    ratio = RATIO
    try:
        ratio = ratio_of(env.split_ratio)
    except ValueError as wrong:
        problem = Problem(spec.where("split_ratio"), "env.split_ratio", str(wrong))
        spec.source.problems.append(problem)
    return EnvSettings(
        name=env.name or "",
        folder=spec.folder,
        split_mode=env.split_mode,
        data_path=env.data_path,
        split_dir=env.split_dir,
        split_ratio=ratio,
        split_seed=env.split_seed,
        split_output_dir=env.split_output_dir,
        train_size=spec.train.train_size,
        sel_env_num=evaluation.sel_env_num,
        test_env_num=evaluation.test_env_num,
        limit=env.limit,
        skill_init=env.skill_init,
        options=spec.options,
        keys=tuple(EnvSection.model_fields),
        where=spec.where,
    )


def _measured(spec: SkillSpec, settings: EnvSettings) -> tuple[EnvSettings, Scorer | None]:
    """The settings without the metrics that answers are measured by, and the scorer for those."""
    if settings.options.get(METRICS) is None:
        return settings, None
    left = {key: value for key, value in settings.options.items() if key != METRICS}
    without = replace(settings, options=left)
    if not settings.name or has_problems(spec, "model"):
        # what else there is to say follows from that
        return without, None
    # at use: few configs have any, and what measures them takes 0.1 s to import
    from kept.recipes.skill.metrics import metric_scorer

    return without, heard(spec, lambda: metric_scorer(spec, settings), ("env", METRICS))


def _look_alone(spec: SkillSpec, settings: EnvSettings, *, known: bool) -> None:
    """What can be told of `env` although something of it is wrong already."""
    told = {problem.path for problem in spec.source.problems}
    for key in (key for key in settings.options if f"env.{key}" not in told):
        near = get_close_matches(key, settings.keys, n=1, cutoff=_SURE)
        if near and not known:
            problem = settings.problem(key, "unknown key", f"did you mean `{near[0]}`?")
            spec.source.problems.append(problem)
    for key in ("data_path", "split_dir"):
        given = str(getattr(settings, key))
        read = key in _OF_MODE[settings.split_mode]
        if given and read and not settings.path(given).exists():
            message = f"there is no {settings.path(given)}"
            spec.source.problems.append(settings.problem(key, message))
    if settings.skill_init and not settings.no_skill:
        there = settings.path(settings.skill_init)
        heard(spec, lambda: skill_at(there, settings), ("env", "skill_init"))


def _unread(spec: SkillSpec) -> Iterator[tuple[str, str]]:
    """Keys of the other way of splitting that somebody set after the way itself, and why not."""
    mode = spec.env.split_mode
    for key in (key for other, keys in _OF_MODE.items() if other != mode for key in keys):
        later = spec.source.layer(("env", key)) > spec.source.layer(("env", "split_mode"))
        if getattr(spec.env, key) and later:
            yield key, f"is not read: `split_mode` is `{mode}`"
