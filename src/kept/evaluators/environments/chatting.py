"""A chat model as student: it is told the skill, and talks its way through a case.

One question and one answer are the least of it; tools are used and further turns are had as the
environment wants. What it says that cannot be used is its own failure, and is told with its trace;
what a provider does not answer is a failure of infrastructure, and no rollout at all.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.exchange import failed, said
from kept.core.model import Message, ModelRequest, asking
from kept.core.ports import Model, Scope, Tool
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.words import count
from kept.errors import KeptError
from kept.evaluators.environments.contract import Environment, Episode, Posed, Turn
from kept.evaluators.environments.opened import STEP
from kept.evaluators.environments.pictures import marked
from kept.evaluators.environments.probing import Probing, probing_of, skill_of
from kept.evaluators.environments.rendering import system_prompt
from kept.models.ask import draw_seed
from kept.models.pricing import usual_usd, worst_usd
from kept.models.tool_loop import Agent

Price = Callable[[Model, ModelRequest], float | None]


class ChatRunner:
    """Talks with a model about every pair."""

    def __init__(
        self,
        env: Environment,
        model: Model,
        request: ModelRequest | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """`request` is how the model is asked, messages apart; `timeout` is for a whole case."""
        self._env = env
        self._model = model
        self._shape = request or ModelRequest(())
        self._timeout = timeout

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Have one conversation."""
        if self._timeout is None:
            return await self._run(job, candidate, case, scope)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._run(job, candidate, case, scope)
        except TimeoutError:
            message = f"the case was not done within {count(self._timeout, 'second')}"
            return Failure("timeout", "candidate", message)

    async def close(self) -> None:
        """Have the environment let go."""
        await self._env.close()

    def worst_usd(self, candidate: Candidate, case: Case) -> float | None:
        """The most that a rollout can cost; None where nobody can tell."""
        return self._priced(worst_usd, candidate, case)

    def usual_usd(self, candidate: Candidate, case: Case) -> float | None:
        """What a rollout of middling length costs; None where nobody can tell."""
        return self._priced(usual_usd, candidate, case)

    def _priced(self, price: Price, candidate: Candidate, case: Case) -> float | None:
        try:
            posed, tools = self._env.pose(case), self._env.tools(case)
        except KeptError:
            return None  # its data is gone, which the rollout says
        if self._env.turns() > 1 or tools:
            return None  # later requests are longer; by how much is not known
        asked = Message("user", posed.prompt, posed.images)
        return price(
            self._model, replace(self._shape, messages=(*_system(posed, candidate), asked))
        )

    async def _run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        try:
            episode = self._env.begin(case, job, scope.branch("episode"))
        except KeptError as error:
            return Failure("harness", "infrastructure", str(error), tried=True)
        try:
            posed = await episode.pose()
            if isinstance(posed, Failure):
                return posed
            request = asking(self._shape, _system(posed, candidate), self._shape.seed)
            tools = (*self._env.tools(case), *episode.tools())
            agent = Agent(
                self._model, request, tools, self._env.replies(), most_usd=self._env.most_usd()
            )
            seed = draw_seed(job.purpose, job.case_id, job.repeat)
            talk = _Talk(agent, episode, scope, seed, tools)
            return await talk.whole(posed, probing_of(candidate), self._env.turns())
        finally:
            await episode.close()


class _Talk:
    """One conversation, as it goes on."""

    def __init__(
        self, agent: Agent, episode: Episode, scope: Scope, seed: int, tools: Sequence[Tool]
    ) -> None:
        self._agent = agent
        self._tools = tools
        self._redone = 0
        self._episode = episode
        self._scope = scope
        self._seed = seed
        self._messages = agent.told
        self._trace = [said(message) for message in agent.told]
        self._asked = 0
        self._told = ""
        """What the student was told last, where the trace has not said so yet."""

    async def whole(self, posed: Posed, probing: Probing | None, turns: int) -> Rollout | Failure:
        """From the first question to the end."""
        self._trace += [TraceItem("info", note) for note in posed.notes]
        message = Message("user", posed.prompt, posed.images)
        if probing is not None:
            again = await self._again(message, probing)
            if not isinstance(again, Message):
                return again
            message = again
        self._trace.append(replace(said(message), text=marked(message.text, message.images)))
        while True:
            self._asked += 1
            turn = await self._turn(message)
            if isinstance(turn, Failure | Rollout):
                return turn
            if turn.over or self._asked >= turns:
                return self._ended(turn)
            message = Message("user", turn.text)
            if turn.item is None:
                self._trace.append(said(message))

    async def _turn(self, message: Message) -> Turn | Rollout | Failure:
        """One thing said to the student, and what becomes of its answer."""
        scope = self._scope.branch(f"turn-{self._asked}") if self._asked > 1 else self._scope
        reply = await self._agent.say((*self._messages, message), scope, self._seed)
        if isinstance(reply, Failure):
            return reply
        fault = reply.failure
        if fault is None and not reply.text.strip():
            fault = Failure("empty", "candidate", "the model answered nothing")
        if fault is not None:
            return Rollout(trace=(*self._trace, *reply.trace, failed(fault)))
        self._messages = reply.messages
        turn = await self._episode.answer(reply.text)
        if isinstance(turn, Failure):
            return self._failed(turn, reply.trace)
        self._trace += [*reply.trace[:-1], turn.item] if turn.item is not None else reply.trace
        return turn

    def _failed(self, failure: Failure, trace: Sequence[TraceItem]) -> Rollout | Failure:
        if failure.blame == "infrastructure":
            return failure
        return Rollout(trace=(*self._trace, *trace, failed(failure)))

    def _ended(self, turn: Turn) -> Rollout:
        last = self._messages[-1].text
        output = last if turn.output is None else turn.output
        trace = tuple(self._trace)
        return Rollout(output=output, metrics=turn.metrics, files=turn.files, trace=trace)

    async def _again(self, message: Message, probing: Probing) -> Message | Rollout | Failure:
        """Say and do again what an earlier rollout had, up to the chosen step."""
        instruction = probing.instruction
        if not probing.before:
            return Message("user", f"{message.text}\n\n{instruction}", message.images)
        self._trace += [item for item in probing.before if item.role != "system"]
        self._messages = (*self._messages, message)
        for item in probing.before:
            if item.role == "assistant":
                self._say(Message("assistant", item.text))
            elif item.role == "tool":
                await self._redo(item)
                self._say(Message("user", f"[{item.data.get('name', 'tool')}] {item.text}"))
            elif item.role == STEP:
                self._asked += 1
                done = str(item.data.get("said", item.data.get("action", "")))
                self._say(Message("assistant", done))
                turn = await self._episode.answer(done)
                if isinstance(turn, Failure):
                    return self._failed(turn, ())
                if turn.over:
                    return self._ended(turn)
                self._say(Message("user", turn.text))
        return Message("user", instruction)

    async def _redo(self, item: TraceItem) -> None:
        """Use a tool once more whose uses build on one another, for what it leaves behind."""
        for tool in self._tools:
            if tool.offer.name == item.data.get("name") and getattr(tool, "keeps_state", False):
                self._redone += 1
                given = cast("Mapping[str, object]", item.data.get("arguments") or {})
                await tool.use(given, self._scope.branch(f"again-{self._redone}"))

    def _say(self, message: Message) -> None:
        self._messages = (*self._messages, message)


def _system(posed: Posed, candidate: Candidate) -> tuple[Message, ...]:
    text = system_prompt(posed.system, skill_of(candidate))
    return (Message("system", text),) if text else ()
