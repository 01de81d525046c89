"""An endpoint that fails in many ways, and keeps its own books."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.core.state import State
from kept.store import codec
from kept.store.jsonl import rollout_lines
from kept.store.overview import journalled_spend, usage_in
from kept.store.pack import Pack
from kept.store.reader import Run
from kept.testing.server import Fault, Seen, chat
from kept.testing.server.script import guess

PRICE = 10e-6
"""US dollars for each token, of a request and of a reply."""


def model_block(seconds: float) -> str:
    """What a block of a model says besides its name and address; how long it waits for a reply."""
    price = f"price: {{input: {PRICE * 1e6:g}, output: {PRICE * 1e6:g}}}"
    return f"{price}, max_tokens: 400, timeout_seconds: {seconds:g}, cache: false"


Answer = Callable[[Seen], str | ModelReply | Fault]

FREE_KINDS = ("500", "502", "503", "529", "429", "html", "empty body")
"""Faults that no provider charges for."""

COUNTED = ("content",)
"""Replies that cannot be used and say truly what they took."""

KINDS = (
    *FREE_KINDS,
    *COUNTED,
    "slow-loris",
    "stall",
    "reset",
    "truncated",
    "invalid UTF-8",
    "deep",
    "wrong content type",
    "negative usage",
    "huge usage",
    "no usage",
)


@dataclass
class FaultyBooks:
    """Answers by a script, breaks a share of the replies, and notes what each has cost."""

    answer: Answer
    share: float = 0.3
    seed: int = 0
    price: Callable[[Usage], float] = lambda used: (used.tokens_in + used.tokens_out) * PRICE
    stall: float = 30.0
    billed: dict[int, float] = field(default_factory=dict[int, float])
    """Dollars of each request, by its number."""
    kinds: dict[int, str] = field(default_factory=dict[int, str])
    """What went wrong, by the number of the request."""

    def fault(self, seen: Seen) -> Fault | None:
        """What happens to a request; the bill is written before anything is sent."""
        draw = random.Random(f"{self.seed}/{seen.number}")
        said = self.answer(seen)
        assert not isinstance(said, Fault)
        reply = ModelReply(said) if isinstance(said, str) else said
        used = guess(seen, reply)
        reply = ModelReply(reply.text, used, reply.finish, reply.tool_calls)
        self.billed[seen.number] = self.price(used)
        if draw.random() >= self.share:
            return None
        kind = self.kinds[seen.number] = draw.choice(KINDS)
        if kind in FREE_KINDS:
            self.billed[seen.number] = 0.0
        return self._made(kind, seen, reply)

    def _made(self, kind: str, seen: Seen, reply: ModelReply) -> Fault:
        if kind.isdigit():
            after = 0.05 if kind == "429" else None
            return Fault("status", int(kind), retry_after=after)
        plain = {"html": Fault("wrong_type"), "empty body": Fault("body")}
        plain["slow-loris"] = Fault("drip", seconds=1.0)
        plain["stall"] = Fault("stall", seconds=self.stall)
        plain |= {"reset": Fault("cut"), "truncated": Fault("truncated")}
        if kind in plain:
            return plain[kind]
        whole: dict[str, Any] = chat.whole(seen, reply)
        if kind == "content":
            whole["choices"][0]["message"] |= {"content": 5, "tool_calls": None}
        usage = {
            "negative usage": {"prompt_tokens": -5, "completion_tokens": -7},
            "huge usage": {"prompt_tokens": 10**15, "completion_tokens": 1},
            "no usage": None,
        }
        if kind in usage:
            whole["usage"] = usage[kind]
        body = json.dumps(whole).encode()
        if kind == "invalid UTF-8":
            body = body.replace(b'"model"', b'"mod\xffel"')
        if kind == "deep":
            body = b'{"choices":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        as_text = kind == "wrong content type"
        return Fault("body", body=body, content_type="text/plain" if as_text else "")

    @property
    def total(self) -> float:
        """Dollars of all requests."""
        return sum(self.billed.values())


def charges(folder: Path) -> list[Usage]:
    """What a run has booked, reply by reply."""
    path, pack = folder / "rollouts.jsonl", Pack(folder, writable=False)
    rows = (row for row in rollout_lines(path) if isinstance(row, codec.CallLine))
    return [usage_in(pack, row, path) for row in rows]


def check_books(books: FaultyBooks, folder: Path) -> State:
    """Compare the books of a run with those of the endpoint."""
    run = Run(folder)
    booked = journalled_spend(folder, run.state).usd
    rows = [used for used in charges(folder) if used.calls]
    assert abs(booked - sum(used.usd for used in rows)) < 1e-6
    assert booked >= books.total - 1e-6
    # without counts that can be believed a reply is charged at its worst; all others exactly
    worst = [used for used in rows if not used.tokens_in]
    believed = sum(used.usd for used in rows if used.tokens_in)
    free_or_untold = {n for n, kind in books.kinds.items() if kind not in COUNTED}
    counted = sum(usd for n, usd in books.billed.items() if n not in free_or_untold)
    assert abs(believed - counted) < 1e-6
    statuses = sum(kind.isdigit() for kind in books.kinds.values())
    assert len(worst) == len(free_or_untold) - statuses
    return run.state


def check_rollouts(folder: Path) -> int:
    """No rollout is lost, none was scored by a fault; how many there are."""
    outcomes = [outcome for _, _, outcome in Run(folder).rollouts()]
    assert [outcome.failure for outcome in outcomes if outcome.failure is not None] == []
    return len(outcomes)
