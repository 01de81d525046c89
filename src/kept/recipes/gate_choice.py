"""Default gate without cases, schedule of proposers, and expected cost of a rollout."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from kept.core.artifact import Candidate
from kept.core.budget import rollouts_within
from kept.core.case import Case
from kept.core.plan import Plan
from kept.core.ports import Gate, Proposer, Schedule
from kept.core.schedules.bandit import Bandit
from kept.core.schedules.round_robin import Pooling, RoundRobin
from kept.errors import SetupError
from kept.gates.repeats import Repeats
from kept.gates.seed_rules import Strict
from kept.proposers.variants import Variants


@runtime_checkable
class Usual(Protocol):
    """A runner that can tell the usual cost of a rollout."""

    def usual_usd(self, candidate: Candidate, case: Case) -> float | None:
        """Return the cost with a reply of medium length; None if it is not known."""
        ...


def usual_call(plan: Plan) -> float | None:
    """Return the mean usual cost of a rollout of the seed over cases; None if not known."""
    if not isinstance(plan.runner, Usual):
        return None
    cases = (*plan.cases.train, *plan.cases.holdout, *plan.cases.test)
    found = [plan.runner.usual_usd(plan.seed, case) for case in cases]
    known = [usd for usd in found if usd is not None]
    return sum(known) / len(known) if known else None


def paid_for_runs_alone(plan: Plan) -> bool:
    """True if only the model that is run is paid by the call: no judge, no proposer."""
    # imported at use: a plan made in Python has no facts
    from kept.recipes.base import plan_facts

    return all(charge.by == "runner" for charge in plan_facts(plan).charges)


MIN_REPEATS = 30
"""Fewest rollouts with which a race over repeats can end in a keep: 13 wins in a row, and a few."""


def gate_without_cases(plan: Plan) -> Gate:
    """Return the gate `repeats`; `strict` if the budget pays for too few rollouts."""
    return Repeats() if _too_few(plan) is None else Strict()


def repeats_of(plan: Plan) -> Repeats:
    """Return the gate `repeats`, as named by the user; raises `SetupError` if it cannot decide."""
    if not plan.cases.implicit:
        message = "the gate `repeats` is for a run without cases: it repeats the whole evaluation"
        raise SetupError(message, hint="leave out the cases, or use the gate `race` or `strict`")
    few = _too_few(plan)
    if few is not None:
        hint = f"give it {MIN_REPEATS} or more, or use the gate `strict`"
        raise SetupError(f"{few} rollouts are too few for the gate `repeats`", hint=hint)
    return Repeats()


def _too_few(plan: Plan) -> int | None:
    """Return the rollouts that the budget allows if they are too few, else None."""
    limit = rollouts_within(plan.budget, plan.worst_usd)
    return None if limit is None or limit >= MIN_REPEATS else limit


ScheduleName = Literal["bandit", "in_turn"]


def schedule_name(schedule: Schedule) -> ScheduleName:
    """Return the name of the schedule by which the proposers of a run take turns."""
    inner = schedule.inner if isinstance(schedule, Pooling) else schedule
    return "bandit" if isinstance(inner, Bandit) else "in_turn"


def schedule_of(proposers: Sequence[Proposer], name: ScheduleName, seed: int) -> Schedule:
    """Return the schedule of that name; round robin if there is no choice between proposers."""
    names = tuple(proposer.name for proposer in proposers)
    given = frozenset(one.name for one in proposers if isinstance(one, Variants))
    # a bandit needs several proposers, and one at least that writes texts
    if name == "in_turn" or len(names) < 2 or len(given) == len(names):
        return RoundRobin(names)
    return Bandit(names, seed, given)
