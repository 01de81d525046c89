"""What every runner must do, whatever it executes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Runner
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.scope import JournalScope
from kept.testing.journal import MemoryJournal

T = TypeVar("T")

BUSY = 120.0
"""Seconds in which anything is under way, on a machine that has much else to do."""

PATIENCE = 60.0
"""Seconds that a cancelled rollout gets to be gone."""


class RunnerSuite:
    """Subclass it and make runners: one that works, one that crashes, one that hangs."""

    def make_runner(self) -> Runner:
        """A runner that brings a rollout back."""
        raise NotImplementedError

    def make_crashing_runner(self) -> Runner | None:
        """A runner whose execution raises or dies; None when there is no such thing."""
        raise NotImplementedError

    def make_hanging_runner(self) -> Runner | None:
        """A runner whose execution does not end by itself; None when there is no such thing."""
        raise NotImplementedError

    def begun(self) -> bool:
        """Whether what hangs is under way: before that there is nothing to be left behind."""
        return True

    def still_running(self) -> object:
        """What a cancelled rollout has left behind, outside of the event loop; falsy for none."""
        return None

    def candidate(self) -> Candidate:
        """What is executed."""
        return Candidate({"text": "a text\n"})

    def case(self) -> Case:
        """What it is executed on."""
        return Case("case", {"question": "1 + 1", "answer": "2"})

    def test_a_rollout_comes_back(self) -> None:
        """Or a failure, but this one works."""
        rollout = self._with(self.make_runner(), self._once)
        assert isinstance(rollout, Rollout), f"not a rollout: {rollout}"

    def test_a_crash_is_a_failure_with_a_culprit(self) -> None:
        """Nothing that goes wrong inside comes out as an exception."""
        runner = self.make_crashing_runner()
        if runner is not None:
            failure = self._with(runner, self._once)
            assert isinstance(failure, Failure), f"not a failure: {failure}"
            assert failure.message, "a failure says what happened"

    def test_rollouts_side_by_side_all_come_back(self) -> None:
        """Each has its own, and none disturbs another."""

        async def many(runner: Runner) -> list[Rollout | Failure]:
            return await asyncio.gather(*(self._once(runner, n) for n in range(4)))

        for rollout in self._with(self.make_runner(), many):
            assert isinstance(rollout, Rollout), f"not a rollout: {rollout}"

    def test_the_candidate_stays_as_it_is(self) -> None:
        """It is shared with everything else that is going on."""
        candidate, before = self.candidate(), self.candidate()

        async def once(runner: Runner) -> Rollout | Failure:
            return await self._once(runner, candidate=candidate)

        self._with(self.make_runner(), once)
        assert dict(candidate.texts) == dict(before.texts), "the runner changed a text"
        assert Candidate(dict(candidate.texts), candidate.blobs).id == candidate.id

    def test_cancelling_leaves_nothing_running(self) -> None:
        """Neither a task nor, where it starts them, a process or a thread."""
        runner = self.make_hanging_runner()
        if runner is not None:
            self._with(runner, self._cancelled)
            left = self.still_running()
            assert not left, f"still running: {left}"

    def test_closing_twice_is_closing_once(self) -> None:
        """And closing what never ran is no error."""

        async def twice() -> None:
            fresh, used = self.make_runner(), self.make_runner()
            await self._once(used)
            for runner in (fresh, used):
                await runner.close()
                await runner.close()

        asyncio.run(twice())

    async def _cancelled(self, runner: Runner) -> None:
        before = asyncio.all_tasks()
        task = asyncio.create_task(self._once(runner))
        # no more than a moment for one that does not say
        await asyncio.sleep(0.05)
        async with asyncio.timeout(BUSY):
            while not (task.done() or self.begun()):
                await asyncio.sleep(0.01)
        assert not task.done(), f"the runner was to hang, but brought {task.result()}"
        task.cancel()
        done, _ = await asyncio.wait((task,), timeout=PATIENCE)
        assert done, f"not gone after {PATIENCE:g} seconds"
        assert task.cancelled(), "a cancelled rollout must not bring anything back"
        left = asyncio.all_tasks() - before
        assert not left, f"still running: {left}"

    async def _once(
        self, runner: Runner, repeat: int = 0, candidate: Candidate | None = None
    ) -> Rollout | Failure:
        candidate, case = candidate or self.candidate(), self.case()
        job = Job(candidate.id, case.id, repeat, "decide")
        return await runner.run(job, candidate, case, JournalScope(MemoryJournal(), job))

    def _with(self, runner: Runner, do: Callable[[Runner], Awaitable[T]]) -> T:
        async def whole() -> T:
            try:
                return await do(runner)
            finally:
                await runner.close()

        return asyncio.run(whole())
