"""What a plan needs besides its gate to be a race: a pool, an end in good order, money for it."""

from dataclasses import replace
from math import ceil

from kept.core.budget import rollouts_within
from kept.core.plan import Plan
from kept.core.ports import Gate
from kept.core.schedule import Pooling, RoundRobin
from kept.errors import SetupError
from kept.gates import Strict
from kept.gates.race import PRESETS, Race
from kept.proposers.measured import MEASURED
from kept.proposers.merge import Merge

FEWEST = 8
"""Deciding cases without which nothing could be proven for others."""

END_PART, MOST_END = 0.25, 0.6
"""Share of a rollout budget that the end may take, of an ordinary and of a very small one."""

LEAST_PASSES = 2
"""Over the deciding cases, for a proof."""

LAST_RACE = 14
"""Passes over the deciding cases, of both sides, that are kept for a last race of the pool."""

LAST_PART = 0.1
"""Share of a rollout budget that they may be at most."""


def default_gate(plan: Plan) -> Gate:
    """The race, where cases and rollouts are enough for one; else `strict`."""
    try:
        _fitted(PRESETS["balanced"], plan)
    except SetupError:
        return Strict()
    return PRESETS["balanced"]


def with_race(plan: Plan) -> Plan:
    """The plan, racing if its gate is the race; else as it was."""
    gate, schedule = plan.gate, plan.schedule
    if not isinstance(gate, Race) or not isinstance(schedule, RoundRobin):
        return plan
    gate = _fitted(gate, plan)
    own = (Merge(plan.locate), *MEASURED)
    for name in {proposer.name for proposer in plan.proposers} & {one.name for one in own}:
        raise SetupError(
            f"`{name}` is a proposer of the race itself", hint="give yours another name"
        )
    cases, limit = plan.cases, _limit(plan)
    late = None
    if limit is not None:
        last_race = min(2 * LAST_RACE * len(cases.holdout), int(limit * LAST_PART))
        late = limit - _reserve(gate, plan) - last_race
    pooling = Pooling(
        schedule,
        gate.pool_goal,
        gate.pool_most,
        late,
        sealed=bool(cases.test),
        pools=bool(cases.train),
    )
    return replace(
        plan,
        gate=gate,
        schedule=pooling,
        proposers=(*plan.proposers, *own),
        reserve=_reserve(gate, plan),
    )


def _reserve(gate: Race, plan: Plan) -> int:
    """Rollouts of both sides for the proof and the claim, and for a look at what is proven."""
    passes, cases = max(gate.promote_passes), plan.cases
    each_side = passes * len(cases.holdout) + gate.claim_passes * len(cases.test)
    return _look(gate, plan) + 2 * each_side


def _look(gate: Race, plan: Plan) -> int:
    """Rollouts by which several together are looked at before they are raced or proven."""
    return max(size for size, _ in gate.screen.together) if plan.cases.train else 0


def _limit(plan: Plan) -> int | None:
    """Rollouts that the budget comes to, by number or by money."""
    return rollouts_within(plan.budget, plan.worst_usd)


def _fitted(gate: Race, plan: Plan) -> Race:
    """The gate with an end that leaves most of a small budget to what comes before it."""
    if len(plan.cases.holdout) < FEWEST:
        there = len(plan.cases.holdout)
        raise SetupError(
            f"a race needs {FEWEST} deciding cases or more, and there are {there}",
            hint="give more cases, or use the gate `strict`",
        )
    limit = _limit(plan)
    if limit is None or _reserve(gate, plan) <= limit * END_PART:
        return gate
    cases, most, look = plan.cases, max(gate.promote_passes), _look(gate, plan)
    for claims in (gate.claim_passes, 1):
        passes = int((limit * END_PART - look) / 2 - claims * len(cases.test)) // len(cases.holdout)
        if passes >= LEAST_PASSES:
            return _ending(gate, min(most, passes), claims)
    few = look + 2 * (LEAST_PASSES * len(cases.holdout) + len(cases.test))
    if few <= limit * MOST_END:
        return _ending(gate, LEAST_PASSES, 1)
    raise SetupError(
        f"{limit} rollouts are too few for a race on {len(cases.holdout)} deciding cases",
        hint=f"give it {ceil(few / MOST_END)} or more, or use the gate `strict`",
    )


def _ending(gate: Race, passes: int, claims: int) -> Race:
    """The gate with so many passes at most for the proof, and for the claim."""
    looks = {passes, *(look for look in gate.promote_passes if look <= passes // 2)}
    return replace(gate, promote_passes=tuple(sorted(looks)), claim_passes=claims)
