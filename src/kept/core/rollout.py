"""One execution of one candidate on one case, and what can go wrong with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Purpose = Literal["feedback", "probe", "screen", "decide", "promote", "test", "measure"]
"""Purpose of a rollout. Rollouts of different purposes are never shared."""

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
    """A case and the number of its repeat."""

    case: str
    repeat: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money that calls to models used."""

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
    """Usage before it failed."""
    tried: bool = False
    """True if the caller has already retried as often as makes sense."""
    scoring: bool = False
    """True if the rollout had ended and its scorer failed."""
    arrived: bool = False
    """True where a reply arrived, is to be paid for, and cannot be used."""

    @property
    def retryable(self) -> bool:
        """True if another try may end differently: an outage passes, a broken harness does not."""
        return self.blame == "infrastructure" and self.kind != "harness" and not self.tried

    @property
    def outage(self) -> bool:
        """True if a provider did not answer, which passes.

        What is late is meant only where it was asked again: a command may hang for good.
        """
        away = self.kind in OUTAGES or (self.kind == "timeout" and self.tried)
        return self.blame == "infrastructure" and away


_NO_METRICS: Mapping[str, float] = {}
NO_FILES: Mapping[str, bytes] = {}


class Rollout(NamedTuple):
    """Result of one execution by a runner; a tuple, as there are so many of them."""

    output: str = ""
    metrics: Mapping[str, float] = _NO_METRICS
    """Measures the runner took itself; a scorer adds to them."""
    files: Mapping[str, bytes] = NO_FILES
    """Files that the execution left in its output folder."""
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
