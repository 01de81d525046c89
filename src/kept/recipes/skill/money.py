"""A limit of money that can be kept."""

from kept.errors import SetupError
from kept.models.config import ModelConfig
from kept.models.roles import unbounded
from kept.recipes.skill.read import SkillSpec


def check_money(spec: SkillSpec, *asked: ModelConfig | None) -> None:
    """A limit of money needs prices: a run that cannot keep to it does not start."""
    if spec.budget.max_usd is None:
        return
    for config in filter(None, asked):
        if lacks := unbounded(config):
            raise SetupError(
                f"`max_usd` cannot be kept: `{config.name}` has no `{lacks}`",
                hint="leave `budget.max_usd` out, or set `budget.max_rollouts`",
            )
