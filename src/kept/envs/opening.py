"""From settings and a student to an environment that is ready to be trained in."""

from collections.abc import Callable

from kept.core.case import Cases, fault_in, too_few
from kept.core.ports import Runner, Scorer
from kept.envs.contract import Environment
from kept.envs.finding import find_env
from kept.envs.opened import Opened
from kept.envs.probing import PROBE, probed
from kept.envs.scoring import EnvScorer
from kept.envs.settings import EnvSettings
from kept.envs.skills import Read, skill_at
from kept.envs.splitting import Parted, part
from kept.errors import SpecError

Student = Callable[[Environment], Runner]
"""Makes the runner of an environment: a chat model's, or an agent CLI's."""


def open_env(settings: EnvSettings, student: Student, scorer: Scorer | None = None) -> Opened:
    """An environment with its cases, its skill and its student; a `SpecError` with what is wrong.

    `scorer` stands for the environment's own, where a config names how answers are measured.
    """
    env = find_env(settings)
    if env.needs():
        raise SpecError([settings.problem("name", f"`{settings.name}` cannot run: {env.needs()}")])
    parted = part(env, settings)
    return opened(env, settings, parted, student, scorer)


def opened(
    env: Environment,
    settings: EnvSettings,
    parted: Parted,
    student: Student,
    scorer: Scorer | None = None,
) -> Opened:
    """The same, of an environment and cases that are at hand."""
    fault = fault_in(parted.cases)
    if fault is not None:
        raise SpecError([settings.problem("", fault)])
    skill = Read(env.skill())
    if settings.skill_init:
        skill = skill_at(settings.path(settings.skill_init), settings)
    if PROBE in skill.texts:
        raise SpecError([settings.problem("skill_init", f"`{PROBE}` is a name of Kept's own")])
    return Opened(
        name=env.name,
        cases=parted.cases,
        runner=student(env),
        scorer=scorer or env.scorer() or EnvScorer(env),
        about=env.about,
        prompts=env.prompts(),
        skill=skill.texts,
        probe=probed,
        materialise=parted.write,
        warnings=tuple(_warnings(parted.cases)),
        unseen=tuple(map(_unseen, skill.left_out)),
        inputs={"cases": parted.cases.fingerprint()},
    )


def _unseen(name: str) -> str:
    return f"`{name}` of the skill is no text: who works by the skill does not see it"


def _warnings(cases: Cases) -> list[str]:
    found = [too_few(cases)]
    if not cases.train:
        found.append("there is no train case: nothing can be learnt from")
    if not cases.test:
        found.append("there is no test case: no figure will be of cases that nobody has seen")
    return [one for one in found if one is not None]
