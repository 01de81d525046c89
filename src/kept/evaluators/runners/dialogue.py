"""An agent as runner: what a case says to it is said one by one, and it answers with its tools.

What the agent is (its instructions, its numbers, what its tools are told to be) comes from the
candidate; what a case says, with the files that go with it, from whoever reads cases.
"""

import asyncio
from collections.abc import Awaitable, Callable

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.exchange import failed, said
from kept.core.model import Message
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.words import count
from kept.models.ask import draw_seed
from kept.models.tool_loop import Agent

AgentOf = Callable[[Candidate], Awaitable[Agent | Failure]]
InputsOf = Callable[[Case], Awaitable[tuple[Message, ...] | Failure]]


class DialogueRunner:
    """Has one conversation for every pair."""

    def __init__(
        self,
        agent_of: AgentOf,
        inputs_of: InputsOf,
        close: Callable[[], Awaitable[None]],
        timeout: float,
    ) -> None:
        self._agent_of = agent_of
        self._inputs_of = inputs_of
        self._close = close
        self._timeout = timeout

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Say all that the case says, until it is done or the agent is at its end."""
        agent = await self._agent_of(candidate)
        if isinstance(agent, Failure):
            return agent
        inputs = await self._inputs_of(case)
        if isinstance(inputs, Failure):
            return inputs
        seed = draw_seed(job.purpose, job.case_id, job.repeat)
        try:
            async with asyncio.timeout(self._timeout):
                return await _talk(agent, inputs, scope, seed)
        except TimeoutError:
            message = f"the agent was not done within {count(self._timeout, 'second')}"
            return Failure("timeout", "candidate", message)

    async def close(self) -> None:
        """Close what the tools have open."""
        await self._close()


async def _talk(
    agent: Agent, inputs: tuple[Message, ...], scope: Scope, seed: int
) -> Rollout | Failure:
    messages = agent.told
    trace = [said(message) for message in messages]
    answer = ""
    for n, message in enumerate(inputs):
        trace.append(said(message))
        reply = await agent.say((*messages, message), scope.branch(f"turn-{n}"), seed)
        if isinstance(reply, Failure):
            return reply
        messages, answer = reply.messages, reply.text
        trace += reply.trace
        if reply.failure is not None:
            trace.append(failed(reply.failure))
            break
    return Rollout(output=answer, trace=tuple(trace))
