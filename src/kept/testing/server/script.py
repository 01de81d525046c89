"""Scripted replies and faults, and requests as the server sees them.

A request has one form here, whichever protocol it came by.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kept.core.llm import ModelReply
from kept.core.rollout import FREE, Usage
from kept.core.untyped import is_dict, is_list, list_in

FaultKind = Literal[
    "status",  # an error with a status and a message
    "slow",  # the reply, after `seconds`
    "drip",  # the reply, a few bytes every `seconds`
    "stall",  # the beginning of the reply, then nothing for `seconds`
    "cut",  # half the reply, then the connection is closed
    "truncated",  # half the reply, as if it were complete
    "gives_up",  # half the stream, then an error event, since it is too late for a status
    "wrong_type",  # an HTML page
    "empty",  # a well-formed reply without content
    "huge",  # `size` bytes
    "body",  # the bytes of `body`, with the status of a reply
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One scripted fault."""

    kind: FaultKind
    status: int = 500
    message: str = "the script says so"
    code: str | None = None
    """Error code of the provider, if it has one."""
    retry_after: float | None = None
    """Value of the `retry-after` header, in seconds."""
    seconds: float = 0.0
    size: int = 1 << 20
    body: bytes = b""
    content_type: str = ""
    """Content type of `body`; by default that of the protocol."""

    @property
    def answers(self) -> bool:
        """True if a patient client eventually gets its reply."""
        return self.kind in ("slow", "drip")

    def __str__(self) -> str:
        return str(self.status) if self.kind == "status" else self.kind


Wire = Literal["chat", "responses", "embeddings", "messages"]


class Line(NamedTuple):
    """One message of a conversation, as text."""

    role: str
    text: str


@dataclass(slots=True)
class Seen:
    """One request, and its result."""

    number: int
    """Number of earlier requests."""
    wire: Wire
    path: str
    headers: Mapping[str, str]
    """Header names in lower case."""
    body: Mapping[str, Any]
    answer: str = ""
    """`reply`, the fault sent instead, or `given up` if the client left; empty before that."""

    @property
    def model(self) -> str:
        """Name of the requested model."""
        return str(self.body.get("model", ""))

    @property
    def streamed(self) -> bool:
        """True if the client asked for a stream."""
        return bool(self.body.get("stream"))

    @property
    def lines(self) -> tuple[Line, ...]:
        """Messages of the conversation; tool results have the role `tool`."""
        return tuple(_LINES[self.wire](self.body))

    @property
    def text(self) -> str:
        """Last message of the user."""
        said = [line.text for line in self.lines if line.role == "user" and line.text]
        return said[-1] if said else ""

    @property
    def tool_results(self) -> tuple[str, ...]:
        """Tool results so far."""
        return tuple(line.text for line in self.lines if line.role == "tool")

    @property
    def tools(self) -> Mapping[str, str]:
        """Type of every offered tool, by name."""
        found: dict[str, str] = {}
        for tool in _items(self.body.get("tools")):
            inner = tool.get("function")
            named = inner if is_dict(inner) else tool
            found[str(named.get("name", tool.get("type", "")))] = str(tool.get("type", "function"))
        return found


def text_of(content: object) -> str:
    """Text of a content that is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = [str(item["text"]) for item in _items(content) if isinstance(item.get("text"), str)]
    return "\n".join(parts)


def _items(value: object) -> list[dict[str, Any]]:
    found = list_in(value)
    return [item for item in found if is_dict(item)]


def _chat(body: Mapping[str, Any]) -> Iterator[Line]:
    for message in _items(body.get("messages")):
        yield Line(str(message.get("role", "")), text_of(message.get("content")))


def _responses(body: Mapping[str, Any]) -> Iterator[Line]:
    if body.get("instructions"):
        yield Line("system", str(body["instructions"]))
    given = body.get("input")
    if isinstance(given, str):
        yield Line("user", given)
    for item in _items(given):
        kind = str(item.get("type", "message"))
        if kind == "message":
            yield Line(str(item.get("role", "user")), text_of(item.get("content")))
        elif kind.endswith("_call_output"):
            yield Line("tool", text_of(item.get("output")))


def _messages(body: Mapping[str, Any]) -> Iterator[Line]:
    if body.get("system"):
        yield Line("system", text_of(body["system"]))
    for message in _items(body.get("messages")):
        content = message.get("content")
        for item in _items(content):
            if item.get("type") == "tool_result":
                yield Line("tool", text_of(item.get("content")))
        yield Line(str(message.get("role", "")), text_of(content))


def _embeddings(body: Mapping[str, Any]) -> Iterator[Line]:
    given = body.get("input")
    for text in given if is_list(given) else [given]:
        yield Line("user", str(text))


_LINES = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "embeddings": _embeddings,
}


Say = str | ModelReply | Fault
"""One scripted answer; a plain text becomes a reply whose usage is estimated from its length."""

Replies = Sequence[Say] | Callable[[Seen], Say]
Faults = Sequence[Fault | None] | Callable[[Seen], Fault | None]


class Script:
    """Replies and faults, each in order or by a function; a fault uses up no reply."""

    def __init__(self, replies: Replies, faults: Faults) -> None:
        self._replies = replies
        self._faults = faults
        self._next = 0
        self._next_fault = 0

    def fault(self, seen: Seen) -> Fault | None:
        """Fault for this request, if any."""
        if callable(self._faults):
            return self._faults(seen)
        self._next_fault += 1
        here = self._next_fault - 1
        return self._faults[here] if here < len(self._faults) else None

    def reply(self, seen: Seen) -> ModelReply | Fault:
        """Reply to this request, or a fault."""
        say = self._say(seen)
        if isinstance(say, Fault):
            return say
        reply = ModelReply(say) if isinstance(say, str) else say
        if reply.usage is not FREE:
            return reply
        return ModelReply(reply.text, guess(seen, reply), reply.finish, reply.tool_calls)

    def _say(self, seen: Seen) -> Say:
        if callable(self._replies):
            return self._replies(seen)
        self._next += 1
        if self._next <= len(self._replies):
            return self._replies[self._next - 1]
        # 400: clients do not retry it
        return Fault("status", 400, f"the script ends after {len(self._replies)} replies")


def guess(seen: Seen, reply: ModelReply) -> Usage:
    """Usage estimated from text lengths, about four characters per token."""
    asked = sum(len(line.text) for line in seen.lines)
    said = len(reply.text) + sum(len(call.arguments) for call in reply.tool_calls)
    return Usage(calls=1, tokens_in=asked // 4 + 1, tokens_out=said // 4 + 1)


def id_of(seen: Seen, prefix: str) -> str:
    """Id of a reply that is the same in every run of the same script."""
    return prefix + hashlib.sha256(str(seen.number).encode()).hexdigest()[:24]


def pieces(text: str, size: int = 24) -> list[str]:
    """Text cut into pieces for a stream; an empty text gives none."""
    return [text[start : start + size] for start in range(0, len(text), size)]
