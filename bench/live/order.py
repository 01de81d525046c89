"""What an arm is told to do, what it tells, and how it asks. Imports the standard library alone."""

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.live.sets import Question

SPENT = "the money is spent"
"""How an arm knows this from other troubles."""

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The meter is on this machine, whatever proxy there is."""


WRITING = 4


class Spent(Exception):
    """There is no money for another call."""


@dataclass(frozen=True, slots=True)
class Order:
    """One run of an arm on one set."""

    set: str
    seed: str
    """The prompt to begin with."""
    cases: str
    """A file of questions, one line each; the first `train` of them may be looked at."""
    train: int
    rollouts: int
    url: str
    model: str
    max_tokens: int
    """Of an answer; a prompt may be `WRITING` times as long."""
    usd: float
    """What it may spend; who counts is behind the address."""
    price: tuple[float, float, float]
    """Dollars for a million tokens: in, out, and in from a cache."""
    workers: int
    folder: str
    """For its files; empty at the start."""


@dataclass(frozen=True, slots=True)
class End:
    """What an arm ended with, by its own word."""

    prompt: str
    claimed: float
    """By how much it says that its prompt is better than the seed."""
    short: bool = False
    """Whether its money ended before its rollouts did."""


def obey(act: Callable[[Order], End]) -> None:
    """Do what the command line says, and print a line of JSON."""
    given = json.loads(sys.argv[1])
    order = Order(**given | {"price": tuple(given["price"])})
    print(json.dumps(asdict(act(order))))


def questions(order: Order) -> list[Question]:
    lines = Path(order.cases).read_text(encoding="utf-8").splitlines()
    return [Question(**json.loads(line)) for line in lines]


@dataclass(frozen=True, slots=True)
class Answered:
    """One rollout: a question, what was said to it, and what that is worth."""

    question: Question
    said: str
    score: float
    remark: str


class Asking:
    """The model, for arms that have no client of their own."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._pool = ThreadPoolExecutor(order.workers)
        self.spent = False

    def roll_out(self, prompt: str, asked: Sequence[Question]) -> list[Answered]:
        """Each question once."""
        return list(self._pool.map(partial(self._one, prompt), asked))

    def _one(self, prompt: str, question: Question) -> Answered:
        said = self._say(question.input, prompt, self._order.max_tokens)
        return Answered(question, said, *question.grade(said))

    def write(self, text: str) -> str:
        """A prompt, or what is to become one."""
        return self._say(text, "", WRITING * self._order.max_tokens)

    def _say(self, text: str, system: str, most: int) -> str:
        """What the model answers; nothing to a prompt that it cannot read to its end."""
        messages = [{"role": "system", "content": system}] if system.strip() else []
        messages.append({"role": "user", "content": text})
        body: dict[str, Any] = {"messages": messages, "max_tokens": most}
        asked = urllib.request.Request(
            f"{self._order.url}/chat/completions",
            json.dumps({"model": self._order.model, **body}).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with _DIRECT.open(asked) as reply:
                return json.load(reply)["choices"][0]["message"]["content"] or ""
        except urllib.error.HTTPError as error:
            told = json.load(error)["error"]
            if told["message"].startswith(SPENT):
                self.spent = True
                raise Spent(told["message"]) from error
            if told["code"] == "context_length_exceeded":
                return ""
            raise
