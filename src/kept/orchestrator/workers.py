"""Workers of one turn: parallel execution, tool use, replies (R17), stop and resume.

Each worker runs in a branch with its own share of the budget. It uses tools until it answers, and
its answer is checked by rule R17. After a stop request, running calls may finish but no new ones
start.

In a resume each worker first replays its journalled calls and repeats its changes of the shared
files. A worker that is done replaying waits for the others, also for those that a replacement
manager sends. A new tool call before that would miss their changes, and its own change would
count as older.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from kept.core.llm import Message, ModelRequest, ToolAnswer, ToolOffer
from kept.core.ports import Model, Priced, Scope, Tool
from kept.core.rollout import FREE, Failure, TraceItem, Usage
from kept.core.text import one_line
from kept.engine.user_code import ungrouped
from kept.evaluators.tools.files import SharedFiles
from kept.models.structured_output import ReplyRules, Unfit, fit
from kept.models.tool_loop import Agent
from kept.orchestrator.budget import Account, Ledger, Metered
from kept.orchestrator.checks.files import contract_problems
from kept.orchestrator.completion import criticise
from kept.orchestrator.events import worker_lines
from kept.orchestrator.record import Delegation
from kept.orchestrator.state import Course
from kept.orchestrator.toolkit import (
    Errand,
    Kit,
    Texts,
    ToolsFor,
    Worked,
    joined,
    place,
    tool_texts,
)

R = TypeVar("R", bound=Priced)


class CatchingUp:
    """The workers of one turn, of which `side_by_side` may make new calls at a time."""

    def __init__(self, workers: int, side_by_side: int, above: "Following | None" = None) -> None:
        self.above = above
        """Worker of the turn above that sent them as a manager; None at the top."""
        self.places = asyncio.Semaphore(side_by_side)
        self._behind = workers
        self._waits = False
        self._all: asyncio.Event = above.turn.everybody if above else asyncio.Event()

    @property
    def everybody(self) -> asyncio.Event:
        """Event set when all workers have finished replaying, in this turn and those above."""
        return self._all

    def one_has(self, *, waits: bool) -> None:
        """Count a worker that has finished replaying and waits for the others, or has ended."""
        self._behind -= 1
        self._waits = self._waits or waits
        if self._behind:
            return
        if self.above is None:
            self._all.set()
        elif self._waits:
            # the manager above replays nothing until they have answered; if none waits, it goes on
            self.above.has_heard(waits=True)


@dataclass(slots=True)
class Following:
    """One worker of a turn, with the state of its replay."""

    turn: CatchingUp
    live: bool = False
    """True if it may make new calls."""
    _heard: bool = False
    _first: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def go_live(self) -> None:
        """Wait until all workers have finished replaying, then for a free place."""
        async with self._first:
            if self.live:
                return
            self.has_heard(waits=True)
            # the last one would not have to wait; yield once so that it is not served first
            await asyncio.sleep(0)
            await self.turn.everybody.wait()
            if self.turn.above is not None:
                await self.turn.above.go_live()
            await self.turn.places.acquire()
            self.live = True

    def ended(self) -> None:
        """Record that the worker has ended, and free its place."""
        self.has_heard(waits=False)
        if self.live:
            self.turn.places.release()

    def has_heard(self, *, waits: bool) -> None:
        """Record once that the worker has finished replaying."""
        if not self._heard:
            self._heard = True
            self.turn.one_has(waits=waits)


class _NewError(Exception):
    """The journal has no reply for this call."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The scope of one worker; implements `kept.core.ports.Scope`."""

    scope: Scope
    worker: Following

    async def call(
        self,
        request: object,
        reply: type[R],
        do: Callable[[], Awaitable[R | Failure]],
        worst_usd: float | None = None,
    ) -> R | Failure:
        """Return the journalled reply, or a new one once the worker may make new calls."""

        async def if_live() -> R | Failure:
            if not self.worker.live:
                raise _NewError
            return await do()

        try:
            return await self.scope.call(request, reply, if_live, worst_usd)
        except _NewError:
            # wait outside the call, which would reserve budget that others need
            await self.worker.go_live()
        return await self.scope.call(request, reply, do, worst_usd)

    def branch(self, name: str) -> "CatchUp":
        """Return a scope below this one, for the same worker."""
        return CatchUp(self.scope.branch(name), self.worker)


class Broken(ValueError):
    """An answer that violates the output contract; the message is for the worker."""


