"""A race whose rollouts have no known price: its end is paid for all the same."""

import asyncio
from dataclasses import replace

import pytest

import kept
from kept.core.budget import EndMoney, Spend
from kept.core.case import Case, Cases
from kept.core.model import ModelReply
from kept.core.plan import Plan
from kept.core.rollout import Usage
from kept.core.schedule import CLAIM, PROVE
from kept.engine.purse import Purse
from kept.gates.race import Race
from kept.recipes.racing import with_race
from kept.testing import MemoryJournal, sit, small_plan
from tests.engine.test_racing import chance, names

CENT = 0.01


class Paying:
    """Every rollout makes one call, which costs about a cent; nobody knows before."""

    def __init__(self) -> None:
        self.paid = 0.0

    async def run(
        self, job: kept.Job, candidate: kept.Candidate, case: kept.Case, scope: kept.Scope
    ) -> kept.Rollout | kept.Failure:
        async def do() -> ModelReply:
            usd = CENT * (0.5 + chance("price", *job))
            self.paid += usd
            return ModelReply("yes", Usage(1, 10, 10, usd=usd))

        reply = await scope.call(str(job), ModelReply, do)
        if isinstance(reply, kept.Failure):
            return reply
        text = candidate.texts["text"]
        odds = 0.3 + 0.08 * text.count("good") - 0.1 * text.count("bad")
        return kept.Rollout(metrics={"score": float(chance(*job) < odds)})

    async def close(self) -> None:
        pass


class Teacher:
    """Asks a model for every proposal, which costs far more than a rollout."""

    name = "teacher"
    serial = False

    async def propose(self, brief: kept.Brief, scope: kept.Scope) -> kept.Proposal:
        async def do() -> ModelReply:
            return ModelReply("good", Usage(1, 10, 10, usd=10 * CENT))

        await scope.call(str(brief.step), ModelReply, do)
        kind = ("good", "idle", "bad")[int(3 * chance("kind", brief.step))]
        return kept.Proposal((kept.Append("text", f"{kind} {brief.step}\n"),))


def world(usd: float, runner: Paying) -> Plan:
    cases = Cases(
        tuple(Case(f"t{n}", n) for n in range(12)),
        tuple(Case(f"h{n}", n) for n in range(20)),
        tuple(Case(f"s{n}", n) for n in range(8)),
    )
    plan = small_plan(runner, Teacher())
    budget = kept.Budget(max_usd=usd)
    return with_race(replace(plan, cases=cases, gate=Race(), budget=budget, width=2))


@pytest.mark.parametrize("usd", [12.0, 30.0])
def test_the_end_of_a_race_is_paid_for_where_no_rollout_has_a_price(usd: float):
    runner = Paying()
    journal = MemoryJournal()
    state = asyncio.run(sit(world(usd, runner), journal))
    assert state.stopped is not None
    assert state.stopped.kind == "usd"
    assert state.spend.usd <= usd
    assert state.spend.usd > 0.75 * usd
    assert state.best != state.seed, "something was proven"
    assert names(state)[-1] == CLAIM
    assert state.closed[-1].verdict.code == "claim", "and its gain was measured"
    last = [step for step in state.closed if step.turn.proves or step.turn.proposer == PROVE]
    assert all(step.turn.passes is not None for step in last)
    assert not any(step.verdict.code == "unaffordable" for step in last)


def test_what_proposers_cost_is_not_taken_for_the_price_of_a_rollout():
    state = asyncio.run(sit(world(30.0, Paying()), MemoryJournal()))
    assert state.spend.usd_a_rollout == pytest.approx(CENT, rel=0.1)
    assert state.spend.proposing_usd > 0.2 * state.spend.usd


def test_the_end_is_never_left_more_than_its_share():
    money = EndMoney(max_usd=8.0, rollouts=1000)
    assert money.aside(1000, None) == 2.0
    assert money.aside(1000, 0.001) == 1.0
    assert money.aside(1000, 1.0) == 2.0
    assert money.aside(100, 1.0) == pytest.approx(0.2)
    assert money.left(Spend()) is None
    assert money.left(Spend(rollouts=100, usd=3.0, proposing_usd=2.0)) == 450


def test_a_second_proof_leaves_the_claim_its_rollouts():
    plan = world(12.0, Paying())
    assert plan.claims == 2 * 3 * 8
    purse = Purse(replace(plan, worst_usd=CENT), Spend(), lambda: 0.0)
    assert purse.leave({"screen"}) == plan.reserve
    assert purse.leave({"promote"}) == plan.claims
    assert purse.leave({"test"}) == 0
    purse.proving = True
    assert purse.leave({"screen"}) == plan.claims, "a look at what is to be proven"
