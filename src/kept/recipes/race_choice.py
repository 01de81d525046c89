"""Parts that a plan needs for a race besides its gate: a pool, a fitted end, money for it."""

from dataclasses import replace
from itertools import combinations
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from kept.core.budget import END_PART, MOST_END, EndMoney, rollouts_within
from kept.core.plan import Plan
from kept.core.ports import Building, Gate, Racing
from kept.core.schedules.round_robin import LEAST_PASSES, PaidByCall, Pooling
from kept.core.state import MOST_BARS
from kept.core.text import are
from kept.errors import SetupError
from kept.gates.race import PRESETS, Race
from kept.gates.repeats import Repeats
from kept.gates.seed_rules import Strict
from kept.proposers.merge import Merge
from kept.proposers.variants import MEASURED, Variants
from kept.recipes.gate_choice import gate_without_cases, paid_for_runs_alone, usual_call

if TYPE_CHECKING:
    from kept.recipes.task.spec import RaceSpec

MIN_RACE_CASES = 8
"""Fewest deciding cases with which a gain can be proven for other cases."""

DEARER, JUDGED = 2, 8
"""Factors by which a rollout may cost more than a usual call, and a final can still be paid.
The second holds if judges are paid as well: what they are asked is not known before."""

LAST_RACE = 14
"""Passes over the deciding cases, of both sides, reserved for a last race of the pool."""

LAST_PART = 0.1
"""Largest share of a rollout budget that the last race may take."""

CLIMBING = 16
"""Fewest deciding cases with which signs alone show, without noise, what helps half of them."""


def race_of(spec: "RaceSpec") -> Race:
    """Return the preset that a task names, with the task's own figures."""
    race, said = PRESETS[spec.preset], dict(spec.said)
    screen = replace(race.screen, **said.pop("screen", {}))
    simplify = replace(race.simplify, **said.pop("simplify", {}))
    final = replace(race.final, **said.pop("final", {}))
    return replace(race, screen=screen, simplify=simplify, final=final, **said)


class Decided(NamedTuple):
    """Gate chosen for a run that names none."""

    gate: Gate
    why: str = ""
    """Reason why it is not the race; empty if it is."""


def default_gate(plan: Plan, began: str = "") -> Decided:
    """Return the race if there are enough cases and rollouts for one, else `strict`.

    Without cases it is `repeats`, or `strict` with tie-breakers or too few rollouts. A resumed run
    keeps the gate that it began with, whatever its budget is now.
    """
    if began == "race":
        return Decided(PRESETS["balanced"])
    if began:
        return Decided(Repeats() if began == "repeats" else Strict(), "the run began with it")
    if plan.cases.implicit:
        # the gate `repeats` cannot recognize ties
        ties = plan.objective.tie_breakers
        return Decided(Strict() if ties else gate_without_cases(plan), "there are no cases")
    try:
        raced_ties(plan)
        _fitted(PRESETS["balanced"], plan)
    except SetupError as short:
        return Decided(Strict(), short.message)
    return Decided(PRESETS["balanced"])


def raced_ties(plan: Plan) -> None:
    """Raise a `SetupError` if a race could not recognize a tie."""
    if not plan.objective.tie_breakers:
        return
    if plan.objective.scale is None:
        raise SetupError("`policy.tie_breakers` of a race need `objective.bounds`, to tell a tie")
    if not plan.cases.train:
        raise SetupError(
            "`policy.tie_breakers` of a race need train cases, and there are none",
            hint="give them a part in `cases.split`, as in 3:5:2",
        )


def with_race(plan: Plan) -> Plan:
    """Return the plan with the parts of a race if its gate is the race; else unchanged."""
    gate, schedule = plan.gate, plan.schedule
    if not isinstance(gate, Race) or not isinstance(schedule, Racing):
        return plan
    gate = _with_final(_simplifying(_fitted(gate, plan), plan), plan)
    final = gate.final.among > 0
    own = (Merge(plan.locate, single=final), *MEASURED)
    # the race proposes merges and measurements itself, under these names
    for name in {proposer.name for proposer in plan.proposers} & {one.name for one in own}:
        raise SetupError(
            f"`{name}` is a proposer of the race itself", hint="give yours another name"
        )
    cases, limit = plan.cases, _limit(plan)
    pools = bool(cases.train) and schedule.allows_pool
    late = None
    if limit is not None:
        last_race = min(2 * LAST_RACE * len(cases.holdout), int(limit * LAST_PART))
        # from here on the pool is raced as it is: later there would be no budget for that
        late = limit - _reserve(gate, plan) - last_race
    pooling = Pooling(
        schedule,
        gate.pool_goal,
        gate.pool_most,
        late,
        sealed=bool(cases.test),
        pools=final or pools,
        climbs=len(cases.holdout) >= CLIMBING,
        final=final,
        builders=frozenset(
            one.name for one in plan.proposers if isinstance(one, Building) and one.builds
        ),
        seed=plan.random_seed,
        paid=_paid_by_call(gate, plan),
    )
    return replace(
        plan,
        gate=gate,
        schedule=pooling,
        proposers=(*plan.proposers, *own),
        reserve=_reserve(gate, plan),
        claims=_claims(gate, plan),
        least_end=_least(gate, plan),
    )


