"""The judge of an environment: the model that its config names, else the teacher."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from kept.core.ports import Model
from kept.errors import Problem, SpecError
from kept.evaluators.environments.contract import Environment, JudgeOptions
from kept.models.config import ModelConfig
from kept.models.providers import PROVIDERS
from kept.models.roles import connect_role, is_free, is_priced
from kept.recipes.skill.money import check_money
from kept.recipes.skill.read import SkillSpec
from kept.recipes.task.charges import Charge
from kept.spec.models import RoleSpec

KEY = "judge_model"
NO_JUDGE = "none"


def judge_config(spec: SkillSpec, env: Environment) -> ModelConfig | None:
    """The model that decides what rules cannot; None where the environment has no use for one.

    Raises `SpecError` for a judge that cannot be read.
    """
    if not isinstance(env, JudgeOptions) or env.judge_model == NO_JUDGE:
        return None
    config = _named(spec, env.judge_model) if env.judge_model else spec.teacher
    if config is None:
        return None
    most, tries = env.judge_max_completion_tokens, env.judge_retries
    return replace(config, max_tokens=most, tries=tries)


def connect_judge(spec: SkillSpec, config: ModelConfig) -> Model:
    """The judge, with its cache; a `SetupError` where it has no price, and money is limited."""
    check_money(spec, config)
    return connect_role("judge", config)


def judge_warnings(env: Environment, judge: ModelConfig | None) -> Iterator[str]:
    """What to know of a judge that is missing, or whose price is."""
    if judge is None and isinstance(env, JudgeOptions):
        yield "there is no judge: answers that need one are graded by the environment's own rule"
    if judge is not None and not is_priced(judge):
        yield f"the price of `{judge.name}` is not known: what it costs is not counted"


def judge_facts(judge: ModelConfig | None) -> dict[str, object]:
    """The judge for readers of a plan: its name, and that it is paid by the call."""
    if judge is None:
        return {}
    charge = Charge("scorer", judge.name, is_priced(judge))
    return {"judge": judge.name, "charges": [] if is_free(judge) else [charge._asdict()]}


def _named(spec: SkillSpec, said: str | dict[str, Any]) -> ModelConfig:
    if isinstance(said, str) and said.partition("/")[0] not in PROVIDERS:
        # a name alone, as the method's source has it, is of the teacher's provider
        if spec.teacher is not None:
            return replace(spec.teacher, model=said, price=None)
        said = {"model": said}
    adapter: TypeAdapter[Any] = TypeAdapter(RoleSpec)
    try:
        return cast("ModelConfig", adapter.validate_python(said).config(spec.folder))
    except ValidationError as error:
        where, hint = spec.where(KEY), "`provider/model`, a block, or `none`"
        raise SpecError(
            [
                Problem(where, ".".join(["env", KEY, *map(str, one["loc"])]), one["msg"], hint)
                for one in error.errors(include_url=False)
            ]
        ) from error
