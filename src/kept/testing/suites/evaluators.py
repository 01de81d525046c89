"""Conformance suites for runners, scorers and tools."""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from typing import TypeVar

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ToolAnswer
from kept.core.ports import Runner, Scorer, Tool
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.testing.journal import MemoryJournal

T = TypeVar("T")

BUSY = 120.0
"""Seconds to wait for a rollout to start, on a busy machine."""

PATIENCE = 60.0
"""Seconds that a cancelled rollout gets to end."""


class RunnerSuite:
    """Subclass it and make runners: one that works, one that crashes, one that hangs."""

    def make_runner(self) -> Runner:
        """A runner that returns a rollout."""
        raise NotImplementedError

    def make_crashing_runner(self) -> Runner | None:
        """A runner whose execution raises or dies; None if that cannot happen."""
        raise NotImplementedError

    def make_hanging_runner(self) -> Runner | None:
        """A runner whose execution does not end by itself; None if that cannot happen."""
        raise NotImplementedError

    def begun(self) -> bool:
        """True once the hanging rollout is running; before that it can leave nothing behind."""
        return True

    def still_running(self) -> object:
        """Processes or threads that a cancelled rollout left behind; falsy for none."""
        return None

    def candidate(self) -> Candidate:
        """Candidate to execute."""
        return Candidate({"text": "a text\n"})

    def case(self) -> Case:
        """Case to execute it on."""
        return Case("case", {"question": "1 + 1", "answer": "2"})

    def test_a_rollout_comes_back(self) -> None:
        """A working runner returns a rollout."""
        rollout = self._with(self.make_runner(), self._once)
        assert isinstance(rollout, Rollout), f"not a rollout: {rollout}"

    def test_a_crash_is_a_failure_with_a_culprit(self) -> None:
        """Errors inside are returned as failures and never raised."""
        runner = self.make_crashing_runner()
        if runner is not None:
            failure = self._with(runner, self._once)
            assert isinstance(failure, Failure), f"not a failure: {failure}"
            assert failure.message, "a failure says what happened"

    def test_rollouts_side_by_side_all_come_back(self) -> None:
        """Concurrent rollouts do not disturb each other."""

        async def many(runner: Runner) -> list[Rollout | Failure]:
            return await asyncio.gather(*(self._once(runner, n) for n in range(4)))

        for rollout in self._with(self.make_runner(), many):
            assert isinstance(rollout, Rollout), f"not a rollout: {rollout}"

    def test_the_candidate_stays_as_it_is(self) -> None:
        """The candidate is shared with other rollouts, so a runner must not change it."""
        candidate, before = self.candidate(), self.candidate()

        async def once(runner: Runner) -> Rollout | Failure:
            return await self._once(runner, candidate=candidate)

        self._with(self.make_runner(), once)
        assert dict(candidate.texts) == dict(before.texts), "the runner changed a text"
        assert Candidate(dict(candidate.texts), candidate.blobs).id == candidate.id

    def test_cancelling_leaves_nothing_running(self) -> None:
        """Cancelling leaves no task, process or thread."""
        runner = self.make_hanging_runner()
        if runner is not None:
            self._with(runner, self._cancelled)
            left = self.still_running()
            assert not left, f"still running: {left}"

    def test_closing_twice_is_closing_once(self) -> None:
        """Closing an unused runner is no error either."""

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
        # a short wait for a runner whose suite does not implement `begun`
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


