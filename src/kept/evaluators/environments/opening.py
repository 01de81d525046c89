"""From settings and a student to an environment that is ready to be trained in."""

from collections.abc import Callable

from kept.core.case import Cases, fault_in, too_few
from kept.core.ports import Model, Runner, Scorer
from kept.errors import Problem, SpecError
from kept.evaluators.environments.contract import Environment
from kept.evaluators.environments.opened import SKILL, Opened
from kept.evaluators.environments.probing import PROBE, probed
from kept.evaluators.environments.scoring import EnvScorer
from kept.evaluators.environments.settings import EnvSettings
from kept.evaluators.environments.skills import Read, skill_at
from kept.evaluators.environments.splitting import Parted, part

Student = Callable[[Environment], Runner]
"""Makes the runner of an environment: a chat model's, or an agent CLI's."""


def parted(env: Environment, settings: EnvSettings, *, deciding: bool = True) -> Parted:
    """The cases of an environment; a `SpecError` with all that keeps it from being opened.

    `deciding` is False for a measurement, which needs no cases to decide by or to learn from.
    """
    problems: list[Problem] = []
    if env.needs():
        problems.append(settings.problem("name", f"`{env.name}` cannot run: {env.needs()}"))
    try:
        skill_of(env, settings)
    except SpecError as error:
        problems += error.problems
    try:
        found = part(env, settings)
    except SpecError as error:
        raise SpecError([*problems, *error.problems]) from error
    holds = bool(found.cases.holdout)
    if (deciding or holds) and (fault := fault_in(found.cases)) is not None:
        problems.append(settings.problem("", fault))
    if deciding and not found.cases.train:
        fault = "there are no train cases, and nothing can be learnt without them"
        problems.append(settings.problem("", fault))
    if problems:
        raise SpecError(problems)
    return found


def opened(
    env: Environment,
    settings: EnvSettings,
    by_split: Parted,
    student: Student,
    scorer: Scorer | None = None,
    judge: Model | None = None,
) -> Opened:
    """An environment with its cases, its skill and its student.

    `scorer` stands for the environment's own, where a config names how answers are measured;
    `judge` decides what the environment's rules cannot.
    """
    skill = skill_of(env, settings)
    return Opened(
        name=env.name,
        cases=by_split.cases,
        runner=student(env),
        scorer=scorer or env.scorer() or EnvScorer(env, judge),
        about=env.about,
        pictures=env.pictures,
        scripts=env,
        prompts=env.prompts(),
        skill=skill.texts,
        probe=probed,
        materialise=by_split.write,
        warnings=tuple(_warnings(by_split.cases)),
        ignored=(*by_split.notes, *map(_unseen, skill.left_out)),
        inputs={"cases": by_split.cases.fingerprint()},
    )


def skill_of(env: Environment, settings: EnvSettings) -> Read:
    """The skill to begin with: the one that is named, or the environment's own."""
    if not settings.skill_init:
        return Read(env.skill())
    if settings.no_skill:
        return Read({SKILL: ""})
    skill = skill_at(settings.path(settings.skill_init), settings)
    if PROBE in skill.texts:
        raise SpecError([settings.problem("skill_init", f"`{PROBE}` is a name of Kept's own")])
    return skill


def _unseen(name: str) -> str:
    return f"`{name}` of the skill is no text: who works by the skill does not see it"


def _warnings(cases: Cases) -> list[str]:
    found = [too_few(cases)]
    if not cases.test:
        found.append("there is no test case: no figure will be of cases that nobody has seen")
    return [one for one in found if one is not None]
