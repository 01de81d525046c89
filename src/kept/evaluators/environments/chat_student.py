"""Chat model as student: skill prompt, conversation, grading, and diagnostic probes.

The prompt contains SKILL.md first, then the other files of a skill folder with their paths.
Markdown comments are left out: they are for people and proposers, such as markers of protected
regions.

The environment decides about tools and further turns. An unusable reply is the student's own
failure and stands in its trace. A provider that does not answer is an infrastructure failure, and
no rollout counts.

The scorer returns `hard`, `soft` and a reason. A judge is called in the scope of the rollout: its
calls are journalled, paid for and replayed like any other.

A diagnostic rollout carries its instruction and the earlier conversation as one more text of the
candidate. So a probe is an Ask like any other: journalled, and never mixed up with a rollout of
the skill itself.
"""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypedDict, cast

from kept.core.artifact import Candidate, uncommented
from kept.core.case import Case
from kept.core.llm import Message, ModelRequest, asking, failed, failure_of, said
from kept.core.ports import Model, Scope, Tool
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Finding, Score
from kept.core.text import count, one_line
from kept.errors import KeptError
from kept.evaluators.environments.base import (
    HARD,
    SESSION,
    SKILL,
    SOFT,
    STEP,
    VERIFICATION,
    Environment,
    Episode,
    Graded,
    JudgeQuestion,
    Posed,
    Turn,
)
from kept.evaluators.environments.pictures import marked
from kept.models.ask import ask, draw_seed
from kept.models.prices import usual_usd, worst_usd
from kept.models.tool_loop import Agent

PROBE = ".kept-probe.json"
"""Path of the text that makes a candidate a probe; no skill may have such a file."""

_NUMBERED = ("assistant", "tool", "step")


@dataclass(frozen=True, slots=True)
class Probing:
    """Instruction of a probe, and the earlier rollout that it continues."""

    instruction: str
    before: tuple[TraceItem, ...] = ()
    """Items of the earlier rollout, taken as said and done."""
    after: int | None = None
    """The step of the earlier rollout that `before` ends with."""
    session: TraceItem | None = None


def probed(
    texts: Mapping[str, str],
    instruction: str,
    trace: Sequence[TraceItem] = (),
    after_step: int | None = None,
) -> Mapping[str, str]:
    """The texts of a candidate that is a probe; see `kept.evaluators.environments.base.Probe`."""
    before = prefix(trace, after_step) if after_step is not None else ()
    kept = (item for item in trace if item.role == SESSION and "gzip" in item.data)
    session = next((replace(item, data={**item.data, "raw": ""}) for item in kept), None)
    said: dict[str, object] = {"instruction": instruction}
    if before:
        said |= {"after": after_step, "before": [_packed(item) for item in before]}
        said |= {"session": _packed(session)} if session is not None else {}
    return {**texts, PROBE: json.dumps(said, ensure_ascii=False)}


class _Packed(TypedDict):
    """An item of a trace as JSON."""

    role: str
    text: str
    data: dict[str, object]


def probing_of(candidate: Candidate) -> Probing | None:
    """Probe that a candidate holds; None if it is none."""
    text = candidate.texts.get(PROBE)
    if text is None:
        return None
    said: Any = json.loads(text)
    session = said.get("session")
    return Probing(
        said["instruction"],
        tuple(map(_unpacked, said.get("before", ()))),
        said.get("after"),
        _unpacked(session) if session else None,
    )


def skill_of(candidate: Candidate) -> dict[str, str]:
    """The texts of a candidate that are its skill."""
    return {path: text for path, text in candidate.texts.items() if path != PROBE}


def prefix(trace: Sequence[TraceItem], after: int) -> tuple[TraceItem, ...]:
    """Items of a trace up to and including a step.

    Steps are numbered from 1, or as the agent CLI or the simulator numbered them.
    """
    found: list[TraceItem] = []
    number = 0
    for item in trace:
        if item.role in _NUMBERED:
            number = cast("int", item.data.get("step", number + 1))
            if number > after:
                break
        elif item.role not in ("system", "user"):
            continue
        found.append(item)
    # drop user messages that follow the last step
    while found and found[-1].role == "user" and number > after:
        found.pop()
    return tuple(found)


