"""A limit of money for a task that nobody wrote: a first run must not cost whatever it may."""

from pathlib import Path
from typing import Any, cast

from kept.errors import SetupError
from kept.models.config import ModelConfig
from kept.models.providers import config_of
from kept.models.roles import is_free, unbounded
from kept.spec.models import ModelSpec

USD = 5
"""Enough for a first look with a small model."""

STEPS = 20


def budget_of(*models: object, steps: int = STEPS) -> tuple[dict[str, Any], list[str]]:
    """Steps and, where all models that are asked have a price, dollars; notes on either.

    Args:
        *models: `provider/model`, or the block of a task.
        steps: how many.
    """
    configs = [_config(model) for model in models]
    budget: dict[str, Any] = {"max_iterations": steps}
    if all(config is not None and is_free(config) for config in configs):
        return budget, []
    unknown = [_name(n) for c, n in zip(configs, models, strict=True) if c is None or unbounded(c)]
    if unknown:
        note = f"what `{unknown[0]}` costs at most is not known, so the task has no limit of money"
        return budget, [note]
    note = f"a run may spend ${USD:g}: `budget.max_usd`"
    return {**budget, "max_usd": USD}, [note]


def _name(model: object) -> str:
    return str(cast("dict[str, object]", model).get("model") if isinstance(model, dict) else model)


def _config(model: object) -> ModelConfig | None:
    try:
        if isinstance(model, str):
            return config_of(model)
        return ModelSpec.model_validate(model).config(Path())
    except (SetupError, ValueError):
        return None  # a check of the task says what is wrong with it
