"""The money of proposers' calls is bounded like that of rollouts."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.core.budget import Spend
from kept.core.event import StepClosed
from kept.core.llm import ModelReply
from kept.core.ports import Scope
from kept.core.rollout import Failure, Usage
from kept.engine.budget import OutOfBudget, Purse, Till
from kept.engine.replay import JournalScope
from kept.testing import MemoryJournal, sit, small_plan
from tests.engine.worlds import make_plan


async def half(candidate: kept.Candidate) -> float:
    return 0.5


def run(home: Path, usd: float, limit: float, width: int) -> kept.Result:
    """A run whose proposer makes a call of so much money for every step."""

    async def propose(brief: kept.Brief, scope: Scope) -> str:
        async def reply() -> ModelReply:
            return ModelReply(f"t{brief.step}", Usage(calls=1, usd=usd))

        answer = await scope.call({"step": brief.step}, ModelReply, reply)
        assert isinstance(answer, ModelReply)
        return brief.incumbent.text + answer.text

    return kept.optimize(
        "a",
        half,
        proposers=[propose],
        home=home,
        budget=kept.Budget(max_usd=limit, max_iterations=40),
        usd_per_rollout=0.01,
        width=width,
    )


def test_calls_of_proposers_do_not_overdraw_a_money_budget(tmp_path: Path):
    result = run(tmp_path, usd=0.9, limit=1.0, width=16)
    assert result.spend.usd <= 1.0
    assert result.stopped.kind == "usd"


def test_what_fits_is_called_side_by_side(tmp_path: Path):
    result = run(tmp_path, usd=0.02, limit=2.0, width=8)
    assert result.spend.calls == 40
    assert result.spend.usd <= 2.0


class Calls:
    """A proposer whose steps call side by side; the first call fails."""

    name = "calls"
    serial = False

    async def propose(self, brief: kept.Brief, scope: Scope) -> kept.Proposal:
        async def reply() -> ModelReply | Failure:
            if brief.step == 0:
                return Failure("server", "infrastructure", "503")
            await asyncio.sleep(0.01)
            return ModelReply("x", Usage(calls=1, usd=0.9))

        await scope.call({"step": brief.step}, ModelReply, reply)
        return kept.Proposal((kept.Append("text", f"{brief.step}\n"),))


def test_a_call_that_fails_teaches_nothing_of_what_calls_cost(tmp_path: Path):
    result = kept.optimize(
        "a",
        half,
        proposers=[Calls()],
        home=tmp_path,
        budget=kept.Budget(max_usd=1.0, max_iterations=40),
        usd_per_rollout=0.01,
        width=16,
    )
    assert result.spend.usd <= 1.0


def test_what_a_step_used_is_paid_although_it_was_closed_before_its_reply():
    plan, _, _ = make_plan(width=1)
    purse = Purse(replace(plan, budget=kept.Budget(max_usd=9.0)), Spend(), lambda: 0.0)
    purse.hold(3, Usage(calls=2, usd=0.5))
    purse.hold(3, Usage(calls=1, usd=0.25))  # asked again, it hears its first reply anew
    assert purse.money_left(0) == 8.5
    assert purse.close(3, 0).usd == 0.5
    assert purse.money_left(0) == 8.5


def till_with(limit: float) -> Till:
    plan, _, _ = make_plan(width=1)
    limited = replace(plan, budget=kept.Budget(max_usd=limit))
    return Till(Purse(limited, Spend(), lambda: 0.0))


async def waits(call: Coroutine[Any, Any, None]) -> bool:
    """Whether a call does not begin by itself."""
    try:
        await asyncio.wait_for(call, 0.01)
    except TimeoutError:
        return True
    return False


def test_calls_with_a_worst_case_begin_as_long_as_all_of_them_fit():
    async def story() -> None:
        till = till_with(1.0)
        assert not any([await waits(till.begin(0.25)) for _ in range(4)])
        assert await waits(till.begin(0.25))
        till.end(0.25, Usage(calls=1, usd=0.01))
        assert not await waits(till.begin(0.25))

    asyncio.run(story())


def test_a_call_of_which_nobody_knows_the_cost_goes_alone_until_one_is_known():
    async def story() -> None:
        till = till_with(1.0)
        assert not await waits(till.begin(None))
        assert await waits(till.begin(None))
        assert await waits(till.begin(0.1))
        till.end(None, Usage(calls=1, usd=0.4))
        assert not await waits(till.begin(None))
        assert not await waits(till.begin(None))
        assert await waits(till.begin(0.3))
        assert not await waits(till.begin(0.2))

    asyncio.run(story())


JOB = kept.Job("candidate", "case", 0, "decide")


def test_what_a_proposer_paid_says_nothing_of_what_a_rollout_will():
    async def story() -> None:
        till = till_with(1.0)
        await till.begin(None)
        till.end(None, Usage(calls=1, usd=0.6))
        assert not await waits(till.begin(None, JOB)), "nothing is under way"
        assert await waits(till.begin(None, JOB)), "what a rollout costs is not known yet"
        till.end(None, Usage(calls=1, usd=0.1), JOB)
        assert not any([await waits(till.begin(None, JOB)) for _ in range(5)])
        assert await waits(till.begin(None)), "five of 0.1 and one of 0.6 do not fit"
        till.end(None, Usage(calls=1, usd=0.1), JOB)
        assert not await waits(till.begin(None)), "four do"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("answer", "learned"),
    [
        (ModelReply("yes", Usage(calls=1, usd=0.4)), 0.4),
        (Failure("empty", "candidate", "said nothing", usage=Usage(calls=1, usd=0.4)), 0.4),
        (Failure("refused", "candidate", "will not"), None),
        (Failure("server", "infrastructure", "503", usage=Usage(calls=1, usd=0.4)), None),
        (Failure("server", "infrastructure", "503"), None),
    ],
)
def test_a_later_sitting_knows_of_prices_what_this_one_learned(
    answer: ModelReply | Failure, learned: float | None
):
    async def reply() -> ModelReply | Failure:
        return answer

    async def story() -> None:
        till, again, journal = till_with(1.0), till_with(1.0), MemoryJournal()
        await JournalScope(journal, JOB, till.of(JOB)).call("hello", ModelReply, reply)
        again.learn(journal.unpriced())
        assert (till.dearest.rollout, again.dearest.rollout) == (learned, learned)

    asyncio.run(story())


def test_a_call_that_costs_nothing_needs_no_money():
    async def story() -> None:
        till = till_with(0.0)
        assert not await waits(till.begin(0.0))
        till.end(0.0, Usage(calls=1))
        with pytest.raises(OutOfBudget, match=r"up to \$0.1000 does not fit"):
            await till.begin(0.1)

    asyncio.run(story())


class Falling:
    """Proposes and runs; its first call of one kind is dear and all others are cheap."""

    name = "falling"
    serial = False

    def __init__(self, dear: str) -> None:
        self.dear = dear

    async def propose(self, brief: kept.Brief, scope: Scope) -> kept.Proposal:
        await self._pay(scope, f"proposal {brief.step}")
        return kept.Proposal((kept.Append("text", f"{brief.step}\n"),))

    async def run(
        self, job: kept.Job, candidate: kept.Candidate, case: kept.Case, scope: Scope
    ) -> kept.Rollout:
        lines = len(candidate.texts["text"].splitlines())
        await self._pay(scope, f"rollout {lines} {case.id}")
        return kept.Rollout(metrics={"score": 0.5})

    async def _pay(self, scope: Scope, what: str) -> None:
        async def reply() -> ModelReply:
            return ModelReply("x", Usage(calls=1, usd=0.9 if what == self.dear else 0.1))

        await scope.call(what, ModelReply, reply)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("dear", ["proposal 0", "rollout 1 holdout-0"])
def test_a_run_that_goes_on_sets_as_much_aside_as_one_that_was_not_cut(dear: str):
    both = Falling(dear)
    plan = replace(small_plan(both, both), budget=kept.Budget(max_usd=4.0), workers=1)
    journal = MemoryJournal()
    whole = asyncio.run(sit(plan, journal))
    assert whole.stopped is not None
    assert whole.stopped.message.startswith("another call of up to $0.9000 does not fit")
    assert any(isinstance(record, StepClosed) for record in journal.records)
    for at in range(2, len(journal.records)):
        again = asyncio.run(sit(plan, journal.reopened(at)))
        assert again.stopped == whole.stopped, f"cut behind {journal.records[at - 1]}"
        assert again.settled() == whole.settled()