def packed_session(raw: str, data: bytes | None, session: str) -> TraceItem:
    """Trace item with the output of an agent CLI, and its session state if that is kept."""
    told: dict[str, object] = {"raw": raw}
    if data is not None:
        told |= {"gzip": base64.b64encode(data).decode(), "session": session}
    return TraceItem(SESSION, "", told)


def session_data(item: TraceItem) -> bytes:
    """Unpack the session state of a trace item."""
    return base64.b64decode(str(item.data["gzip"]))


def _packed(item: TraceItem) -> _Packed:
    return {"role": item.role, "text": item.text, "data": dict(item.data)}


def _unpacked(said: _Packed) -> TraceItem:
    return TraceItem(said["role"], said["text"], said["data"])


def skill_text(texts: Mapping[str, str]) -> str:
    """Whole skill as one text."""
    return _whole(tuple(texts.items()))


@lru_cache(maxsize=64)
def _whole(texts: tuple[tuple[str, str], ...]) -> str:
    parts: list[str] = []
    # a folder may be spelt in any order, and is one skill
    for path, text in sorted(texts, key=lambda row: (row[0] != SKILL, row[0])):
        # only in Markdown: in a template or a script such a comment may matter
        plain = uncommented(text) if path.endswith(".md") else text.strip()
        if plain:
            parts.append(plain if path == SKILL else f"## File: {path}\n\n{plain}")
    return "\n\n".join(parts)


def system_prompt(system: str, texts: Mapping[str, str]) -> str:
    """System prompt of the environment, followed by the skill."""
    skill = skill_text(texts)
    told = f"# Skill\n\n{skill}" if skill else ""
    return "\n\n".join(part for part in (system.strip(), told) if part)


Price = Callable[[Model, ModelRequest], float | None]


class ChatRunner:
    """Runner that holds a conversation with a chat model for each case."""

    def __init__(
        self,
        env: Environment,
        model: Model,
        request: ModelRequest | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Take the request settings without messages, and the time limit of a whole case."""
        self._env = env
        self._model = model
        self._shape = request or ModelRequest(())
        self._timeout = timeout

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run one conversation, within the time limit."""
        if self._timeout is None:
            return await self._run(job, candidate, case, scope)
        try:
            async with asyncio.timeout(self._timeout):
                return await self._run(job, candidate, case, scope)
        except TimeoutError:
            message = f"the case was not done within {count(self._timeout, 'second')}"
            return Failure("timeout", "candidate", message)

    async def close(self) -> None:
        """Close the environment."""
        await self._env.close()

    def worst_usd(self, candidate: Candidate, case: Case) -> float | None:
        """Upper bound of the cost of a rollout in USD; None if unknown."""
        return self._priced(worst_usd, candidate, case)

    def usual_usd(self, candidate: Candidate, case: Case) -> float | None:
        """Typical cost of a rollout in USD; None if unknown."""
        return self._priced(usual_usd, candidate, case)

    def _priced(self, price: Price, candidate: Candidate, case: Case) -> float | None:
        try:
            posed, tools = self._env.pose(case), self._env.tools(case)
        except KeptError:
            return None  # its data is gone; the rollout reports it
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
    """State of one running conversation."""

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
        """Last message to the student that is not in the trace yet."""

    async def whole(self, posed: Posed, probing: Probing | None, turns: int) -> Rollout | Failure:
        """Run the conversation from the first question to the end."""
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
        """Send one message to the student and let the environment respond to its answer."""
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
        """Replay the messages and actions of an earlier rollout, up to the chosen step."""
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
        """Call a tool with state once more, for what it leaves behind."""
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


_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_CLOSING = re.compile(r"</answer>", re.IGNORECASE)
_OPEN = re.compile(r"<answer>(.*)\Z", re.DOTALL | re.IGNORECASE)
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)
"""A box that opens, a sign that is taken as it is, or a brace."""

