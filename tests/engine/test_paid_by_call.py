"""A race whose rollouts have no known price: its end is paid for all the same."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

import kept
from kept.core.budget import EndMoney, Spend
from kept.core.case import Case, Cases
from kept.core.event import StepClosed
from kept.core.llm import ModelReply
from kept.core.plan import Plan
from kept.core.rollout import Usage
from kept.core.schedules.round_robin import CLAIM, PROVE, RoundRobin
from kept.core.score import Score
from kept.engine.budget import Purse
from kept.gates.race import Race
from kept.gates.seed_rules import Strict
from kept.recipes.race_choice import with_race
from kept.testing import MemoryJournal, sit, small_plan
from tests.engine.test_racing import chance, names

CENT = 0.01


class Paying:
    """Every rollout makes one call, which costs about a cent; nobody knows before."""

    def __init__(self, worst: float | None = None) -> None:
        self.paid = 0.0
        self.worst = worst

    async def run(
        self, job: kept.Job, candidate: kept.Candidate, case: kept.Case, scope: kept.Scope
    ) -> kept.Rollout | kept.Failure:
        async def do() -> ModelReply:
            usd = CENT * (0.5 + chance("price", *job))
            self.paid += usd
            return ModelReply("yes", Usage(1, 10, 10, usd=usd))

        reply = await scope.call(str(job), ModelReply, do, self.worst)
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


def world(usd: float, runner: Paying, proposer: Teacher | None = None) -> Plan:
    cases = Cases(
        tuple(Case(f"t{n}", n) for n in range(12)),
        tuple(Case(f"h{n}", n) for n in range(20)),
        tuple(Case(f"s{n}", n) for n in range(8)),
    )
    plan = small_plan(runner, proposer or Teacher())
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
    assert state.history[-1].verdict.code == "claim", "and its gain was measured"
    last = [step for step in state.history if step.turn.proves or step.turn.proposer == PROVE]
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


@pytest.mark.parametrize("usd", [3.0, 4.0])
def test_a_small_limit_still_pays_for_an_end(usd: float):
    state = asyncio.run(sit(world(usd, Paying(), Cheap()), MemoryJournal()))
    assert state.spend.usd <= usd
    assert [step.verdict.code for step in state.history][-1] == "claim"
    assert not any(
        step.turn.proves and step.verdict.code == "unaffordable" for step in state.history
    )


class Cheap(Teacher):
    """Costs nothing, and what is good is very good."""

    async def propose(self, brief: kept.Brief, scope: kept.Scope) -> kept.Proposal:
        kind = ("good good good good good", "idle", "bad")[int(3 * chance("kind", brief.step))]
        return kept.Proposal((kept.Append("text", f"{kind} {brief.step}\n"),))


class Asking:
    """A scorer that asks a judge, and takes over what the runner measured."""

    def __init__(self, runner: Paying) -> None:
        self.runner = runner

    async def score(
        self,
        job: kept.Job,
        rollout: kept.Rollout,
        candidate: kept.Candidate,
        case: kept.Case,
        scope: kept.Scope,
    ) -> Score | kept.Failure:
        return await self.ask(job, scope) or Score(rollout.metrics)

    async def ask(self, job: kept.Job, scope: kept.Scope) -> kept.Failure | None:
        """All that there is to ask; why there is no score, or None."""
        raise NotImplementedError

    async def pay(self, scope: kept.Scope, worst: float | None = None) -> None:
        """Ask once."""

        async def do() -> ModelReply:
            await asyncio.sleep(0)
            self.runner.paid += 0.8 * CENT
            return ModelReply("5", Usage(1, 10, 10, usd=0.8 * CENT))

        await scope.call("judge", ModelReply, do, worst)

    async def close(self) -> None:
        pass


class Late(Asking):
    """The judge is late the first time, and may be down the second."""

    def __init__(self, runner: Paying, *, down: bool = False) -> None:
        super().__init__(runner)
        self.down = down
        self.asked: Counter[kept.Job] = Counter()

    async def ask(self, job: kept.Job, scope: kept.Scope) -> kept.Failure | None:
        self.asked[job] += 1
        if self.asked[job] == 1:
            return kept.Failure("timeout", "infrastructure", "late")
        await self.pay(scope.branch("judge"))
        if self.down and job.case_id == "h1" and self.asked[job] < 4:
            return kept.Failure("server", "infrastructure", "down", tried=True)
        return None


@pytest.mark.parametrize("down", [False, True])
def test_a_scorer_that_tries_again_pays_for_both_its_own_calls_and_the_runners(down: bool):
    runner = Paying()
    plan = replace(world(30.0, runner, Cheap()), scorer=Late(runner, down=down))
    free = replace(plan, budget=kept.Budget(max_iterations=4))
    state = asyncio.run(sit(free, MemoryJournal()))
    assert state.spend.usd == pytest.approx(runner.paid)
    runner.paid = 0.0
    tight = replace(plan, scorer=Late(runner, down=down), budget=kept.Budget(max_usd=2.0))
    asyncio.run(sit(tight, MemoryJournal()))
    assert runner.paid <= 2.0


def test_calls_that_were_cut_off_are_still_paid_for_when_a_run_goes_on():
    runner = Paying(worst=1.5 * CENT)
    plan = replace(world(30.0, runner, Cheap()), gate=Strict(), reserve=0, claims=0)
    plan = replace(plan, scorer=ThreeCalls(runner), budget=kept.Budget(max_usd=1.0), workers=8)
    plan = replace(plan, schedule=RoundRobin(("teacher",)), proposers=(Cheap(),))
    journal = MemoryJournal()
    for _ in range(6):
        asyncio.run(sit(plan, journal))
        journal = journal.reopened()
        assert runner.paid <= 1.0


class ThreeCalls(Asking):
    """The judge asks back, so that a limit may fall between two calls of one rollout."""

    async def ask(self, job: kept.Job, scope: kept.Scope) -> kept.Failure | None:
        for n in range(3):
            await self.pay(scope.branch(f"judge {n}"), CENT)
        return None


def test_what_ran_out_is_named_alike_after_a_resume():
    runner = Paying()
    plan = world(12.0, runner, Cheap())
    plan = replace(plan, budget=kept.Budget(max_usd=12.0, max_rollouts=100_000))
    journal = MemoryJournal()
    whole = asyncio.run(sit(plan, journal))
    assert whole.stopped is not None
    assert whole.stopped.kind == "usd"
    given_up = next(
        n
        for n, record in enumerate(journal.records)
        if isinstance(record, StepClosed) and record.verdict.code == "unaffordable"
    )
    again = asyncio.run(sit(plan, journal.reopened(given_up + 1)))
    assert again.stopped == whole.stopped
