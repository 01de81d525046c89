"""What the two public protocols have in common: a question in JSON, an answer in JSON."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, cast

import msgspec

from kept.core.model import Finish, ModelRequest, ToolCall
from kept.core.parsing import MAX_DEPTH, check_depth

MOST_TOKENS = 10_000_000
"""Tokens that a reply may claim: more than any model can read and write at once."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Tokens that a reply took, as the provider counts them."""

    tokens_in: int = 0
    """All of them, those that follow included."""
    tokens_out: int = 0
    cached: int = 0
    """Read from the provider's cache."""
    written: int = 0
    """Written to the provider's cache."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A reply, before it has a price."""

    text: str
    finish: Finish
    tool_calls: tuple[ToolCall, ...] = ()
    taken: Taken | None = None
    """None where the server counted nothing, or nothing that can be true."""
    refusal: str = ""
    """Why there is none, where the model or a filter would not answer."""
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The counts as the server sent them."""


@dataclass(slots=True)
class Habits:
    """What a server turned out not to know; learnt from its errors, and kept."""

    schema: bool = True
    """Whether it can be held to a JSON schema."""
    old_limit: bool = False
    """Whether the longest reply is called `max_tokens`, and not `max_completion_tokens`."""
    switched: bool = False
    """Whether that was learnt."""
    seed: bool = True
    """Whether it takes a seed."""

    def learn(self, message: str) -> bool:
        """Whether an error says that something is not known, and may be done without."""
        text = message.lower()
        if self.schema and any(word in text for word in _SCHEMA_WORDS):
            self.schema = False
            return True
        if self.seed and _SEED.search(text) and any(word in text for word in _UNKNOWN):
            self.seed = False
            return True
        used = "max_tokens" if self.old_limit else "max_completion_tokens"
        if not self.switched and _unknown(text, used):
            # once: a server that knows neither name would be asked for ever
            self.switched = True
            self.old_limit = not self.old_limit
            return True
        return False


_SEED = re.compile(r"\bseed\b")
_SCHEMA_WORDS = ("response_format", "json_schema", "output_config", "output_format")
_UNKNOWN = ("unsupported", "unrecognized", "unknown", "not supported", "extra inputs", "unexpected")


def _unknown(text: str, name: str) -> bool:
    """Whether a message is about this parameter before all others, and does not know it."""
    first = min(
        (
            found
            for word in ("max_completion_tokens", "max_tokens")
            if (found := text.find(word)) >= 0
        ),
        default=-1,
    )
    return first >= 0 and text.startswith(name, first) and any(word in text for word in _UNKNOWN)


class Speech(Protocol):
    """How one protocol spells requests and replies."""

    def body(self, model: str, request: ModelRequest, habits: Habits) -> dict[str, Any]:
        """A request."""
        ...

    def heard(self, body: Mapping[str, Any]) -> Heard | None:
        """A reply; None where there is nothing in it.

        Raises `msgspec.ValidationError` for a body that breaks the protocol.
        """
        ...

    def taken(self, body: Mapping[str, Any]) -> Taken | None:
        """What a reply says that it took; None where it does not, or what cannot be."""
        ...

    async def gather(self, events: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
        """The whole reply of a stream; None when the stream ended before it.

        Raises `msgspec.ValidationError` for an event that breaks the protocol.
        """
        ...


_JSON = msgspec.json.Decoder()


def decode(raw: bytes) -> Any:  # noqa: ANN401 # any JSON
    """Parse JSON that a server sent; raises `ValueError`, whatever is wrong with it."""
    try:
        value = _JSON.decode(raw)
        # fewer brackets than levels cannot nest deeper: most replies need no walk
        if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH:
            check_depth(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # bytes that are not UTF-8 are a ValueError, deep nesting is a RecursionError
        raise ValueError(f"broken or cut off ({error})") from error
    return value


def is_count(value: object) -> TypeGuard[int]:
    """True for a number of tokens that a reply can have taken."""
    # `True` is an int
    return type(value) is int and 0 <= value <= MOST_TOKENS


def maps(value: object) -> list[dict[str, Any]]:
    """The mappings of a list."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def mapping(value: object) -> dict[str, Any]:
    """A mapping; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
