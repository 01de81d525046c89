"""From a config to its environment, with the student that works in it."""

from dataclasses import replace
from functools import partial

from kept.envs.opened import Opened
from kept.envs.opening import open_env
from kept.envs.settings import EnvSettings, ratio_of
from kept.errors import Problem, SpecError
from kept.recipes.skill.students import student_of
from kept.spec.skill.read import SkillSpec

METRICS = "metrics"
"""The key of `env` that says how answers are measured."""


def open_skill(spec: SkillSpec) -> Opened:
    """The environment of a config, ready to be trained in; a `SpecError` with what is wrong."""
    settings = settings_of(spec)
    scorer = None
    if settings.options.get(METRICS) is not None:
        # at use: few configs have any, and what measures them takes 0.1 s to import
        from kept.recipes.skill.metrics import metric_scorer

        scorer = metric_scorer(spec, settings)
        left = {key: value for key, value in settings.options.items() if key != METRICS}
        settings = replace(settings, options=left)
    return open_env(settings, partial(student_of, spec), scorer)


def settings_of(spec: SkillSpec) -> EnvSettings:
    """What an environment is told."""
    env, evaluation = spec.env, spec.evaluation
    if env.name is None:
        hint = "give it in the config, or with --env"
        raise SpecError([Problem(spec.where("name"), "env.name", "missing", hint)])
    try:
        ratio = ratio_of(env.split_ratio)
    except ValueError as wrong:
        where = spec.where("split_ratio")
        raise SpecError([Problem(where, "env.split_ratio", str(wrong))]) from wrong
    return EnvSettings(
        name=env.name,
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
        skill_init=env.skill_init,
        options=spec.options,
        where=spec.where,
    )
