"""Who is paid by the call in a run of a task: models that its runner, scorer and proposers ask."""

from collections.abc import Iterator
from pathlib import Path

from kept.evaluators.runners.coding_agent import AgentRunnerSpec
from kept.evaluators.runners.command import ModelRunnerSpec
from kept.evaluators.scorers.assertions.spec import AssertionsScorerSpec
from kept.evaluators.scorers.judge import JudgeScorerSpec
from kept.evaluators.scorers.spec import leaves_of
from kept.models.providers import ModelConfig
from kept.models.roles import Role, is_free, is_priced, unbounded
from kept.recipes.base import Charge, Payer
from kept.recipes.task.make_proposers import Proposing
from kept.recipes.task.make_runner import target_of
from kept.recipes.task.spec import TaskSpec

_ROLES: dict[Payer, Role] = {"runner": "target", "scorer": "judge", "proposers": "optimizer"}


def charges_of(task: TaskSpec, proposing: Proposing, folder: Path) -> tuple[Charge, ...]:
    """Each of them once; those that cost nothing are none."""
    asked = _asked(task, proposing, folder)
    charged = (Charge(by, one.name, is_priced(one)) for by, one in asked if not is_free(one))
    return tuple(dict.fromkeys(charged))


def endpoints_of(
    task: TaskSpec, proposing: Proposing, folder: Path
) -> list[tuple[Role, ModelConfig]]:
    """Models that are asked call by call: to run and score, and to propose."""
    return [(_ROLES[by], config) for by, config in _models(task, proposing, folder)]


def open_ended(charges: tuple[Charge, ...], usd_per_rollout: float | None) -> bool:
    """Whether something is paid of which nobody says how much it is at most."""
    return any(charge.by == "proposers" or not usd_per_rollout for charge in charges)


def limited_by(task: TaskSpec, proposing: Proposing, folder: Path) -> tuple[str, ...]:
    """The keys that set a limit of money, those that are missing; none where none could be kept."""
    if any(unbounded(one) is not None for _, one in _models(task, proposing, folder)):
        return ()
    by_rollout = isinstance(task.runner, ModelRunnerSpec) or task.budget.usd_per_rollout is not None
    by_call = all(agent.usd_per_call is not None for agent in proposing.agents)
    keys = {"budget.max_usd": False, "budget.usd_per_rollout": by_rollout, "usd_per_call": by_call}
    return tuple(key for key, given in keys.items() if not given)


def _asked(
    task: TaskSpec, proposing: Proposing, folder: Path
) -> Iterator[tuple[Payer, ModelConfig]]:
    if isinstance(task.runner, AgentRunnerSpec):
        yield "runner", task.runner.model.config(folder)
    yield from _models(task, proposing, folder)
    for agent in proposing.agents:
        yield "proposers", agent.model.config(folder)


def _models(
    task: TaskSpec, proposing: Proposing, folder: Path
) -> Iterator[tuple[Payer, ModelConfig]]:
    """Those that are asked call by call, and not through an agent."""
    if isinstance(task.runner, ModelRunnerSpec):
        target = target_of(task.runner, task.models)
        if target is not None:
            yield "runner", target.config(folder)
    role = (task.models.judge,) if task.models.judge is not None else ()
    for leaf in leaves_of(task.scorer):
        named = leaf.judges if isinstance(leaf, JudgeScorerSpec) else None
        asks = isinstance(leaf, JudgeScorerSpec | AssertionsScorerSpec)
        for judge in (named or role) if asks else ():
            yield "scorer", judge.config(folder)
    for editor in proposing.editors:
        yield "proposers", editor
