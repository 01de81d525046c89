"""Provider-independent types for model requests, replies, tools, traces and embeddings.

Pure values; `kept.models` translates them for each provider. A conversation travels as the trace
of the rollout, which people read too; `exchanges_of` reads it back for scorers. Texts close in
meaning have nearby embedding vectors.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, cast

from kept.core.rollout import FREE, Failure, FailureKind, TraceItem, Usage


@dataclass(frozen=True, slots=True)
class Embedded:
    """One vector for every text, in their order, all of one length."""

    vectors: tuple["array[float]", ...]
    """Of four bytes a number (`array("f")`), which is what everybody keeps of them."""
    usage: Usage = FREE


Role = Literal["system", "user", "assistant", "tool"]

Effort = Literal["minimal", "low", "medium", "high"]
"""Reasoning effort of a model that can think first."""

Finish = Literal["stop", "length", "tool_calls", "refused"]
"""Reason why a reply ended: complete, cut at `max_tokens`, waits for tools, refused."""

Detail = Literal["low", "high"]
"""The detail in which a model sees a picture."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture inside a message."""

    media_type: str
    data: bytes
    detail: Detail | None = None
    """None leaves it to the provider."""
    at: int | None = None
    """Characters of the message's text before the picture; None for no place within the text."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that a model wants used."""

    id: str
    name: str
    arguments: str
    """JSON as the model wrote it: it may not be JSON at all, and whoever runs the tool says so."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a model."""

    role: Role
    text: str = ""
    images: tuple[Image, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    """Tool calls of an assistant's message."""
    answers: str = ""
    """The id of the tool call that a tool's message answers."""


def parts_of(message: Message) -> Iterator[str | Image]:
    """The text of a message in pieces, each picture that has a place in it between two pieces."""
    done = 0
    placed = (one for one in message.images if one.at is not None)
    for image in sorted(placed, key=attrgetter("at")):
        if piece := message.text[done : image.at]:
            yield piece
        done = max(done, image.at or 0)
        yield image
    if piece := message.text[done:]:
        yield piece


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool that a model may ask for."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON schema of the arguments."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Request to a model. A value of None is left to the provider."""

    messages: tuple[Message, ...]
    tools: tuple[ToolOffer, ...] = ()
    schema: Mapping[str, object] = field(default_factory=dict[str, object])
    """JSON schema that the reply must satisfy; empty for free text."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    effort: Effort | None = None


def asking(shape: ModelRequest, messages: tuple[Message, ...], seed: int | None) -> ModelRequest:
    """The same request with other messages and another seed."""
    # once a rollout: `replace` takes three times as long
    return ModelRequest(
        messages,
        shape.tools,
        shape.schema,
        shape.temperature,
        shape.top_p,
        shape.max_tokens,
        seed,
        shape.stop,
        shape.effort,
    )


@dataclass(frozen=True, slots=True)
class ModelReply:
    """Reply of a model."""

    text: str
    usage: Usage = FREE
    finish: Finish = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    seconds: float = 0.0
    """Latency, journalled with the reply: a resume does not wait again."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Result of one tool call: the text that the model sees."""

    text: str
    wrong: bool = False
    """True if the text is an error message about the call: the model may try a better one."""
    context: tuple[str, ...] = ()
    """Passages that were found, for whoever judges what was made of them."""
    usage: Usage = FREE
    """Usage of model calls inside the tool."""
    seconds: float = 0.0
    """Latency, journalled with the reply: a resume does not wait again."""
    changes: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Files that it changed of those it works on, by path; None for what it removed. A resume does
    not use the tool again, and changes the same."""
    stamp: int = 0
    """Number of this change of the files: of two changes of one file, the later one holds."""


FINAL = "final"
"""Marks the message of an assistant that answers; the others ask for tools."""

COMMAND = "command"
"""The key of what an agent CLI ran, and the name that such a use of a tool has."""

EXPECTED = "expected"
"""The role of what an exchange should have come to: for people to read, and for no proposer."""

CASE = "case"
"""The role of a case as reports show it: the input, and in `data` what was got and expected."""

FAILURE = "failure"
"""The role of what says how a conversation ended that came to no answer."""

PASSED = "passed"
"""The measure of a whole conversation: 1 where all of it passed. No metric may have its name."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One use of a tool."""

    name: str
    arguments: Mapping[str, object]
    result: str
    wrong: bool = False
    """True if the result is an error message about the call."""
    context: tuple[str, ...] = ()
    """Passages that it found."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """One thing that was said to an agent, and what came of it."""

    input: str
    response: str = ""
    uses: tuple[ToolUse, ...] = ()
    seconds: float = 0.0
    answered: bool = False
    """True if there is an answer, even an empty one."""

    @property
    def context(self) -> tuple[str, ...]:
        """All passages that its tools found, in order."""
        return tuple(passage for use in self.uses for passage in use.context)


def said(message: Message) -> TraceItem:
    """A message as it was sent."""
    data: dict[str, object] = {}
    if message.images:
        data["images"] = [image.media_type for image in message.images]
    return TraceItem(message.role, message.text, data)


def asked_for(message: Message) -> TraceItem:
    """A message of an assistant that wants tools used."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
    return TraceItem("assistant", message.text, {"tool_calls": calls})


def used(name: str, arguments: Mapping[str, object], answer: ToolAnswer) -> TraceItem:
    """Trace item of a tool call."""
    data: dict[str, object] = {"name": name, "arguments": dict(arguments)}
    data |= {"wrong": True} if answer.wrong else {}
    data |= {"context": list(answer.context)} if answer.context else {}
    return TraceItem("tool", answer.text, {**data, "seconds": answer.seconds})


def answered(text: str, seconds: float) -> TraceItem:
    """Trace item of the final answer, with the duration of the whole exchange."""
    return TraceItem("assistant", text, {FINAL: True, "seconds": round(seconds, 4)})


def expected(truth: str, exchange: int) -> TraceItem:
    """Trace item of the expected answer of an exchange."""
    return TraceItem(EXPECTED, truth, {"exchange": exchange})


def failed(failure: Failure) -> TraceItem:
    """Trace item of a failure that is the agent's own fault."""
    data: dict[str, object] = {"kind": failure.kind, "detail": failure.detail}
    return TraceItem(FAILURE, failure.message, data)


def failure_of(trace: Sequence[TraceItem]) -> Failure | None:
    """The agent's own failure that ended a conversation; None where it was brought to its end."""
    for item in trace:
        if item.role == FAILURE:
            kind = cast("FailureKind", item.data["kind"])
            return Failure(kind, "candidate", item.text, str(item.data["detail"]))
    return None


def exchanges_of(trace: Sequence[TraceItem]) -> tuple[Exchange, ...]:
    """The exchanges of a trace, in order; the last may have come to no answer."""
    return tuple(map(_exchange, _parts(trace)))


def _parts(trace: Iterable[TraceItem]) -> Iterator[list[TraceItem]]:
    part: list[TraceItem] = []
    for item in trace:
        if item.role == "user":
            if part:
                yield part
            part = [item]
        elif part and item.role in ("assistant", "tool"):
            part.append(item)
    if part:
        yield part


def _exchange(part: Sequence[TraceItem]) -> Exchange:
    uses = tuple(_use(item) for item in part if item.role == "tool")
    answer = next((item for item in reversed(part) if item.data.get(FINAL)), None)
    if answer is None:
        return Exchange(part[0].text, uses=uses)
    seconds = cast("float", answer.data.get("seconds", 0.0))
    return Exchange(part[0].text, answer.text, uses, seconds, answered=True)


def _use(item: TraceItem) -> ToolUse:
    """Read one use of a tool; only tools that Kept calls have a name and arguments.

    Agent CLIs report a command line, and a runner of a user may leave out either.
    """
    data = cast("Mapping[str, Any]", item.data)
    command = {COMMAND: data[COMMAND]} if COMMAND in data else {}
    given: object = data.get("arguments", command)
    if not isinstance(given, Mapping):
        given = {"arguments": given}
    return ToolUse(
        str(data.get("name") or (COMMAND if command else "tool")),
        cast("Mapping[str, object]", given),
        item.text,
        bool(data.get("wrong")),
        tuple(data.get("context", ())),
        data.get("seconds", 0.0),
    )
