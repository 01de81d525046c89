"""A model with tools as worker: it uses them until it answers, and its answer is held to R17."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.core.model import Message, ModelRequest, ToolOffer
from kept.core.ports import Model, Scope, Tool
from kept.core.rollout import Failure, TraceItem
from kept.core.tool import ToolAnswer
from kept.core.words import one_line
from kept.models.structured_output import ReplyRules
from kept.models.tool_loop import Agent
from kept.orchestrator.budget import Account, Metered
from kept.orchestrator.contract import Broken, confidence_of, result_of
from kept.orchestrator.kit import Errand, ToolsFor, Worked
from kept.orchestrator.record import Delegation, Need
from kept.orchestrator.texts import joined, place, tool_texts

ROUNDS = 15
"""Replies of a worker, after which it is taken to go round in circles."""

_USED_UP = "there are no tool calls left: answer now, with what you have"


@dataclass(frozen=True, slots=True)
class ChatWorker:
    """Implements `Works` with a model."""

    model: Model
    tools: ToolsFor

    async def __call__(self, errand: Errand, scope: Metered) -> Worked | Failure:
        """Talk until there is an answer that keeps the contract, or there will be none."""
        desk = _Desk(scope.account)
        agent = self._agent(errand, desk)
        name, required = errand.delegation.worker_id, errand.delegation.required_fields
        messages = (*agent.told, Message("user", told(errand)))
        trace: tuple[TraceItem, ...] = ()
        broken = ""
        for n in range(2):
            said = await agent.say(messages, scope.branch(f"say-{n}"), 0)
            if isinstance(said, Failure) and said.blame == "infrastructure":
                return said
            if isinstance(said, Failure):
                return desk.ended(said, trace)
            trace += said.trace
            if said.failure is not None:
                return desk.ended(said.failure, trace)
            try:
                result = result_of(said.text, name, required)
            except Broken as error:
                broken = str(error)
                again = f"{broken}. Answer again, with the one JSON object only."
                messages = (*said.messages, Message("user", again))
                continue
            return Worked(
                result=result,
                confidence=confidence_of(result),
                written=desk.written,
                story=_story(trace),
            )
        failure = Failure("parse", "candidate", f"the output contract was broken twice: {broken}")
        return desk.ended(failure, trace)

    def _agent(self, errand: Errand, desk: "_Desk") -> Agent:
        texts, wanted = errand.texts, errand.delegation
        offered = self.tools(errand.files, tool_texts(texts["tool_description_templates"]))
        allowed = wanted.tools_allowed or tuple(tool.offer.name for tool in offered)
        tools = [_InTurn(tool, desk) for tool in offered if tool.offer.name in allowed]
        system = joined(
            place(texts["worker"], {"name": wanted.worker_id}), texts["worker_pitfalls"]
        )
        request = ModelRequest(
            (Message("system", system),),
            temperature=wanted.temperature,
            max_tokens=desk.account.longest_reply,
        )
        rules = ReplyRules(usable=lambda text: _keeps_contract(text, wanted))
        return Agent(self.model, request, tools, ROUNDS, rules)


def _keeps_contract(text: str, wanted: Delegation) -> bool:
    try:
        result_of(text, wanted.worker_id, wanted.required_fields)
    except Broken:
        return False
    return True


@dataclass(slots=True)
class _Desk:
    """Where one worker's uses of tools come together."""

    account: Account
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    written: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Files as the worker left them."""

    def ended(self, failure: Failure, trace: tuple[TraceItem, ...]) -> Worked:
        """A worker that came to nothing."""
        return Worked(failure=failure, written=self.written, story=_story(trace))


@dataclass(frozen=True, slots=True)
class _InTurn:
    """A tool whose uses by one worker come one after another, and are counted."""

    tool: Tool
    desk: _Desk

    @property
    def offer(self) -> ToolOffer:
        """What a model is told of it."""
        return self.tool.offer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Use it, where that is still allowed."""
        # a model that wants a file written and then read expects that order
        async with self.desk.turn:
            if not self.desk.account.use_tool():
                return ToolAnswer(_USED_UP, wrong=True)
            answer = await self.tool.use(arguments, scope)
        if isinstance(answer, ToolAnswer):
            self.desk.written.update(answer.changes)
        return answer


def told(errand: Errand) -> str:
    """What a worker is told of its subtask."""
    subtask, wanted = errand.subtask, errand.delegation
    parts = [f"Your name: {wanted.worker_id}"]
    if subtask is not None:
        parts.append(f"Your subtask `{subtask.id}`: {subtask.description}")
        parts += ["It is done when:\n" + _listed(subtask.success_criteria)] * bool(
            subtask.success_criteria
        )
        files = [f"output/{path}" for path in subtask.required_outputs]
        parts += ["It must leave these files:\n" + _listed(files)] * bool(files)
        means = [*subtask.tools, *map(_means, subtask.needs)]
        parts += ["The plan has it done with:\n" + _listed(means)] * bool(means)
    parts.append(f"Instructions:\n{wanted.instructions}")
    parts += [f"What others brought already:\n{errand.before}"] * bool(errand.before)
    names = [f"{path} ({size} bytes)" for path, size in errand.held.items()]
    shown = names[:200] + ([f"[{len(names) - 200} more]"] if len(names) > 200 else [])
    parts.append("The workspace holds:\n" + (_listed(shown) if shown else "nothing so far"))
    if wanted.required_fields or wanted.output_description:
        fields = ", ".join(f"`{name}`" for name in (*wanted.required_fields, "confidence"))
        parts.append(f"Under your name report {fields}. {wanted.output_description}".strip())
    return "\n\n".join(parts)


def _means(need: Need) -> str:
    assumed = f", assuming {'; '.join(need.assumptions)}" if need.assumptions else ""
    return f"{need.capability}: {need.how} {need.of}".rstrip() + assumed


def _listed(lines: "tuple[str, ...] | list[str]") -> str:
    return "\n".join(f"* {line}" for line in lines)


def _story(trace: tuple[TraceItem, ...]) -> str:
    """What a worker used and what came of it, a line each."""
    lines: list[str] = []
    for item in trace:
        if item.role == "tool":
            given = one_line(json.dumps(item.data.get("arguments", {}), ensure_ascii=False), 200)
            lines.append(f"{item.data.get('name')} {given} -> {one_line(item.text, 200)}")
    return "\n".join(lines)
