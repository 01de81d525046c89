"""What a service does wrong, as a value."""

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal[
    "status",  # an error with a status and a message
    "slow",  # the reply, after `seconds`
    "drip",  # the reply, a few bytes every `seconds`
    "stall",  # the beginning of the reply, then nothing for `seconds`
    "cut",  # half the reply, then the connection is gone
    "truncated",  # half the reply, as if that were all
    "gives_up",  # half the stream, then an error, since it is too late for a status
    "wrong_type",  # a page for people
    "empty",  # a reply in good order that holds nothing
    "huge",  # `size` bytes
    "body",  # the bytes of `body`, with the status of a reply
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to misbehave."""

    kind: FaultKind
    status: int = 500
    message: str = "the script says so"
    code: str | None = None
    """What a provider calls the error, where it has a word for it."""
    retry_after: float | None = None
    """Seconds that a client is told to wait."""
    seconds: float = 0.0
    size: int = 1 << 20
    body: bytes = b""
    content_type: str = ""
    """Of `body`; by default the one that the protocol has."""

    @property
    def answers(self) -> bool:
        """Whether a client that is patient enough has its reply in the end."""
        return self.kind in ("slow", "drip")

    def __str__(self) -> str:
        return str(self.status) if self.kind == "status" else self.kind
