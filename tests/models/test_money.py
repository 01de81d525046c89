"""A limit of money holds, however many calls are in flight."""

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

import kept
from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case
from kept.core.edit import Append
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Proposal, ProposerReply
from kept.core.rollout import Failure, Job, Rollout, Usage
from kept.engine.stop import SystemClock
from kept.models.ask import ask
from kept.models.providers import Price
from kept.testing import MemoryJournal, ScriptedProposer, sit, small_cases, small_plan
from kept.testing.server import Fault, ModelServer, Seen
from tests.models.worlds import model

PRICE = Price(input=1, output=100)
"""A reply of 50 tokens costs half a cent."""

LIMIT = 0.50


def of_some_length(seen: Seen) -> ModelReply:
    tokens = random.Random(seen.text).randrange(1, 51)
    return ModelReply(f"t{seen.text}", Usage(1, 20, tokens))


def sent(server: ModelServer) -> float:
    """What the server's own books come to."""
    replies = [of_some_length(seen) for seen in server.answered]
    return sum(r.usage.tokens_in * 1e-6 + r.usage.tokens_out * 1e-4 for r in replies)


def question(text: str) -> ModelRequest:
    return ModelRequest((Message("user", text),), max_tokens=50)


class Asker:
    """A proposer that asks a model for every step, whatever the other steps do."""

    name = "asker"
    serial = False

    def __init__(self, made: Model) -> None:
        self._model = made

    async def propose(self, brief: kept.Brief, scope: Scope) -> ProposerReply:
        reply = await ask(scope, self._model, question(f"{brief.step}"))
        return reply if isinstance(reply, Failure) else Proposal((Append("text", reply.text),))


@pytest.mark.slow
def test_calls_of_64_proposers_at_once_stay_within_the_limit(tmp_path: Path):
    with ModelServer(of_some_length, latency=0.02) as server:
        made = model("openai_compatible", server, price=PRICE)

        async def half(candidate: kept.Candidate) -> float:
            return 0.5

        result = kept.optimize(
            "a",
            half,
            proposers=[Asker(made)],
            home=tmp_path,
            budget=kept.Budget(max_usd=LIMIT, max_iterations=1000),
            usd_per_rollout=0.0,
            width=64,
        )
        spent = sent(server)
        assert server.most_at_once > 32
    assert result.stopped.kind == "usd"
    assert spent <= LIMIT
    assert spent > 0.9 * LIMIT, "and what there was, was used"
    assert result.spend.usd == pytest.approx(spent)


class Talker:
    """A runner that makes two calls for every rollout."""

    def __init__(self, server: ModelServer) -> None:
        self._model = model("openai_compatible", server, price=PRICE)

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        for n in range(2):
            reply = await ask(scope, self._model, question(f"{job.scope} {n}"))
            if isinstance(reply, Failure):
                return reply
        return Rollout(metrics={"score": 0.5})

    async def close(self) -> None:
        pass


def test_calls_of_64_rollouts_at_once_stay_within_the_limit():
    with ModelServer(of_some_length, latency=0.2) as server:
        plan = small_plan(
            Talker(server), ScriptedProposer(lines=tuple(f"text {n}" for n in range(99)))
        )
        plan = replace(
            plan, cases=small_cases(0, 64), budget=Budget(max_usd=LIMIT), workers=64, width=2
        )
        journal = MemoryJournal()
        state = asyncio.run(sit(plan, journal, SystemClock()))
        spent = sent(server)
        assert server.most_at_once > 32
    assert state.stopped is not None
    assert state.stopped.kind == "usd"
    assert spent <= LIMIT
    assert spent > 0.9 * LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [-1_000_000, 10**12, "many"])
def test_a_limit_holds_whatever_a_server_says_of_usage(tokens: object):
    reply = {
        "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 20, "completion_tokens": tokens},
    }
    lie = Fault("body", body=json.dumps(reply).encode())
    with ModelServer(faults=lambda seen: lie) as server:
        plan = small_plan(
            Talker(server), ScriptedProposer(lines=tuple(f"text {n}" for n in range(999)))
        )
        plan = replace(plan, budget=Budget(max_usd=LIMIT), workers=8)
        state = asyncio.run(sit(plan, MemoryJournal(), SystemClock()))
        calls = len(server.log)
    assert state.stopped is not None
    assert state.stopped.kind == "usd"
    # a reply of 50 tokens costs half a cent, and none may be taken to cost less
    assert calls <= LIMIT / 0.005
    assert 0.9 * LIMIT < state.spend.usd <= LIMIT


def test_a_limit_that_no_call_fits_into_stops_before_the_first():
    with ModelServer(of_some_length) as server:
        plan = small_plan(Talker(server), ScriptedProposer(lines=("text",)))
        plan = replace(plan, budget=Budget(max_usd=0.001))
        state = asyncio.run(sit(plan, MemoryJournal(), SystemClock()))
        assert not server.log
    assert state.stopped is not None
    assert "another call of up to $0.005" in state.stopped.message


def test_what_a_refusal_cost_is_counted_once():
    refusal = ModelReply("no", Usage(1, 20, 40), "refused")
    with ModelServer(lambda seen: refusal) as server:
        plan = small_plan(Talker(server), ScriptedProposer(lines=("text",)))
        plan = replace(plan, cases=small_cases(0, 4), budget=Budget(max_iterations=1))
        state = asyncio.run(sit(plan, MemoryJournal(), SystemClock()))
        calls = len(server.log)
    assert state.spend.usd == pytest.approx(calls * (20e-6 + 40e-4))