def result_of(text: str, name: str, required: Sequence[str]) -> Mapping[str, object]:
    """Parse the result that a worker reports under its name; raises `Broken`."""
    try:
        found: dict[str, Any] = json.loads(fit(text, {"type": "object"}))
    except Unfit as error:
        raise Broken(f"the answer is not one JSON object: {error}") from error
    if problems := contract_problems(name, found, required):
        raise Broken(f"the answer of `{name}` is not as agreed: {'; '.join(problems)}")
    return cast("Mapping[str, object]", found.get(name, found))


def confidence_of(result: Mapping[str, object]) -> float:
    """Return the worker's confidence in its result."""
    return float(cast("float", result["confidence"]))


class Stop:
    """Stop request; call it from the thread of the run."""

    def __init__(self) -> None:
        self.asked = False
        self.live = False
        """True once a new call was made; until then a resume only replays."""

    def __call__(self) -> None:
        """Request a stop."""
        self.asked = True


@dataclass(frozen=True, slots=True)
class Stoppable:
    """A scope that makes no new calls after a stop request; implements `Scope`."""

    scope: Scope
    stop: Stop

    async def call(
        self,
        request: object,
        reply: type[R],
        do: Callable[[], Awaitable[R | Failure]],
        worst_usd: float | None = None,
    ) -> R | Failure:
        """Return the journalled reply, or a new one; cancels new calls after a stop request."""

        async def unless_stopped() -> R | Failure:
            if self.stop.asked:
                raise asyncio.CancelledError
            self.stop.live = True
            return await do()

        return await self.scope.call(request, reply, unless_stopped, worst_usd)

    def branch(self, name: str) -> "Stoppable":
        """Return a scope below this one, with the same stop request."""
        return Stoppable(self.scope.branch(name), self.stop)