SHOWN = 200
"""Characters of an answer that a finding quotes."""


def answer_in(text: str) -> str | Failure:
    """Text in the last pair of answer tags, or the whole text if there are none.

    A tag that is never closed counts: a reply that was cut may have said enough.
    """
    # only up to the last closing tag: unclosed tags would make the search quadratic
    ends = max((found.end() for found in _CLOSING.finditer(text)), default=0)
    closed = _ANSWER.findall(text, 0, ends)
    still = _OPEN.search(text) if not closed else None
    answer = closed[-1] if closed else still[1] if still else text
    if not answer.strip():
        return Failure("empty", "candidate", "the answer is empty")
    return answer.strip()


def answer_or_last_line(text: str) -> str | Failure:
    """Text in the last pair of answer tags, or the last line that is not empty."""
    if "<answer>" in text.lower():
        return answer_in(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return answer_in(lines[-1] if lines else "")


def boxed(text: str) -> str | None:
    """The text in the last box that is closed; of nested boxes the outer counts."""
    found: str | None = None
    # stack of open braces: the start of the text for a box, None for another brace
    opened: list[int | None] = []
    for sign in _BRACES.finditer(text):
        if sign[0] == "}":
            start = opened.pop() if opened else None
            found = text[start : sign.start()].strip() if start is not None else found
        elif sign[0] == "{":
            opened.append(None)
        elif sign[0].startswith("\\boxed"):
            opened.append(sign.end())
    return found


def quoted(text: str) -> str:
    """An answer as a finding shows it."""
    return f"`{one_line(text, SHOWN)}`"


class EnvScorer:
    """Scorer that has the environment grade a rollout."""

    def __init__(self, env: Environment, judge: Model | None = None) -> None:
        """Without a judge the environment's own rule decides what a judge would."""
        self._env = env
        self._judge = judge

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Grade a rollout; one without an answer is the candidate's failure, not a zero."""
        failure = failure_of(rollout.trace)
        if failure is not None:
            return failed_score(failure)
        graded = self._env.grade(case, rollout)
        if isinstance(graded, JudgeQuestion):
            graded = await self._judged(graded, scope)
        if isinstance(graded, Failure):
            if graded.blame == "infrastructure":
                return graded
            return failed_score(graded)
        return scored(graded, rollout, self._env.about(case).reference)

    async def _judged(self, question: JudgeQuestion, scope: Scope) -> Graded | Failure:
        judge = self._judge
        if judge is None:
            return question.fallback
        reply = await ask(scope.branch("judge"), judge, question.request)
        if not isinstance(reply, Failure):
            return question.read(reply.text)
        # a failure of the judge is never the candidate's, and a refusal would only be repeated
        return replace(
            reply,
            blame="infrastructure",
            message=f"the judge `{judge.name}`: {reply.message}",
            tried=reply.tried or reply.blame == "candidate",
        )

    async def close(self) -> None:
        """Do nothing: nothing was opened here."""


def failed_score(failure: Failure) -> Score:
    """Score without metrics that keeps the failure and its message for analysts."""
    told = TraceItem(VERIFICATION, failure.message, {"kind": failure.kind})
    return Score({}, details=(told,), failure=failure)


def scored(graded: Graded, rollout: Rollout, reference: str) -> Score:
    """Turn a grade into a score."""
    metrics = {**rollout.metrics, **graded.metrics, HARD: graded.hard, SOFT: graded.soft}
    findings = (Finding(graded.why, "high", HARD),) if graded.why else ()
    figures = f"{HARD} {graded.hard:g}, {SOFT} {graded.soft:.3g}"
    text = "; ".join(part for part in (figures, graded.told, graded.why) if part)
    data: dict[str, object] = {HARD: graded.hard, SOFT: graded.soft}
    data |= {"reference": reference} if reference else {}
    return Score(metrics, findings, (TraceItem(VERIFICATION, text, data),))
