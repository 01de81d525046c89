"""Every reply that arrived is booked: one that cannot be used, one that came too late."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case
from kept.core.edit import Append
from kept.core.event import StepClosed
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Model, Scope
from kept.core.proposal import Brief, Proposal, ProposerReply
from kept.core.rollout import FREE, PAID_TRIES, Failure, Job, Rollout, Usage
from kept.engine.replay import JournalScope
from kept.engine.stop import SystemClock
from kept.models.ask import ask
from kept.models.client import connect
from kept.models.prices import worst_usd
from kept.models.providers import ModelConfig, Price
from kept.testing import MemoryJournal, sit, small_plan
from kept.testing.journal import CallRecord
from kept.testing.server import Fault, ModelServer, Seen

pytestmark = pytest.mark.slow

ASK = ModelRequest((Message("user", "how much is it?"),))
TOKENS = Usage(calls=1, tokens_in=10, tokens_out=5)
EACH = 15e-6
BROKEN = Fault("body", body=b'{"choices": [{"message": {"content": "\xff"}}]}')


def model_of(server: ModelServer) -> Model:
    price = Price(input=1.0, output=1.0)
    config = ModelConfig(
        provider="openai_compatible", model="m", base_url=server.v1, price=price, max_tokens=50
    )
    return connect(config)


def said(seen: Seen) -> ModelReply:
    return ModelReply("1", TOKENS)


def test_a_reply_that_cannot_be_used_is_paid_for_and_asked_again():
    journal = MemoryJournal()
    with ModelServer(said, faults=[BROKEN, BROKEN]) as server:
        model = model_of(server)
        worst = worst_usd(model, ASK)
        assert worst is not None
        scope = JournalScope(journal, "rollout/a")
        reply = asyncio.run(ask(scope, model, ASK))
        assert isinstance(reply, ModelReply)
        assert reply.text == "1"
        assert scope.usage.usd == pytest.approx(2 * worst + EACH)
        assert scope.usage.calls == 3
        # what was journalled is heard again, and comes to the same
        again = JournalScope(journal, "rollout/a")
        asyncio.run(ask(again, model, ASK))
        assert again.usage == scope.usage
        assert len(server.log) == 3


def test_what_is_never_usable_is_given_up_with_every_reply_booked():
    journal = MemoryJournal()
    with ModelServer(faults=lambda _: BROKEN) as server:
        model = model_of(server)
        scope = JournalScope(journal, "rollout/a")
        reply = asyncio.run(ask(scope, model, ASK))
        assert isinstance(reply, Failure)
        assert (reply.blame, reply.usage) == ("infrastructure", FREE)
        assert len(server.log) == scope.usage.calls == PAID_TRIES


def test_counts_that_are_believable_are_charged_although_the_reply_is_not():
    body = b'{"choices": [{"message": {"content": 5}}], "usage": {"prompt_tokens": 7, '
    body += b'"completion_tokens": 3}}'
    with ModelServer(said, faults=[Fault("body", body=body)]) as server:
        scope = JournalScope(MemoryJournal(), "rollout/a")
        asyncio.run(ask(scope, model_of(server), ASK))
    assert scope.usage.usd == pytest.approx(10e-6 + EACH)


class Asking:
    """A runner that asks a model about the text of a candidate."""

    def __init__(self, server: ModelServer) -> None:
        self._model = model_of(server)

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        text = f"{candidate.text} {job.case_id}"
        reply = await ask(scope, self._model, ModelRequest((Message("user", text),)))
        if isinstance(reply, Failure):
            return reply
        return Rollout(metrics={"score": float("good" in candidate.text)})

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Adding:
    """Adds a good line, and then a slow one."""

    name: str = "adding"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        return Proposal((Append("text", ("good\n", "slow\n")[brief.step]),))


def racing(server: ModelServer) -> Plan:
    """Two steps at once: the first is kept, and makes what the second is at moot."""
    plan = small_plan(Asking(server), Adding())
    return replace(plan, width=2, workers=32, budget=Budget(max_usd=5.0, max_iterations=2))


def slow(seen: Seen) -> Fault | None:
    alone = "slow" in seen.text and "good" not in seen.text
    return Fault("slow", seconds=1.5) if alone else None


def booked(server: ModelServer) -> tuple[Any, float]:
    state = asyncio.run(sit(racing(server), MemoryJournal(), SystemClock()))
    return state, sum(EACH for seen in server.log if seen.answer == "reply")


def test_a_reply_to_a_rollout_that_was_cancelled_is_waited_for_and_booked():
    with ModelServer(said, faults=slow) as server:
        state, billed = booked(server)
        assert all(seen.answer == "reply" for seen in server.log)
    assert state.spend.cancelled > 0
    assert state.spend.usd == pytest.approx(billed)


def test_what_does_not_come_in_time_is_booked_at_its_worst(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kept.models.endpoint.LATE", 0.05)
    with ModelServer(said, faults=slow) as server:
        worst = worst_usd(model_of(server), ASK)
        assert worst is not None
        state, _ = booked(server)
    assert state.spend.cancelled == 4
    assert state.spend.usd == pytest.approx(state.spend.rollouts * EACH + 4 * worst, rel=0.1)


def test_what_a_kill_kept_from_the_books_is_booked_once_by_the_next_sitting():
    journal = MemoryJournal()
    with ModelServer(said, faults=slow) as server:
        state = asyncio.run(sit(racing(server), journal, SystemClock()))
    closed = max(n for n, one in enumerate(journal.records) if isinstance(one, StepClosed))
    # both replies to rollouts that were given up, and the lines that say what they used
    behind = range(closed + 1, len(journal.records))
    assert sum(isinstance(journal.records[n], CallRecord) for n in behind) == 4
    for records in behind:
        killed = journal.reopened(records)
        arrived = sum(isinstance(one, CallRecord) for one in killed.records)
        with ModelServer(said) as server:
            again = asyncio.run(sit(racing(server), killed, SystemClock()))
            assert again.spend.calls == arrived
            assert again.spend.cancelled == arrived - state.spend.rollouts
            # once: a sitting that was stopped in good order, and one more that was killed
            for part in (killed.reopened(), killed.reopened(len(killed.records) - 1)):
                assert asyncio.run(sit(racing(server), part, SystemClock())).spend.calls == arrived
            assert not server.log


def test_what_was_wasted_before_a_kill_is_booked_before_a_later_one():
    journal = MemoryJournal()
    with ModelServer(said, faults=slow) as server:
        asyncio.run(sit(racing(server), journal, SystemClock()))
        # killed after the first step was kept, with all replies to what the second was at first
        first = next(n for n, one in enumerate(journal.records) if isinstance(one, StepClosed))
        wasted = [one for one in journal.records[first:] if isinstance(one, CallRecord)][-4:]
        killed = journal.reopened(first + 1)
        for one in wasted:
            killed.record_call(*one[:3])
        killed = killed.reopened()
        again = asyncio.run(sit(racing(server), killed, SystemClock()))
        arrived = sum(isinstance(one, CallRecord) for one in killed.records)
        assert again.spend.calls == arrived
        assert again.spend.cancelled == 4
        last = max(n for n, one in enumerate(killed.records) if isinstance(one, StepClosed))
        second = killed.reopened(last + 1)
        assert asyncio.run(sit(racing(server), second, SystemClock())).spend.calls == arrived
