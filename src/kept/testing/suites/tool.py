"""What every tool must do, whatever it does."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from typing import TypeVar

from kept.core.ports import Tool
from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer
from kept.engine.scope import JournalScope
from kept.testing.journal import MemoryJournal

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds that a cancelled use gets to be gone."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes for the name of a tool."""


class ToolSuite:
    """Subclass it and open tools: one that works and, where there is such a thing, one that hangs.

    They are opened inside the event loop of each test, and closed before it ends.
    """

    async def open_tool(self) -> Tool:
        """A tool that answers; called again in one test, one that shares what is open."""
        raise NotImplementedError

    async def open_hanging_tool(self) -> Tool | None:
        """A tool that does not answer by itself; None when there is no such thing."""
        raise NotImplementedError

    async def close(self) -> None:
        """Let go of what was opened."""

    def arguments(self) -> Mapping[str, object]:
        """What both are used with."""
        raise NotImplementedError

    def wrong_arguments(self) -> Mapping[str, object] | None:
        """What the one that works cannot be used with; None when it takes anything."""
        raise NotImplementedError

    def still_running(self) -> object:
        """What a cancelled use has left behind, outside of the event loop; falsy for none."""
        return None

    def test_a_model_can_be_told_of_it(self) -> None:
        """By a name that every provider takes, and a schema of an object."""

        async def offered(tool: Tool) -> None:
            offer = tool.offer
            assert _NAME.fullmatch(offer.name), f"no name for a tool: {offer.name!r}"
            assert offer.parameters.get("type") == "object", f"no object: {offer.parameters}"
            json.dumps(dict(offer.parameters))

        self._with(offered)

    def test_a_use_is_answered(self) -> None:
        """With text, and with how long it took."""
        answer = self._with(self._once)
        assert isinstance(answer, ToolAnswer), f"not an answer: {answer}"
        assert not answer.wrong, f"these arguments are right: {answer.text}"
        assert answer.seconds >= 0, "nobody waits less than no time"

    def test_wrong_arguments_are_answered_with_what_is_wrong(self) -> None:
        """Not with an exception, and not with a failure: the model may mend its call."""
        given = self.wrong_arguments()
        if given is not None:
            answer = self._with(lambda tool: self._once(tool, arguments=given))
            assert isinstance(answer, ToolAnswer), f"not an answer: {answer}"
            assert answer.wrong, f"these arguments are wrong: {answer.text}"
            assert answer.text, "the model is told what is wrong"

    def test_the_arguments_stay_as_they_are(self) -> None:
        """They are in the journal, and in the conversation."""
        given, before = self.arguments(), deepcopy(self.arguments())
        self._with(lambda tool: self._once(tool, arguments=given))
        assert given == before, "the tool changed what it was given"

    def test_a_resume_does_not_use_it_again(self) -> None:
        """It is told what was answered the first time, down to the seconds."""
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
        """None disturbs another."""

        async def many(tool: Tool) -> list[ToolAnswer | Failure]:
            return await asyncio.gather(*(self._once(tool) for _ in range(6)))

        for answer in self._with(many):
            assert isinstance(answer, ToolAnswer), f"not an answer: {answer}"
            assert not answer.wrong, f"these arguments are right: {answer.text}"

    def test_cancelling_a_use_leaves_nothing_running_and_the_others_alone(self) -> None:
        """Neither a task of it nor, where it starts them, a process or a thread."""
        self._with(self._cancelled)
        left = self.still_running()
        assert not left, f"still running: {left}"

    async def _cancelled(self, tool: Tool) -> None:
        hanging = await self.open_hanging_tool()
        if hanging is None:
            return
        before = asyncio.all_tasks()
        task = asyncio.create_task(self._once(hanging))
        # long enough for it to be at work
        await asyncio.sleep(0.1)
        assert not task.done(), f"the tool was to hang, but answered {task.result()}"
        task.cancel()
        done, _ = await asyncio.wait((task,), timeout=PATIENCE)
        assert done, f"not gone after {PATIENCE:g} seconds"
        assert task.cancelled(), "a cancelled use must not be answered"
        if left := asyncio.all_tasks() - before:
            # what was started for it may need a moment to be gone
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
