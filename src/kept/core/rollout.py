"""One execution of one candidate on one case, and what can go wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Purpose = Literal["feedback", "probe", "screen", "decide", "promote", "test", "measure"]
"""What a rollout is for. Rollouts of different purposes are never shared."""

Blame = Literal["candidate", "infrastructure"]

FailureKind = Literal[
    "crash",
    "exception",
    "timeout",
    "parse",
    "empty",
    "refused",
    "limit",
    "rate_limit",
    "server",
    "network",
    "context",
    "harness",
]


OUTAGES: tuple[FailureKind, ...] = ("rate_limit", "server", "network")
"""Kinds of failures that a provider gets over by itself."""


PAID_TRIES = 6
"""Times that a call is made whose replies arrive, are paid for, and cannot be used."""


class Pair(NamedTuple):
    """Which case, and which draw of it."""

    case: str
    repeat: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What calls to models consumed."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    usd: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.tokens_cached + other.tokens_cached,
            self.usd + other.usd,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls - other.calls,
            self.tokens_in - other.tokens_in,
            self.tokens_out - other.tokens_out,
            self.tokens_cached - other.tokens_cached,
            self.usd - other.usd,
        )


FREE = Usage()


@dataclass(frozen=True, slots=True)
class TraceItem:
    """One thing that happened inside a rollout."""

    role: str
    """`system`, `user`, `assistant`, `tool`, `stdout`, `stderr`, `info` …"""
    text: str
    data: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that did not work, and whose fault it is. Never a number."""

    kind: FailureKind
    blame: Blame
    message: str
    detail: str = ""
    usage: Usage = FREE
    """What was used up before it failed."""
    tried: bool = False
    """Whether whoever was nearest has tried again already, as often as makes sense."""
    scoring: bool = False
    """Whether the rollout itself had ended, and it was its scorer that failed."""
    arrived: bool = False
    """True where a reply arrived, is to be paid for, and cannot be used."""

    @property
    def retryable(self) -> bool:
        """Whether another try may end differently: an outage passes, a broken harness does not."""
        return self.blame == "infrastructure" and self.kind != "harness" and not self.tried

    @property
    def outage(self) -> bool:
        """Whether a provider did not answer: that passes.

        What is late is meant only where it was asked again: a command may hang for good.
        """
        away = self.kind in OUTAGES or (self.kind == "timeout" and self.tried)
        return self.blame == "infrastructure" and away


_NO_METRICS: Mapping[str, float] = {}
NO_FILES: Mapping[str, bytes] = {}


class Rollout(NamedTuple):
    """What a runner brought back from one execution; a tuple, as there are so many of them."""

    output: str = ""
    metrics: Mapping[str, float] = _NO_METRICS
    """Measures the runner took itself; a scorer adds to them."""
    files: Mapping[str, bytes] = NO_FILES
    """What the execution left in its output folder."""
    trace: tuple[TraceItem, ...] = ()
    usage: Usage = FREE


class Job(NamedTuple):
    """One execution to be done; a tuple because it is hashed for every rollout."""

    candidate_id: str
    case_id: str
    repeat: int
    purpose: Purpose

    @property
    def scope(self) -> str:
        """The path under which its calls are journalled."""
        return f"rollout/{self.candidate_id}/{self.purpose}/{self.case_id}/{self.repeat}"