def _least(gate: Race, plan: Plan) -> tuple[int, int]:
    """Return the rollouts of the smallest end, claim included, and of its claim alone."""
    claim = 2 * len(plan.cases.test)
    if gate.fixed:
        return claim, claim
    if gate.final.among:
        return gate.final.within(LEAST_PASSES).rest(_contested(plan)) + claim, claim
    return _look(gate, plan) + 2 * LEAST_PASSES * len(plan.cases.holdout) + claim, claim


def _paid_by_call(gate: Race, plan: Plan) -> PaidByCall | None:
    """Return the end's needs if a money limit holds and rollouts have no known price; else None."""
    usd = plan.budget.rollouts_usd
    if usd is None or plan.worst_usd:
        return None
    apart = plan.budget.max_usd is None
    return PaidByCall(
        EndMoney(usd, _reserve(gate, plan), _least(gate, plan)[0], apart),
        last_race=2 * LAST_RACE * len(plan.cases.holdout),
        look=_look(gate, plan),
        proof_pass=2 * len(plan.cases.holdout),
        claim_pass=2 * max(1, len(plan.cases.test)),
        claims=_claims(gate, plan),
        final=gate.final.costs(_contested(plan)) if gate.final.among else (),
    )


def _simplifying(gate: Race, plan: Plan) -> Race:
    """Return the gate with levels for all simplifications that may be open at once."""
    cuts = any(getattr(one, "simplifies", False) for one in plan.proposers)
    ties = bool(plan.objective.tie_breakers)
    # one more for a tie: the candidate that it would replace is evaluated as well
    bars = 1 + MOST_BARS + ties if cuts or ties else 1
    return replace(gate, simplify=replace(gate.simplify, at_once=plan.width, bars=bars))


def _with_final(gate: Race, plan: Plan) -> Race:
    """Return the gate with a final, if a run only has alternatives and can pay for it.

    A final finds the best alternative, not the cheapest of equals: tie-breakers rule it out.
    """
    if plan.objective.tie_breakers:
        return gate
    limits = [] if (most := _limit(plan)) is None else [most]
    if plan.budget.max_usd is not None and _paid_by_call(gate, plan) is not None:
        each = usual_call(plan)
        if each is None:
            return gate
        dearer = DEARER if paid_for_runs_alone(plan) else JUDGED
        limits += [int(plan.budget.max_usd / (dearer * each))] if each else []
    limit = min(limits) - _claims(gate, plan) if limits else None
    final = gate.final.fitted(_alternatives(plan), _contested(plan), limit)
    return gate if final is None else replace(gate, final=final)


def _contested(plan: Plan) -> int:
    """Count the cases of a final: all but the sealed test cases."""
    return len(plan.cases.train) + len(plan.cases.holdout)


def _alternatives(plan: Plan) -> int:
    """Count the texts to choose from; 0 if a run does more than choose.

    The texts existed before the run, so no case has shaped them, and each replaces the others.
    """
    given = [one for one in plan.proposers if isinstance(one, Variants)]
    texts = [{*variant.texts} for one in given for variant in one.variants]
    # any two of them change a common file, or they could be combined
    if len(given) < len(plan.proposers) or not all(a & b for a, b in combinations(texts, 2)):
        return 0
    return len(texts)


def _reserve(gate: Race, plan: Plan) -> int:
    """Count the rollouts of both sides for proof and claim, and for a look at what is proven."""
    if gate.final.among:
        return gate.final.rest(_contested(plan)) + _claims(gate, plan)
    if gate.fixed:
        return _claims(gate, plan)
    proof = 2 * max(gate.promote_passes) * len(plan.cases.holdout)
    return _look(gate, plan) + proof + _claims(gate, plan)


def _claims(gate: Race, plan: Plan) -> int:
    return 2 * gate.claim_passes * len(plan.cases.test)


def _look(gate: Race, plan: Plan) -> int:
    """Count the rollouts that screen several candidates together before a race or proof."""
    return max(size for size, _ in gate.screen.together) if plan.cases.train else 0


def _limit(plan: Plan) -> int | None:
    """Return the rollouts that the budget allows, by number or by money."""
    return rollouts_within(plan.budget, plan.worst_usd)


def _fitted(gate: Race, plan: Plan) -> Race:
    """Return the gate with an end that leaves most of a small budget to the search before it."""
    if gate.fixed:
        return gate
    if len(plan.cases.holdout) < MIN_RACE_CASES:
        there = len(plan.cases.holdout)
        raise SetupError(
            f"a race needs {MIN_RACE_CASES} deciding cases or more, and there {are(there)} {there}",
            hint="give more cases, or use the gate `strict`",
        )
    limit = _limit(plan)
    if limit is None or _reserve(gate, plan) <= limit * END_PART:
        return gate
    # first fewer passes of proof, then a single pass of the claim, at last the least of both
    cases, most, look = plan.cases, max(gate.promote_passes), _look(gate, plan)
    for claims in (gate.claim_passes, 1):
        passes = int((limit * END_PART - look) / 2 - claims * len(cases.test)) // len(cases.holdout)
        if passes >= LEAST_PASSES:
            return gate.ending(min(most, passes), claims)
    few, _ = _least(gate, plan)
    if few <= limit * MOST_END:
        return gate.ending(LEAST_PASSES, 1)
    raise SetupError(
        f"{limit} rollouts are too few for a race on {len(cases.holdout)} deciding cases",
        hint=f"give it {ceil(few / MOST_END)} or more, or use the gate `strict`",
    )
