"""Models that cost money by the call in a task: those of its runner, scorer and proposers."""

from collections.abc import Iterator
from pathlib import Path

from kept.evaluators.runners.registry import RUNNERS, model_asked
from kept.evaluators.scorers.registry import SCORERS
from kept.models.providers import ModelConfig
from kept.models.roles import Role, is_free, is_priced, unbounded
from kept.recipes.base import Charge, Payer
from kept.recipes.task.components import Proposing
from kept.recipes.task.spec import TaskSpec
from kept.spec.components import ModelNeed, Needs, joined

_ROLES: dict[Payer, Role] = {"runner": "target", "scorer": "judge", "proposers": "optimizer"}


def charges_of(task: TaskSpec, proposing: Proposing, folder: Path) -> tuple[Charge, ...]:
    """Return each charged model once; free models are left out."""
    asked = _asked(task, proposing, folder)
    charged = (Charge(by, one.name, is_priced(one)) for by, one in asked if not is_free(one))
    return tuple(dict.fromkeys(charged))


def endpoints_of(
    task: TaskSpec, proposing: Proposing, folder: Path
) -> list[tuple[Role, ModelConfig]]:
    """Return the models that are asked call by call, to run, to score and to propose."""
    return [(_ROLES[by], config) for by, config in _models(task, proposing, folder)]


def open_ended(charges: tuple[Charge, ...], usd_per_rollout: float | None) -> bool:
    """True if something is paid without a known maximum cost."""
    # `usd_per_rollout` limits runner and scorer, but no proposer
    return any(charge.by == "proposers" or not usd_per_rollout for charge in charges)


def limited_by(task: TaskSpec, proposing: Proposing, folder: Path) -> tuple[str, ...]:
    """Return the missing keys of a money limit; none if no such limit could be kept."""
    # a model without a maximum price cannot be held to a limit, whatever is set
    if any(unbounded(one) is not None for _, one in _models(task, proposing, folder)):
        return ()
    asks = model_asked(RUNNERS.needs(task.runner)) is not None
    by_rollout = asks or task.budget.usd_per_rollout is not None
    by_call = all(needs.worst_usd is not None for needs in proposing.needs)
    keys = {"budget.max_usd": False, "budget.usd_per_rollout": by_rollout, "usd_per_call": by_call}
    return tuple(key for key, given in keys.items() if not given)


def _needed(task: TaskSpec, proposing: Proposing) -> Iterator[tuple[Payer, ModelNeed]]:
    rows: dict[Payer, Needs] = {
        "runner": RUNNERS.needs(task.runner),
        "scorer": SCORERS.needs(task.scorer),
        "proposers": joined(proposing.needs),
    }
    return ((by, model) for by, needs in rows.items() for model in needs.models)


def _asked(
    task: TaskSpec, proposing: Proposing, folder: Path
) -> Iterator[tuple[Payer, ModelConfig]]:
    for by, model in _needed(task, proposing):
        config = model.config(task.models, folder)
        if config is not None:
            yield by, config


def _models(
    task: TaskSpec, proposing: Proposing, folder: Path
) -> Iterator[tuple[Payer, ModelConfig]]:
    """Yield the models that are asked call by call, and not through an agent."""
    for by, model in _needed(task, proposing):
        config = None if model.by_agent else model.config(task.models, folder)
        if config is not None:
            yield by, config
