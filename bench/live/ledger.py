"""What every call cost, on disk before anybody depends on it, and how much is left.

A call is written down twice: with the most that it can cost before it is sent, and with its reply.
Whatever happens between the two, the money counts as spent, for good: a call that was lost is made
again at its own cost, so that no number of restarts goes over the cap. A reply that was paid for is
not paid for again.
"""

import asyncio
import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec

from kept.core.llm import ModelReply, ModelRequest
from kept.core.rollout import Failure
from kept.store.lock import Lock

HAIR = 1e-9
"""Sums of cents in floating point must not refuse the last fitting call."""


class OutOfMoney(Exception):
    """A call would not fit."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: who makes it, and which of its equal ones it is."""

    scope: str
    key: str
    nth: int

    @property
    def name(self) -> str:
        return f"{self.scope} {self.key} {self.nth}"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a scope used."""

    calls: int
    usd: float
    minutes: float
    """From the first to the last line of each sitting."""


class Ledger:
    """One file, one writer: a second one, which knows nothing of what this pays, is refused."""

    def __init__(self, file: Path, cap: float) -> None:
        self.cap = cap
        self._replies: dict[str, ModelReply | Failure] = {}
        self._open: dict[str, float] = {}
        """By call: the most that it can cost, until it is over."""
        self._paid: dict[str, float] = {}
        """By call: what it cost each time that it was made."""
        self._under_way: set[str] = set()
        self._clock: dict[tuple[str, str], list[float]] = {}
        self._ended = asyncio.Event()
        self._sitting = f"{os.getpid()}-{time.time():.0f}"
        file.parent.mkdir(parents=True, exist_ok=True)
        self._lock = Lock(file.parent)
        if file.exists():
            self._read(file)
        # line by line with the kernel: a process that is killed has written what it did
        self._file = file.open("a", encoding="utf-8", buffering=1)

    def _read(self, file: Path) -> None:
        text = file.read_text(encoding="utf-8")
        whole, newline, torn = text.rpartition("\n")
        if torn:
            file.write_text(whole + newline, encoding="utf-8")
        for line in whole.splitlines():
            self._take(json.loads(line))

    def _take(self, line: Mapping[str, Any]) -> None:
        name = line["call"]
        # one that is begun again was lost with its sitting; what it came to nobody knows
        over = self._open.pop(name, 0.0)
        if line["over"]:
            over = line["usd"]
        else:
            self._open[name] = line["usd"]
        self._paid[name] = self._paid.get(name, 0.0) + over
        scope = line["call"].partition(" ")[0]
        span = self._clock.setdefault((line["sitting"], scope), [line["at"], line["at"]])
        span[1] = line["at"]
        if "reply" in line:
            self._replies[line["call"]] = msgspec.convert(line["reply"], ModelReply)
        elif "failure" in line:
            self._replies[line["call"]] = msgspec.convert(line["failure"], Failure)

    def reply(self, call: Call) -> ModelReply | Failure | None:
        """What was paid for already."""
        return self._replies.get(call.name)

    def usd(self, scope: str = "") -> float:
        """Spent by a scope, or by all; what is under way counts with the most it can cost."""
        sums = (*self._paid.items(), *self._open.items())
        return sum(usd for name, usd in sums if name.startswith(scope))

    async def begin(self, call: Call, worst: float, allowance: float) -> None:
        """Set money aside; waits while calls under way may still leave some over."""
        while True:
            fits = self.usd() + worst <= self.cap + HAIR
            if fits and self.usd(f"{call.scope} ") + worst <= allowance + HAIR:
                break
            if not self._under_way:
                left = min(self.cap - self.usd(), allowance - self.usd(f"{call.scope} "))
                words = f"another call of up to ${worst:.4f} does not fit: ${left:.4f} is left"
                raise OutOfMoney(words)
            self._ended.clear()
            await self._ended.wait()
        self._under_way.add(call.name)
        self._write(call, worst, over=False)

    def end(self, call: Call, usd: float, reply: ModelReply | Failure | None) -> None:
        """A call is over; without a reply to keep, it may be made again, and paid for again."""
        self._under_way.discard(call.name)
        told: dict[str, Any] = {"over": True}
        if reply is not None:
            kind = "failure" if isinstance(reply, Failure) else "reply"
            told[kind] = msgspec.to_builtins(reply)
        self._write(call, usd, **told)
        self._ended.set()

    def _write(self, call: Call, usd: float, **told: Any) -> None:
        line = {"call": call.name, "usd": usd, "sitting": self._sitting, "at": time.time(), **told}
        self._file.write(json.dumps(line) + "\n")
        self._take(line)

    def spent(self, scope: str) -> Spent:
        """By a scope, in all sittings."""
        names = [name for name in self._paid if name.startswith(f"{scope} ")]
        spans = [last - first for (_, of), (first, last) in self._clock.items() if of == scope]
        return Spent(len(names), self.usd(f"{scope} "), sum(spans) / 60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._lock.release()


class Numbers:
    """Which of its equal requests one is, within a scope."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = defaultdict(int)

    def call(self, scope: str, request: ModelRequest) -> Call:
        key = key_of(request)
        self._seen[key] += 1
        return Call(scope, key, self._seen[key] - 1)


def key_of(request: ModelRequest) -> str:
    """Of a request: the same for equal ones, in every process."""
    text = json.dumps(msgspec.to_builtins(request), sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