class ScorerSuite:
    """Subclass it, make a scorer, and give rollouts that it can measure."""

    def make_scorer(self) -> Scorer:
        """A scorer to test."""
        raise NotImplementedError

    def rollouts(self) -> Sequence[Rollout]:
        """Rollouts to measure."""
        raise NotImplementedError

    def strange_rollouts(self) -> Sequence[Rollout]:
        """Unexpected rollouts; they may be measured or refused, but must not raise."""
        return (Rollout(), Rollout(output="\x00{[\ufffd"), Rollout(files={"out.json": b"\xff"}))

    def candidate(self) -> Candidate:
        """Candidate that was executed."""
        return Candidate({"text": "a text\n"})

    def case(self) -> Case:
        """Case that it was executed on."""
        return Case("case", {"question": "1 + 1", "answer": "2"})

    def test_a_rollout_is_scored(self) -> None:
        """A score has at least one metric, and all metrics are finite numbers."""
        for rollout in self.rollouts():
            score = self._score_afresh(rollout)
            assert isinstance(score, Score), f"not a score: {score}"
            assert score.metrics, "a score has a measure"
            assert all(math.isfinite(value) for value in score.metrics.values()), score

    def test_the_same_rollout_gets_the_same_score(self) -> None:
        """Used and fresh scorers give the same score."""
        used = self.make_scorer()
        for rollout in (*self.rollouts(), *self.strange_rollouts()):
            first = self._score(used, rollout)
            assert self._score(used, rollout) == first, "asked again, it says something else"
            assert self._score_afresh(rollout) == first, "a fresh one differs"
        asyncio.run(used.close())

    def test_the_unexpected_is_a_score_or_a_failure(self) -> None:
        """Unexpected input never raises, and a failure has a message."""
        for rollout in self.strange_rollouts():
            score = self._score_afresh(rollout)
            assert isinstance(score, Score | Failure), f"neither score nor failure: {score}"
            assert isinstance(score, Score) or score.message, "a failure says what happened"

    def test_the_rollout_stays_as_it_is(self) -> None:
        """The rollout is shared, so a scorer must not change it."""
        for rollout in self.rollouts():
            metrics, files = dict(rollout.metrics), dict(rollout.files)
            self._score_afresh(rollout)
            assert (dict(rollout.metrics), dict(rollout.files)) == (metrics, files)

    def test_closing_twice_is_closing_once(self) -> None:
        """Closing an unused scorer is no error either."""
        scorer = self.make_scorer()
        asyncio.run(scorer.close())
        asyncio.run(scorer.close())

    def _score_afresh(self, rollout: Rollout) -> Score | Failure:
        scorer = self.make_scorer()
        try:
            return self._score(scorer, rollout)
        finally:
            asyncio.run(scorer.close())

    def _score(self, scorer: Scorer, rollout: Rollout) -> Score | Failure:
        candidate, case = self.candidate(), self.case()
        job = Job(candidate.id, case.id, 0, "decide")
        scope = JournalScope(MemoryJournal(), job)
        return asyncio.run(scorer.score(job, rollout, candidate, case, scope))


"""Seconds that a cancelled use gets to be gone."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Pattern of tool names that every provider accepts."""


