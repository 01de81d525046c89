"""The models of a task: what is wrong with them, and what should be known before a run."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from kept import settings
from kept.errors import SetupError
from kept.evaluators.runners.command import ModelRunnerSpec
from kept.evaluators.scorers.judge import JudgeScorerSpec
from kept.evaluators.scorers.spec import leaves_of
from kept.models.client import connect
from kept.models.providers import ModelConfig, config_of, missing
from kept.models.roles import ROLES, Role, is_kept, is_priced, unbounded
from kept.proposers.spec import ByModelSpec
from kept.recipes.skill.config_keys import KEYS, from_seed
from kept.recipes.task.spec import TaskSpec
from kept.spec.shared_sections import ModelSpec, ModelsSpec
from kept.spec.source import Source
from kept.spec.validate import said, section
from kept.spec.yaml import Loc


def configs(models: ModelsSpec, folder: Path) -> dict[Role, ModelConfig]:
    """The config of each role that has a model; a `SetupError` where KEPT_MODEL names none."""
    specs: dict[Role, ModelSpec | None] = {role: getattr(models, role) for role in ROLES}
    found: dict[Role, ModelConfig] = {
        role: spec.config(folder) for role, spec in specs.items() if spec is not None
    }
    named = settings.model()
    if models.optimizer is None and named is not None:
        found["optimizer"] = replace(config_of(named), folder=folder)
    return found


def take_seed_names(source: Source) -> None:
    """Have the names that a seed has for models mean ours; what is wrong with them is reported."""
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
    """Report what a limit of money cannot be kept with: models and commands without a price."""
    if said(source, ("budget", "max_usd")) is None:
        return
    models = section(source, ("models",), ModelsSpec) or ModelsSpec()
    found: dict[Loc, ModelSpec | None] = {
        ("models", role): cast("ModelSpec | None", getattr(models, role)) for role in ROLES
    }
    asked = section(source, ("runner",), ModelRunnerSpec)
    if asked is not None:
        found["runner", "model"] = asked.model
    elif said(source, ("budget", "usd_per_rollout")) is None:
        message = "`max_usd` needs `usd_per_rollout`: the most that one may cost"
        source.report(("budget",), message)
    for loc, spec in found.items():
        if spec is not None:
            check_price(source, loc, spec.config(source.folder))


def check_price(source: Source, loc: Loc, config: ModelConfig) -> None:
    """Report a model that a limit of money cannot be kept with, where there is one."""
    lack = unbounded(config)
    if lack is not None and said(source, ("budget", "max_usd")) is not None:
        message = "what a call costs at most is not known, so `max_usd` could not be kept"
        source.report(loc, message, f"give `{lack}` in a block for this model")


def check_asked(source: Source, loc: Loc, config: ModelConfig) -> None:
    """Report a model that somebody needs and nobody can ask: no key, address, script or weights."""
    try:
        connect(config)
    except SetupError as error:
        source.report(loc, error.message, error.hint)


def told(task: TaskSpec, folder: Path) -> tuple[dict[str, dict[str, object]], tuple[str, ...]]:
    """What a reader wants to know of each role, and what should be known before a run."""
    others = [spec.config(folder) for spec in _without_role(task)]
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


def _without_role(task: TaskSpec) -> Iterator[ModelSpec]:
    """The models that the runner, judges and proposers of a task name for themselves."""
    if isinstance(task.runner, ModelRunnerSpec) and task.runner.model is not None:
        yield task.runner.model
    for leaf in leaves_of(task.scorer):
        yield from (leaf.judges or ()) if isinstance(leaf, JudgeScorerSpec) else ()
    for proposer in task.proposers or ():
        if isinstance(proposer, ByModelSpec) and proposer.model is not None:
            yield proposer.model


def _unpriced(found: Iterable[ModelConfig]) -> list[str]:
    names = {config.name for config in found if not is_priced(config)}
    return [
        f"the price of `{name}` is not known: what it costs is not counted"
        for name in sorted(names)
    ]
