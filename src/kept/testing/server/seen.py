"""A request as the server saw it, whichever protocol it came by."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

Wire = Literal["chat", "responses", "embeddings", "messages"]


class Line(NamedTuple):
    """One message of a conversation, in words."""

    role: str
    text: str


@dataclass(slots=True)
class Seen:
    """One request, and what became of it."""

    number: int
    """How many requests came before."""
    wire: Wire
    path: str
    headers: Mapping[str, str]
    """By names in lower case."""
    body: Mapping[str, Any]
    answer: str = ""
    """`reply`, the fault that came instead, or `given up` by whoever asked; empty before that."""

    @property
    def model(self) -> str:
        """Which model was asked."""
        return str(self.body.get("model", ""))

    @property
    def streamed(self) -> bool:
        """Whether the reply is wanted in pieces."""
        return bool(self.body.get("stream"))

    @property
    def lines(self) -> tuple[Line, ...]:
        """The conversation; what a tool gave back has the role `tool`."""
        return tuple(_LINES[self.wire](self.body))

    @property
    def text(self) -> str:
        """What the user said last."""
        said = [line.text for line in self.lines if line.role == "user" and line.text]
        return said[-1] if said else ""

    @property
    def tool_results(self) -> tuple[str, ...]:
        """What tools gave back so far."""
        return tuple(line.text for line in self.lines if line.role == "tool")

    @property
    def tools(self) -> Mapping[str, str]:
        """The type of every tool on offer, by its name."""
        found: dict[str, str] = {}
        for tool in _items(self.body.get("tools")):
            inner = tool.get("function")
            named = cast("dict[str, Any]", inner) if isinstance(inner, dict) else tool
            found[str(named.get("name", tool.get("type", "")))] = str(tool.get("type", "function"))
        return found


def text_of(content: object) -> str:
    """The words of a content that is a text, or a list of parts of which some are texts."""
    if isinstance(content, str):
        return content
    parts = [str(item["text"]) for item in _items(content) if isinstance(item.get("text"), str)]
    return "\n".join(parts)


def _items(value: object) -> list[dict[str, Any]]:
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in found if isinstance(item, dict)]


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
    for text in cast("list[object]", given) if isinstance(given, list) else [given]:
        yield Line("user", str(text))


_LINES = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "embeddings": _embeddings,
}
