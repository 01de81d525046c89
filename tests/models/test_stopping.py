"""A run whose model cannot be asked stops at once, and goes on where it stopped once mended."""

import asyncio
from dataclasses import replace

import pytest

from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.stop import SystemClock
from kept.models.ask import ask
from kept.testing import MemoryJournal, ScriptedEvaluator, ScriptedProposer, sit, small_plan
from kept.testing.server import Fault, ModelServer, Seen
from tests.models.worlds import ASK, client

STATUSES = pytest.mark.parametrize("status", [400, 401, 403, 404])
LINES = tuple(f"line {n}" for n in range(50))


@STATUSES
def test_a_proposer_whose_model_cannot_be_asked_stops_the_run_at_once(status: int):
    faults: list[Fault | None] = [Fault("status", status, "mend this")]
    with ModelServer(lambda seen: "yes", faults=faults) as server:
        proposer = ScriptedProposer(lines=LINES, model=client("openai", server))
        evaluator = ScriptedEvaluator(quality=lambda candidate, case: 0.5)
        plan = replace(small_plan(evaluator, proposer), budget=Budget(max_iterations=5))
        journal = MemoryJournal()
        state = asyncio.run(sit(plan, journal, SystemClock()))
        assert state.stopped is not None
        assert (state.stopped.kind, len(server.log)) == ("error", 1)
        assert "mend this" in state.stopped.message
        assert not state.history, "no step is lost to it"
        # mended: the same step is asked again
        state = asyncio.run(sit(plan, journal, SystemClock()))
        assert state.stopped is not None
        assert state.stopped.kind == "iterations"
        assert [step.step for step in state.history] == list(range(5))


class Asks:
    """A runner that asks a model for every rollout."""

    def __init__(self, server: ModelServer) -> None:
        self._model = client("anthropic", server, tries=2)

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        reply = await ask(scope, self._model, ASK)
        return reply if isinstance(reply, Failure) else Rollout(metrics={"score": 0.5})

    async def close(self) -> None:
        pass


@STATUSES
def test_rollouts_whose_model_cannot_be_asked_are_tried_by_twos(status: int):
    with ModelServer(faults=lambda seen: Fault("status", status, "mend this")) as server:
        plan = small_plan(Asks(server), ScriptedProposer(lines=LINES))
        state = asyncio.run(sit(plan, MemoryJournal(), SystemClock()))
        assert len(server.log) == 2
    assert state.stopped is not None
    assert state.stopped.kind == "error"
    assert "mend this" in state.stopped.message


def test_the_tries_of_a_call_are_not_multiplied_by_those_of_its_rollout(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("kept.models.endpoint.FIRST_WAIT", 0.001)

    def only_the_first(seen: Seen) -> Fault | None:
        return Fault("status", 503) if seen.number < 2 else None

    with ModelServer(lambda seen: "yes", faults=only_the_first) as server:
        plan = small_plan(Asks(server), ScriptedProposer(lines=("one",)))
        plan = replace(plan, budget=Budget(max_iterations=1), retries=2, workers=1)
        state = asyncio.run(sit(plan, MemoryJournal(), SystemClock()))
        asked = len(server.log)
    # one rollout was lost to two tries of its call, and not tried again as a rollout
    assert state.spend.retries == 0
    assert asked == state.spend.rollouts + 2
