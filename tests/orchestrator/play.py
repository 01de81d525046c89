"""Manager, workers and critics by a script, and runs of them without a process of their own.

What is said depends on what is asked and on nothing else, so that a run that was cut and goes on
hears what the first one would have heard.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest, ToolCall
from kept.core.ports import Clock, Scope, Tool
from kept.core.rollout import Failure, Job, Rollout, Usage
from kept.engine.replay import JournalScope
from kept.engine.stop import SystemClock
from kept.evaluators.tools.arithmetic import ArithmeticTool
from kept.evaluators.tools.files import SharedFiles, file_tools
from kept.models.scripted import ScriptedModel
from kept.orchestrator.checks.base import Check, CheckResult, Passed, Ran, Rejected, Submission
from kept.orchestrator.checks.chain import chain
from kept.orchestrator.events import Moment, record_of
from kept.orchestrator.record import AgentRun, Iteration, Limits, Models
from kept.orchestrator.runner import AgentRunner
from kept.orchestrator.state import Assignment
from kept.orchestrator.toolkit import Kit, own_artifacts, own_prompts
from kept.orchestrator.workers import ChatWorker
from kept.testing import MemoryJournal
from kept.testing.journal import CallRecord
from kept.testing.server import Fault, Seen

Say = str | ModelReply | Fault
Line = tuple[str, str]
"""Role and text."""

GOOD: Mapping[str, object] = {"score": 0.9, "defects": [], "summary": "fine"}
REPORT = "# Report\n\nSales were 12 in May and 15 in June, which is 25 percent more.\n"


def say(value: object) -> str:
    return json.dumps(value)


def plan(*outputs: str, **more: object) -> str:
    subtask = {"id": "s1", "description": "write it", "required_outputs": list(outputs), **more}
    return say({"decision": "plan", "subtasks": [subtask]})


def delegate(*workers: str, **more: object) -> str:
    rows = [
        {"worker_id": name, "subtask_id": "s1", "instructions": "do it", **more} for name in workers
    ]
    return say({"decision": "delegate", "delegations": rows})


def complete(**more: object) -> str:
    result = {"summary": "done"}
    return say({"decision": "complete", "final_result": result, "confidence": 0.9, **more})


def use(name: str, **arguments: object) -> ModelReply:
    return ModelReply("", finish="tool_calls", tool_calls=(ToolCall("c1", name, say(arguments)),))


def write(path: str = "output/report.md", content: str = REPORT) -> ModelReply:
    return use("file_write", path=path, content=content)


def done(name: str, confidence: float = 0.9, **more: object) -> str:
    return say({name: {"summary": "did it", "confidence": confidence, **more}})


@dataclass
class Play:
    """Who says what: the manager by its turn, workers by what they have said already."""

    manager: Sequence[Say | Sequence[Say]]
    workers: Mapping[str, Sequence[Say]] = field(default_factory=dict[str, Sequence[Say]])
    critic: Say | Callable[[str], Say] = field(default_factory=lambda: say(GOOD))
    loops: int = 100
    usd: float = 0.0
    """Of each reply."""
    heard: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Who was asked, and the last thing that was said to them."""

    def of_server(self, seen: Seen) -> Say:
        return self.answer([(line.role, line.text) for line in seen.lines])

    def of_request(self, request: ModelRequest) -> str | ModelReply | Failure:
        said = self.answer([(message.role, message.text) for message in request.messages])
        if isinstance(said, Fault):
            return Failure("server", "infrastructure", said.message)
        reply = ModelReply(said) if isinstance(said, str) else said
        asked = sum(len(message.text) for message in request.messages)
        written = len(reply.text) + sum(len(call.arguments) for call in reply.tool_calls)
        usage = Usage(calls=1, tokens_in=asked // 4, tokens_out=written // 4, usd=self.usd)
        return replace(reply, usage=usage)

    def answer(self, lines: Sequence[Line]) -> Say:
        told, spoken = lines[0][1], sum(role == "assistant" for role, _ in lines)
        user = "\n".join(text for role, text in lines if role == "user")
        if told.startswith("You are the manager"):
            self.heard.append(("manager", user))
            return self._managed(user, spoken)
        if told.startswith("You judge"):
            self.heard.append(("critic", user))
            return self.critic(user) if callable(self.critic) else self.critic
        name = re.findall(r"Your name: (\S+)", user)[0]
        self.heard.append((name, user))
        script = self.workers.get(name, [done(name)])
        return script[min(spoken, len(script) - 1)]

    def _managed(self, user: str, spoken: int) -> Say:
        left = int(re.findall(r"(\d+) further turns?", user)[-1])
        turn = self.loops - left - 1
        said = self.manager[min(turn, len(self.manager) - 1)]
        if isinstance(said, str | ModelReply | Fault):
            return said
        return said[min(spoken, len(said) - 1)]


def simple(**more: object) -> Play:
    """A report by one worker."""
    workers = {"w1": [write(), done("w1")]}
    return Play([plan("report.md"), delegate("w1"), complete()], workers)


@dataclass(frozen=True)
class Says:
    """A check that says what it is told to, once for each completion."""

    answers: list[CheckResult | Failure]
    name: str = "says"

    async def __call__(self, submission: Submission, scope: Scope) -> CheckResult | Failure:
        return self.answers.pop(0) if self.answers else Passed()


def refuse(reason: str = "too short", **more: object) -> Rejected:
    return Rejected(reason=reason)


def tools_for(files: SharedFiles, texts: Mapping[str, str]) -> Sequence[Tool]:
    return (*file_tools(files, texts), ArithmeticTool(texts.get("arithmetic", "")))


async def _nothing() -> None:
    return None


def runs_nothing(files: Mapping[str, bytes]) -> Callable[..., object]:
    async def run(command: Sequence[str], seconds: float, scope: Scope) -> Ran | Failure:
        return Ran(0, "")

    return run


def kit_of(
    play: Play,
    limits: Limits | None = None,
    checks: Sequence[Check] | None = None,
    clock: Clock | None = None,
) -> Kit:
    limits = limits or Limits()
    play.loops = limits.loops
    model = ScriptedModel(play.of_request, name="scripted/play", worst=2 * play.usd)
    return Kit(
        models=Models(manager="scripted/play", worker="scripted/play"),
        manager=model,
        critic=model,
        works=ChatWorker(model, tools_for),
        tools=tools_for,
        checks=tuple(chain() if checks is None else checks),
        beside=runs_nothing,  # pyright: ignore[reportArgumentType] # nothing is run in these tests
        limits=limits,
        clock=clock or SystemClock(),
        prompts=own_prompts(),
    )


@dataclass
class Came:
    """What a run came to."""

    record: AgentRun
    files: Mapping[str, bytes]
    journal: MemoryJournal
    rollout: Rollout


JOB = Job("seed", "task", 0, "measure")


def runner_of(
    kit: Kit, assignment: Assignment, inputs: Mapping[str, bytes], hear: object
) -> AgentRunner:
    return AgentRunner(
        kit=kit,
        assignment_of=lambda case: assignment,
        files_of=lambda case: inputs,
        measures=lambda record: {},
        closes=_nothing,
        hear=hear,  # pyright: ignore[reportArgumentType] # a list's own method
    )


def run_agent(
    kit: Kit,
    task: str = "Write a report on sales to report.md",
    *,
    inputs: Mapping[str, bytes] | None = None,
    journal: MemoryJournal | None = None,
    assignment: Assignment | None = None,
    artifacts: Mapping[str, str] | None = None,
) -> Came | Failure:
    """Run it to its end."""
    journal = journal or MemoryJournal()
    moments: list[Moment] = []
    about = assignment or Assignment(task=task)
    runner = runner_of(kit, about, inputs or {}, moments.append)
    scope = JournalScope(journal, JOB)
    candidate = Candidate({**own_artifacts(), **(artifacts or {})})
    rollout = asyncio.run(runner.run(JOB, candidate, Case("task"), scope))
    if isinstance(rollout, Failure):
        return rollout
    record = record_of(moments)
    assert record is not None
    return Came(record, rollout.files, journal, rollout)


def finished(came: Came | Failure) -> Came:
    assert isinstance(came, Came), came
    return came


def with_limits(**more: object) -> Limits:
    return replace(Limits(), **more)  # pyright: ignore[reportArgumentType] # checked by the class


def timeless(record: AgentRun) -> AgentRun:
    """Without what a clock said."""

    def still(one: Iteration) -> Iteration:
        sent = tuple(replace(d, seconds=0.0) for d in one.delegations)
        return replace(one, began=0.0, ended=0.0, budget=None, delegations=sent)

    return replace(
        record,
        started=0.0,
        ended=None,
        budget=None,
        iterations=tuple(map(still, record.iterations)),
    )


def replies_in(records: Sequence[object]) -> int:
    """Replies of models among what was written down."""
    return sum(isinstance(r, CallRecord) and isinstance(r.reply, ModelReply) for r in records)