class ToolSuite:
    """Subclass it and open tools: one that works and, if possible, one that hangs.

    They are opened inside the event loop of each test, and closed before it ends.
    """

    async def open_tool(self) -> Tool:
        """A tool that answers; a second call in one test returns one that shares its resources."""
        raise NotImplementedError

    async def open_hanging_tool(self) -> Tool | None:
        """A tool that does not answer by itself; None if that cannot happen."""
        raise NotImplementedError

    async def close(self) -> None:
        """Release opened resources."""

    def arguments(self) -> Mapping[str, object]:
        """Arguments for both tools."""
        raise NotImplementedError

    def wrong_arguments(self) -> Mapping[str, object] | None:
        """Arguments that the working tool must refuse; None if it takes anything."""
        raise NotImplementedError

    def still_running(self) -> object:
        """Processes or threads that a cancelled use left behind; falsy for none."""
        return None

    def test_a_model_can_be_told_of_it(self) -> None:
        """The name is valid for every provider, and the schema is an object."""

        async def offered(tool: Tool) -> None:
            offer = tool.offer
            assert _NAME.fullmatch(offer.name), f"no name for a tool: {offer.name!r}"
            assert offer.parameters.get("type") == "object", f"no object: {offer.parameters}"
            json.dumps(dict(offer.parameters))

        self._with(offered)

    def test_a_use_is_answered(self) -> None:
        """A use returns text and its duration."""
        answer = self._with(self._once)
        assert isinstance(answer, ToolAnswer), f"not an answer: {answer}"
        assert not answer.wrong, f"these arguments are right: {answer.text}"
        assert answer.seconds >= 0, "nobody waits less than no time"

    def test_wrong_arguments_are_answered_with_what_is_wrong(self) -> None:
        """Wrong arguments give an answer, no failure: the model may correct its call."""
        given = self.wrong_arguments()
        if given is not None:
            answer = self._with(lambda tool: self._once(tool, arguments=given))
            assert isinstance(answer, ToolAnswer), f"not an answer: {answer}"
            assert answer.wrong, f"these arguments are wrong: {answer.text}"
            assert answer.text, "the model is told what is wrong"

    def test_the_arguments_stay_as_they_are(self) -> None:
        """Arguments are shared with journal and conversation, so a tool must not change them."""
        given, before = self.arguments(), deepcopy(self.arguments())
        self._with(lambda tool: self._once(tool, arguments=given))
        assert given == before, "the tool changed what it was given"

    def test_a_resume_does_not_use_it_again(self) -> None:
        """A resume returns the recorded answer, including its duration."""
        journal = MemoryJournal()

        async def twice(tool: Tool) -> tuple[ToolAnswer | Failure, ToolAnswer | Failure]:
            first = await self._once(tool, journal)
            written = journal.rollouts_size
            assert written, "the use was not journalled"
            again = await self._once(tool, journal)
            assert journal.rollouts_size == written, "it was used again"
            return first, again

        first, again = self._with(twice)
        assert again == first, f"{again}, and the first time {first}"

    def test_uses_side_by_side_are_all_answered(self) -> None:
        """Concurrent uses do not disturb each other."""

        async def many(tool: Tool) -> list[ToolAnswer | Failure]:
            return await asyncio.gather(*(self._once(tool) for _ in range(6)))

        for answer in self._with(many):
            assert isinstance(answer, ToolAnswer), f"not an answer: {answer}"
            assert not answer.wrong, f"these arguments are right: {answer.text}"

    def test_cancelling_a_use_leaves_nothing_running_and_the_others_alone(self) -> None:
        """Cancelling leaves no task, process or thread of that use."""
        self._with(self._cancelled)
        left = self.still_running()
        assert not left, f"still running: {left}"

    async def _cancelled(self, tool: Tool) -> None:
        hanging = await self.open_hanging_tool()
        if hanging is None:
            return
        before = asyncio.all_tasks()
        task = asyncio.create_task(self._once(hanging))
        # long enough for the tool to be running
        await asyncio.sleep(0.1)
        assert not task.done(), f"the tool was to hang, but answered {task.result()}"
        task.cancel()
        done, _ = await asyncio.wait((task,), timeout=PATIENCE)
        assert done, f"not gone after {PATIENCE:g} seconds"
        assert task.cancelled(), "a cancelled use must not be answered"
        if left := asyncio.all_tasks() - before:
            # tasks started for it may need a moment to end
            _, left = await asyncio.wait(left, timeout=PATIENCE)
        assert not left, f"still running: {left}"
        answer = await self._once(tool)
        assert isinstance(answer, ToolAnswer) and not answer.wrong, f"afterwards: {answer}"

    async def _once(
        self,
        tool: Tool,
        journal: MemoryJournal | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> ToolAnswer | Failure:
        scope = JournalScope(journal or MemoryJournal(), "rollout/a/decide/b/0")
        return await tool.use(self.arguments() if arguments is None else arguments, scope)

    def _with(self, do: Callable[[Tool], Awaitable[T]]) -> T:
        async def whole() -> T:
            try:
                return await do(await self.open_tool())
            finally:
                await self.close()

        return asyncio.run(whole())
