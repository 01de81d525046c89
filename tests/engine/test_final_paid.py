"""A final whose rollouts have no known price: it is held by a likely one, and fits the money."""

import asyncio
from dataclasses import dataclass, replace

import pytest

import kept
from kept.core.case import Case, Cases
from kept.core.llm import ModelReply
from kept.core.near_misses import AHEAD
from kept.core.plan import Plan
from kept.core.rollout import Usage
from kept.core.state import State
from kept.gates.race import Race
from kept.proposers.variants import Variant, Variants
from kept.recipes.base import Charge, Facts
from kept.recipes.race_choice import with_race
from kept.testing import MemoryJournal, sit, small_plan
from tests.engine.test_final import RATES, chance

CENT = 0.01
TEXTS = ("worse", "good", "alike", "best")
CASES = Cases(
    tuple(Case(f"t{n}", n) for n in range(30)),
    tuple(Case(f"h{n}", n) for n in range(50)),
    tuple(Case(f"s{n}", n) for n in range(20)),
)


@dataclass
class Priced:
    """Every rollout is one call of about a cent, as it says; or of several times that."""

    dearer: float = 1.0
    tells: bool = True
    paid: float = 0.0
    number: int = 0

    def usual_usd(self, candidate: kept.Candidate, case: kept.Case) -> float | None:
        return CENT if self.tells else None

    async def run(
        self, job: kept.Job, candidate: kept.Candidate, case: kept.Case, scope: kept.Scope
    ) -> kept.Rollout | kept.Failure:
        usd = self.dearer * CENT * (0.5 + chance("price", *job))

        async def do() -> ModelReply:
            self.paid += usd
            return ModelReply("yes", Usage(1, 10, 10, usd=usd))

        reply = await scope.call(str(job), ModelReply, do, 2 * self.dearer * CENT)
        if isinstance(reply, kept.Failure):
            return reply
        rate = RATES[candidate.texts["text"]] + 0.4 * (chance(job.case_id) - 0.5)
        passed = chance(self.number, candidate.texts["text"], *job) < rate
        return kept.Rollout(metrics={"score": float(passed)})

    async def close(self) -> None:
        pass


def plan_of(
    usd: float,
    runner: Priced,
    texts: tuple[str, ...] = TEXTS,
    gate: Race | None = None,
    facts: Facts | None = None,
) -> Plan:
    variants = Variants(tuple(Variant({"text": text}, text) for text in texts))
    plan = replace(small_plan(runner, variants), seed=kept.Candidate({"text": "seed"}))
    plan = replace(plan, facts=facts)
    budget = kept.Budget(max_usd=usd)
    return with_race(replace(plan, cases=CASES, gate=gate or Race(), budget=budget, width=2))


def final_of(plan: Plan) -> tuple[int, tuple[int, ...]]:
    assert isinstance(plan.gate, Race)
    return plan.gate.final.among, plan.gate.final.passes


def run(plan: Plan) -> State:
    return asyncio.run(sit(plan, MemoryJournal()))


def test_a_final_is_held_where_a_likely_price_leaves_twice_the_money_for_it():
    assert final_of(plan_of(100.0, Priced())) == (4, (1, 2, 4, 8))
    among, passes = final_of(plan_of(25.0, Priced()))
    assert among == 4
    assert 2 <= max(passes) < 8, "as deep as the money goes"
    assert final_of(plan_of(10.0, Priced()))[0] == 0, "too little for two passes and the claim"


def test_without_a_likely_price_there_is_no_final():
    assert final_of(plan_of(100.0, Priced(tells=False)))[0] == 0


def test_where_a_judge_is_paid_as_well_a_final_needs_more_money():
    charges = (Charge("runner", "m", True), Charge("scorer", "m", True))
    judged = Facts(charges=charges)
    assert final_of(plan_of(400.0, Priced(), facts=judged)) == (4, (1, 2, 4, 8))
    assert final_of(plan_of(30.0, Priced(), facts=judged))[0] == 0
    assert final_of(plan_of(30.0, Priced()))[0] == 4


@pytest.mark.parametrize("dearer", [1.0, 3.0])
def test_a_final_looks_as_often_as_can_be_paid_when_prices_turn_out_higher(dearer: float):
    runner = Priced(dearer)
    plan = plan_of(40.0, runner)
    state = run(plan)
    assert runner.paid <= 40.0
    assert state.spend.usd == pytest.approx(runner.paid)
    settled = [step for step in state.history if step.turn.proves]
    assert settled, "the final was held"
    assert state.best == kept.Candidate({"text": "best"}).id
    if dearer > 1:
        assert settled[0].turn.passes is not None
        assert settled[0].turn.passes < max(final_of(plan)[1])


def test_a_final_that_proves_nothing_ends_with_its_last_look_and_not_for_want_of_money():
    runner = Priced(3.0)
    state = run(plan_of(40.0, runner, gate=Race(promote_alpha=1e-12, doubt=1.0)))
    (settled,) = (step for step in state.history if step.turn.proves)
    assert settled.verdict.reason.startswith("not proven"), settled.verdict.reason
    assert settled.verdict.numbers["passes"] == settled.turn.passes
    assert runner.paid <= 40.0


@pytest.mark.slow
def test_who_won_is_taken_up_with_the_looks_that_were_paid():
    handed = 0
    for number in range(12):
        runner = Priced(2.0, number=number)
        state = run(plan_of(40.0, runner, ("good", "best", "alike")))
        for step in state.history:
            if AHEAD in step.verdict.numbers:
                handed += 1
                after = state.history[step.step + 1]
                assert after.turn.passes == step.turn.passes
                assert after.verdict.outcome == "keep", after.verdict.reason
    assert handed, "another than the best at entry won at least once"