Manages = Callable[[Errand, Scope, Account], Awaitable[Worked | Failure]]
"""Function that runs a manager for a subtask."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Journalled order in which the changes of a manager below were merged."""

    stamp: int
    refused: str = ""
    """Reason why they could not be merged; empty if they were."""
    usage: Usage = FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Workers of a run, with their shared files and budget."""

    kit: Kit
    texts: Texts
    files: SharedFiles
    ledger: Ledger
    manages: Manages

    async def send(
        self, wanted: Sequence[Delegation], course: Course, scope: Scope, managed: frozenset[str]
    ) -> tuple[Delegation, ...] | Failure:
        """Run the workers in parallel, and return the results in order.

        A `Failure` is one of infrastructure; failures of workers are in the results.
        """
        held = {path: len(data) for path, data in self.files.all().items()}
        errands = [
            Errand(
                delegation=one,
                subtask=(subtask := course.subtask(one.subtask_id)),
                # a manager below works in a copy: its prompts must not depend on its neighbours
                files=self.files.copy() if one.worker_id in managed else self.files,
                texts=self.texts,
                before=course.before(subtask),
                held=held,
            )
            for one in wanted
        ]
        # counted first: the rest is shared among those that manage others
        self.ledger.workers += len(wanted)
        accounts = self.ledger.open(len(wanted))
        side_by_side = self.kit.limits.parallel_workers
        above = None
        if isinstance(scope, CatchUp):
            # sent by a manager below: use the scope that it wraps
            above, scope = scope.worker, scope.scope
        turn = CatchingUp(len(wanted), side_by_side, above)
        started = (
            self._in_turn(turn, errand, scope.branch(errand.delegation.worker_id), account, managed)
            for errand, account in zip(errands, accounts, strict=True)
        )
        with ungrouped():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in started]
        found = [task.result() for task in tasks]
        failed = [one for one in found if isinstance(one, Failure)]
        if failed:
            return failed[0]
        self.ledger.settle(accounts, side_by_side)
        return tuple(one for one in found if not isinstance(one, Failure))

    async def _in_turn(
        self,
        turn: CatchingUp,
        errand: Errand,
        scope: Scope,
        account: Account,
        managed: frozenset[str],
    ) -> Delegation | Failure:
        worker = Following(turn)
        try:
            return await self._one(errand, CatchUp(scope, worker), account, managed)
        finally:
            worker.ended()

    async def _merged(self, worked: Worked, scope: Scope) -> Worked:
        """Merge the changes of a copy into the shared files."""
        changes = worked.written

        async def do() -> Merged:
            return Merged(self.files.stamp(), self.files.refusal(changes) or "")

        merged = await scope.call({"merged": sorted(changes)}, Merged, do, 0.0)
        assert isinstance(merged, Merged), "to take a number does not fail"
        if merged.refused:
            failure = Failure("limit", "candidate", merged.refused)
            return Worked(failure=failure, story=worked.story)
        self.files.apply(changes, merged.stamp)
        return worked

    async def _one(
        self, errand: Errand, scope: Scope, account: Account, managed: frozenset[str]
    ) -> Delegation | Failure:
        wanted, metered = errand.delegation, Metered(scope, account)
        if wanted.worker_id in managed:
            worked = await self.manages(errand, scope.branch("manages"), account)
            if not isinstance(worked, Failure):
                worked = await self._merged(worked, scope.branch("merged"))
        else:
            worked = await self.kit.works(errand, metered.branch("works"))
        if isinstance(worked, Failure):
            return worked
        done = replace(
            wanted,
            result=worked.result,
            confidence=worked.confidence,
            failure=worked.failure,
            written=tuple(sorted(worked.written)),
            lost=worked.lost,
        )
        # a critique is paid from the worker's own account
        if worked.result is not None:
            said = await criticise(self.kit, errand, worked, metered.branch("critic"))
            if isinstance(said, Failure) and said.blame == "infrastructure":
                return said
            if isinstance(said, Failure):
                done = replace(done, critique_failure=said)
            else:
                done = replace(done, critique=said)
        done = replace(
            done,
            tool_calls=account.tools_used,
            usage=account.used,
            seconds=round(account.seconds, 3),
        )
        for line in worker_lines(done):
            self.kit.say(line)
        return done


ROUNDS = 15
"""Maximum replies of a worker with tool calls, against endless loops."""

_USED_UP = "there are no tool calls left: answer now, with what you have"


@dataclass(frozen=True, slots=True)
class ChatWorker:
    """Worker that is a model with tools; implements `Works`."""

    model: Model
    tools: ToolsFor

    async def __call__(self, errand: Errand, scope: Metered) -> Worked | Failure:
        """Run the tool loop until an answer keeps the output contract; one retry."""
        desk = _Desk(scope.account)
        agent = self._agent(errand, desk)
        name, required = errand.delegation.worker_id, errand.delegation.required_fields
        messages = (*agent.told, Message("user", told(errand)))
        trace: tuple[TraceItem, ...] = ()
        broken = ""
        # the conversation goes on with the problem, so the second try sees the first
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
    """Shared state of one worker's tool calls."""

    account: Account
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    written: dict[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Content of the files that the worker changed; None for deleted ones."""

    def ended(self, failure: Failure, trace: tuple[TraceItem, ...]) -> Worked:
        """Return the result of a worker that failed."""
        return Worked(failure=failure, written=self.written, story=_story(trace))


@dataclass(frozen=True, slots=True)
class _InTurn:
    """A tool whose calls by one worker run one after another, and are counted."""

    tool: Tool
    desk: _Desk

    @property
    def offer(self) -> ToolOffer:
        """Description of the tool for models."""
        return self.tool.offer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Use the tool if a tool call is left."""
        # parallel tool calls run in order, because a model may write a file and then read it
        async with self.desk.turn:
            if not self.desk.account.use_tool():
                return ToolAnswer(_USED_UP, wrong=True)
            answer = await self.tool.use(arguments, scope)
        if isinstance(answer, ToolAnswer):
            self.desk.written.update(answer.changes)
        return answer


def told(errand: Errand) -> str:
    """Return the prompt of a worker for its subtask."""
    subtask, wanted = errand.subtask, errand.delegation
    parts = [f"Your name: {wanted.worker_id}"]
    if subtask is not None:
        parts.append(f"Your subtask `{subtask.id}`: {subtask.description}")
        parts += ["It is done when:\n" + _listed(subtask.success_criteria)] * bool(
            subtask.success_criteria
        )
        files = [f"output/{path}" for path in subtask.required_outputs]
        parts += ["It must leave these files:\n" + _listed(files)] * bool(files)
        means = [*subtask.tools]
        for need in subtask.needs:
            assumed = f", assuming {'; '.join(need.assumptions)}" if need.assumptions else ""
            means.append(f"{need.capability}: {need.how} {need.of}".rstrip() + assumed)
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


def _listed(lines: "tuple[str, ...] | list[str]") -> str:
    return "\n".join(f"* {line}" for line in lines)


def _story(trace: tuple[TraceItem, ...]) -> str:
    """Return a line for each tool call of a worker, with its result."""
    lines: list[str] = []
    for item in trace:
        if item.role == "tool":
            given = one_line(json.dumps(item.data.get("arguments", {}), ensure_ascii=False), 200)
            lines.append(f"{item.data.get('name')} {given} -> {one_line(item.text, 200)}")
    return "\n".join(lines)
