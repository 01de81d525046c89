"""Models of a task: checks, aliases of roles, and warnings before a run."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from kept import settings
from kept.errors import SetupError
from kept.evaluators.runners.registry import model_asked, runner_needs
from kept.models.providers import ModelConfig, config_of, missing
from kept.models.roles import ROLES, Role, is_kept, is_priced
from kept.recipes.skill.config_keys import KEYS, from_seed
from kept.recipes.task.spec import TaskSpec
from kept.spec.checks import check_price
from kept.spec.components import ModelBlock, Needs
from kept.spec.shared_sections import ModelSpec, ModelsSpec
from kept.spec.source import Source
from kept.spec.validate import said, section
from kept.spec.yaml import Loc


def configs(models: ModelsSpec, folder: Path) -> dict[Role, ModelConfig]:
    """Return the config of each role that has a model; `SetupError` if KEPT_MODEL is not valid."""
    specs: dict[Role, ModelSpec | None] = {role: getattr(models, role) for role in ROLES}
    found: dict[Role, ModelConfig] = {
        role: spec.config(folder) for role, spec in specs.items() if spec is not None
    }
    # KEPT_MODEL is the default of the optimizer alone
    named = settings.model()
    if models.optimizer is None and named is not None:
        found["optimizer"] = replace(config_of(named), folder=folder)
    return found


def take_seed_names(source: Source) -> None:
    """Translate the seed's names for models into Kept's, and report problems."""
    given = said(source, ("models",))
    if not isinstance(given, dict) or not given.keys() & set(KEYS):
        return
    azure = settings.variable("AZURE_OPENAI_ENDPOINT") is not None
    mapped = from_seed(cast("dict[str, Any]", given), azure=azure)
    for key, message, hint in mapped.wrong:
        source.report(("models", key), message, hint)
    if mapped.agent is not None:
        message = f"`{mapped.agent}` is an agent CLI, which is a runner and no model"
        key = "student_backend" if "student_backend" in given else "backend"
        source.report(("models", key), message, "say in `runner` how a candidate is run")
    cast("dict[str, object]", source.data)["models"] = mapped.models


def check_models(source: Source) -> None:
    """Report models and commands without a price, with which no money limit can be kept."""
    if said(source, ("budget", "max_usd")) is None:
        return
    models = section(source, ("models",), ModelsSpec) or ModelsSpec()
    found: dict[Loc, ModelBlock | None] = {
        ("models", role): cast("ModelSpec | None", getattr(models, role)) for role in ROLES
    }
    asked = model_asked(runner_needs(source))
    if asked is not None:
        found["runner", "model"] = asked.named
    # no model runs the candidate: only the user knows what a rollout costs
    elif said(source, ("budget", "usd_per_rollout")) is None:
        message = "`max_usd` needs `usd_per_rollout`: the most that one may cost"
        source.report(("budget",), message)
    for loc, spec in found.items():
        if spec is not None:
            check_price(source, loc, spec.config(source.folder))


def told(
    task: TaskSpec, folder: Path, needs: Iterable[Needs]
) -> tuple[dict[str, dict[str, object]], tuple[str, ...]]:
    """Return the facts of each role for reports, and warnings before a run."""
    asked = (model for one in needs for model in one.models if not model.by_agent)
    others = [model.named.config(folder) for model in asked if model.named is not None]
    try:
        found = configs(task.models, folder)
    except SetupError as error:
        return {}, (f"KEPT_MODEL: {error.message}", *_unpriced(others))
    facts: dict[str, dict[str, object]] = {
        role: {"model": config.name, "cache": is_kept(role, config)}
        for role, config in found.items()
    }
    warnings = [
        f"the {role} `{config.name}` cannot be asked: {lack}"
        for role, config in found.items()
        if (lack := missing(config)) is not None
    ]
    return facts, (*warnings, *_unpriced([*found.values(), *others]))


def _unpriced(found: Iterable[ModelConfig]) -> list[str]:
    names = {config.name for config in found if not is_priced(config)}
    return [
        f"the price of `{name}` is not known: what it costs is not counted"
        for name in sorted(names)
    ]
