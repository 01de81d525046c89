"""Tool loop: call a model, run the tools that it requests, repeat until it answers.

Everything is journalled as it happens: replies by `ask`, uses by the tools themselves. An
interrupted conversation therefore continues where it stopped.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kept.core.llm import (
    Message,
    ModelReply,
    ModelRequest,
    ToolAnswer,
    ToolCall,
    answered,
    asked_for,
    asking,
    used,
)
from kept.core.parsing import parse_json
from kept.core.ports import Model, Scope, Tool
from kept.core.rollout import Failure, TraceItem
from kept.core.untyped import is_dict
from kept.engine.user_code import ungrouped
from kept.models.ask import ask
from kept.models.structured_output import ANY, ReplyRules

MAX_REPLIES = 20
"""Maximum replies to one message; a model that needs more is going in circles."""

LONGEST_RESULT = 200_000
"""Maximum characters of a tool result; the model sees how many more were left out."""


@dataclass(frozen=True, slots=True)
class Said:
    """Outcome of one message to the agent."""

    text: str
    """The answer; empty if there is none."""
    messages: tuple[Message, ...]
    """Conversation so far, including the answer."""
    trace: tuple[TraceItem, ...]
    """Events since the message was sent."""
    failure: Failure | None = None
    """Reason why there is no answer, if the agent caused it; the trace is still useful."""


class Agent:
    """A model with tools, as one candidate defines it; shared by all its cases."""

    def __init__(
        self,
        model: Model,
        request: ModelRequest,
        tools: Sequence[Tool],
        replies: int = MAX_REPLIES,
        rules: ReplyRules = ANY,
        most_usd: float | None = None,
    ) -> None:
        """`request` holds what all requests share, `rules` are checked on every reply.

        Once the replies to one message cost `most_usd` or more, no further one is requested.
        """
        self.told = request.messages
        """Messages that precede every conversation."""
        self._model = model
        self._tools: Mapping[str, Tool] = {tool.offer.name: tool for tool in tools}
        self._request = request
        if tools or request.tools:
            self._request = replace(request, tools=tuple(tool.offer for tool in tools))
        self._replies = replies
        self._rules = rules
        self._most_usd = most_usd

    async def say(self, messages: tuple[Message, ...], scope: Scope, seed: int) -> Said | Failure:
        """Have the model answer the last message; return a `Failure` only for infrastructure."""
        began = time.monotonic()
        waited = 0.0
        spent = 0.0
        trace: list[TraceItem] = []
        for n in range(self._replies):
            if self._most_usd is not None and spent >= self._most_usd:
                most = f"${self._most_usd:g}"
                dear = f"the replies cost ${spent:.3g}, and the limit for a case is {most}"
                return Said("", messages, tuple(trace), Failure("limit", "candidate", dear))
            request = asking(self._request, messages, seed)
            reply = await ask(scope, self._model, request, rules=self._rules)
            if isinstance(reply, Failure) and reply.kind != "empty":
                if reply.blame == "infrastructure":
                    return reply
                return Said("", messages, tuple(trace), reply)
            if isinstance(reply, Failure):
                # an empty reply counts as an answer, and is scored
                reply = ModelReply("")
            waited += reply.seconds
            # price from the journal, so that a resume counts the same
            spent += reply.usage.usd
            message = Message("assistant", reply.text, tool_calls=reply.tool_calls)
            messages = (*messages, message)
            if not reply.tool_calls:
                # replayed replies did not take their time again
                seconds = max(waited, time.monotonic() - began)
                trace.append(answered(reply.text, seconds))
                fault = None
                if reply.finish == "refused":
                    refusal = "the model would not answer"
                    fault = Failure("refused", "candidate", refusal, reply.text)
                return Said(reply.text, messages, tuple(trace), fault)
            trace.append(asked_for(message))
            # one branch per reply: two equal tool calls are two calls, not a replay of the first
            results = await self._use(reply.tool_calls, scope.branch(f"tools-{n}"))
            if isinstance(results, Failure):
                return results
            for call, (given, answer) in zip(reply.tool_calls, results, strict=True):
                waited += answer.seconds
                shown = answer.text[:LONGEST_RESULT]
                if left := len(answer.text) - len(shown):
                    shown += f"\n[{left:,} more characters were left out]"
                messages = (*messages, Message("tool", shown, answers=call.id))
                trace.append(used(call.name, given, answer))
        circles = f"the model wanted tools {self._replies} times, and did not answer"
        return Said("", messages, tuple(trace), Failure("limit", "candidate", circles))

    async def _use(
        self, calls: Sequence[ToolCall], scope: Scope
    ) -> Sequence[tuple[Mapping[str, object], ToolAnswer]] | Failure:
        """Run all requested tools concurrently, each in its own branch."""
        with ungrouped():
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._once(call, scope.branch(f"{n}-{call.name}")))
                    for n, call in enumerate(calls)
                ]
        results = [task.result() for task in tasks]
        done = [one for one in results if not isinstance(one, Failure)]
        failed = [one for one in results if isinstance(one, Failure)]
        return failed[0] if failed else done

    async def _once(
        self, call: ToolCall, scope: Scope
    ) -> tuple[Mapping[str, object], ToolAnswer] | Failure:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return {}, ToolAnswer(f"there is no tool `{call.name}`; there is {known}", wrong=True)
        try:
            read = parse_json(call.arguments or "{}")
        except ValueError:
            read = None
        if not is_dict(read):
            return {}, ToolAnswer("the arguments are no JSON object", wrong=True)
        answer = await tool.use(read, scope)
        return answer if isinstance(answer, Failure) else (read, answer)
