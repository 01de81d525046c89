"""What a plan needs besides its gate to be a race: a pool, an end in good order, money for it."""

from dataclasses import replace

from kept.core.plan import Plan
from kept.core.schedule import Pooling, RoundRobin
from kept.gates.race import Race
from kept.proposers.measured import MEASURED
from kept.proposers.merge import Merge

LAST_RACE = 14
"""Passes over the deciding cases, of both sides, that are kept for a last race of the pool."""


def with_race(plan: Plan) -> Plan:
    """The plan, racing if its gate is the race; else as it was."""
    gate, schedule = plan.gate, plan.schedule
    if not isinstance(gate, Race) or not isinstance(schedule, RoundRobin):
        return plan
    passes, claims = max(gate.promote_passes), gate.claim_passes
    reserve = 2 * (passes * len(plan.cases.holdout) + claims * len(plan.cases.test))
    late = None
    if plan.budget.max_rollouts is not None:
        late = plan.budget.max_rollouts - reserve - 2 * LAST_RACE * len(plan.cases.holdout)
    pooling = Pooling(schedule, gate.pool_goal, gate.pool_most, late, bool(plan.cases.test))
    proposers = (*plan.proposers, Merge(plan.locate), *MEASURED)
    return replace(plan, schedule=pooling, proposers=proposers, reserve=reserve)
