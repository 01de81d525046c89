"""An adapter as runner and scorer, and the proposer that reflects, pass the suites."""

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any

from kept.adapters.gepa.runner import AdapterRunner
from kept.adapters.reflection import CallableModel, FunctionAuthor, ModelAuthor, Reflecting
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Proposer, Runner
from kept.core.rollout import Failure, Job, Pair, Rollout
from kept.core.score import Outcome
from kept.engine.replay import JournalScope
from kept.testing import ProposerSuite, RunnerSuite
from kept.testing.journal import MemoryJournal
from tests.adapters.gepa_world import AtOnce


class Half:
    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> SimpleNamespace:
        return SimpleNamespace(outputs=batch, scores=[0.5 for _ in batch])


class Crashing(Half):
    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> SimpleNamespace:
        raise ZeroDivisionError("no such luck")


class Dawdling(Half):
    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> SimpleNamespace:
        time.sleep(0.1)
        candidate.clear()
        return super().evaluate(batch, candidate)


class TestAdapterRunner(RunnerSuite):
    def make_runner(self) -> Runner:
        return AdapterRunner(Half())

    def make_crashing_runner(self) -> Runner:
        return AdapterRunner(Crashing())

    def make_hanging_runner(self) -> Runner:
        # a thread in the user's code cannot be stopped, only left: it ends by itself
        return AdapterRunner(Dawdling())

    def still_running(self) -> object:
        left = [t for t in threading.enumerate() if "kept-evaluate" in t.name]
        for thread in left:
            thread.join(timeout=5)
        return [thread for thread in left if thread.is_alive()]


class TestAdapterRunnerCaseByCase(TestAdapterRunner):
    def make_runner(self) -> Runner:
        return AdapterRunner(Dawdling(), batch=1, calls=4)


def test_a_call_that_nobody_waits_for_any_more_ends_before_the_next_begins():
    adapter = AtOnce(Dawdling())
    candidate = Candidate({"text": "a"})
    scope = JournalScope(MemoryJournal(), "rollout")

    async def cut_one_short() -> Rollout | Failure:
        runner = AdapterRunner(adapter)
        first, second = (
            asyncio.create_task(
                runner.run(Job(candidate.id, case, 0, "decide"), candidate, Case(case), scope)
            )
            for case in ("a", "b")
        )
        second.cancel()
        await asyncio.sleep(0.05)
        first.cancel()
        told = await runner.run(Job(candidate.id, "c", 0, "decide"), candidate, Case("c"), scope)
        await runner.close()
        return told

    told = asyncio.run(cut_one_short())
    assert isinstance(told, Rollout)
    assert told.metrics == {"score": 0.5}
    assert adapter.most == 1


class Reflection(ProposerSuite):
    def outcome(self, pair: Pair) -> Outcome:
        return Outcome(failure=Failure("crash", "candidate", f"no luck with {pair.case}"))


class TestReflectingByAModel(Reflection):
    def make_proposer(self) -> Proposer:
        def lm(prompt: str) -> str:
            assert "no luck with" in prompt
            return f"<new-text>\nlonger by {len(prompt)}\n</new-text>"

        return Reflecting(ModelAuthor(CallableModel(lm)), ("text",), size=1)


class TestReflectingByAFunction(Reflection):
    def make_proposer(self) -> Proposer:
        def write(candidate: dict[str, str], records: Any, components: list[str]) -> Any:
            return {name: f"{candidate.pop(name)} {len(records[name])}" for name in components}

        return Reflecting(FunctionAuthor(write), ("text",), whole=True)
