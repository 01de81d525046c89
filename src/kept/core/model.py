"""What is said to a language model, and what it answers: one shape for every provider.

Pure values. How a provider spells them is the business of `kept.models`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kept.core.rollout import FREE, Usage

Role = Literal["system", "user", "assistant", "tool"]

Effort = Literal["minimal", "low", "medium", "high"]
"""How long a model that can think first should do so."""

Finish = Literal["stop", "length", "tool_calls", "refused"]
"""Why a reply ended: it was done, cut at `max_tokens`, waits for tools, or would not answer."""

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
    """What an assistant's message asked for."""
    answers: str = ""
    """The id of the tool call that a tool's message answers."""


def parts_of(message: Message) -> Iterator[str | Image]:
    """The text of a message in pieces, each picture that has a place in it between two pieces."""
    done = 0
    for image in sorted((one for one in message.images if one.at is not None), key=_place):
        if piece := message.text[done : image.at]:
            yield piece
        done = max(done, image.at or 0)
        yield image
    if piece := message.text[done:]:
        yield piece


def _place(image: Image) -> int:
    return image.at or 0


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool that a model may ask for."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON schema of the arguments."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked. What is None is left to the provider."""

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
    """What a model answered."""

    text: str
    usage: Usage = FREE
    finish: Finish = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    seconds: float = 0.0
    """How long it was waited for, written down with it: a resume does not wait again."""
