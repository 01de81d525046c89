"""Replies that were paid for and cannot be used: an agent run's limit of money holds all the same.

An account charges what the journal books, in the first sitting as in every later one.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.rollout import Failure, Usage
from kept.engine.replay import JournalScope
from kept.models.ask import ask
from kept.models.scripted import ScriptedModel
from kept.orchestrator.budget import Account, Metered
from kept.orchestrator.workers import ChatWorker
from kept.testing import MemoryJournal
from kept.testing.journal import CallRecord
from tests.orchestrator.play import (
    Came,
    Play,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    run_agent,
    timeless,
    tools_for,
    with_limits,
    write,
)

EACH = 0.01
"""US dollars of each reply; one that cannot be used costs twice as much, its worst case."""

WORST = Usage(calls=1, usd=2 * EACH)
LOST = Failure("network", "infrastructure", "cut off", usage=WORST, arrived=True)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kept.engine.replay.PAUSE", 0.0)


def _booked(journal: MemoryJournal) -> float:
    return sum(one.reply.usage.usd for one in journal.records if isinstance(one, CallRecord))


@dataclass
class Breaking:
    """A model whose replies are lost where a script has an `x`, and late where it has an `l`."""

    left: Iterator[str]
    name: str = "breaking"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        kind = next(self.left)
        if kind == "l":
            await asyncio.sleep(60)
        return LOST if kind == "x" else ModelReply("yes", Usage(calls=1, usd=EACH))

    def worst_usd(self, request: ModelRequest) -> float:
        return WORST.usd


def _talk(journal: MemoryJournal, replies: str, usd: float) -> tuple[list[str], Account]:
    """Ask three questions; a later sitting asks for those replies that are not written down."""
    rows = [one.reply for one in journal.records if isinstance(one, CallRecord)]
    known = sum(not (isinstance(row, Failure) and row.kind == "limit") for row in rows)
    account = Account(tokens=99_999, tool_calls=9, usd=usd, wall=0.05, elapsed=0.0)
    model = Breaking(iter(replies[known:]))
    journal.tail(0)
    scope = Metered(JournalScope(journal, "rollout/a/measure/b/0"), account)

    async def talk() -> list[str]:
        heard: list[str] = []
        for name in "abc":
            reply = await ask(scope, model, ModelRequest((Message("user", name),)))
            heard.append(reply.message if isinstance(reply, Failure) else "yes")
            account.elapsed = 0.05 if account.out == "wall_seconds" else 0.0
        return heard

    return asyncio.run(talk()), account


@pytest.mark.parametrize(
    ("replies", "usd", "out"),
    [
        pytest.param("xxx..", 0.07, "usd", id="no room for another try"),
        pytest.param("xx...", 0.10, "", id="usable in the end"),
        pytest.param("xl", 0.10, "wall_seconds", id="out of time"),
    ],
)
def test_an_account_charges_every_reply_now_and_in_a_resume(replies: str, usd: float, out: str):
    journal = MemoryJournal()
    heard, account = _talk(journal, replies, usd)
    assert account.used.usd == pytest.approx(_booked(journal))
    assert account.used.usd <= usd + 1e-9
    assert account.out == out
    for cut in range(len(journal.records) + 1):
        again = journal.reopened(cut)
        assert _talk(again, replies, usd) == (heard, account), f"cut behind {cut}"
        assert len(again.records) == len(journal.records)


def test_a_call_that_is_given_up_is_charged_with_each_of_its_replies():
    journal = MemoryJournal()
    heard, account = _talk(journal, "xxxxxx..", 0.15)
    assert heard == ["cut off", "yes", "yes"]
    assert account.used.usd == pytest.approx(_booked(journal))
    heard, account = _talk(MemoryJournal(), "xxxxxx..", 0.13)
    assert heard[0] == "cut off"
    assert "up to $0.0200 more, and $0.0100 is left" in heard[1]


@dataclass
class Endpoint:
    """Says what a play says; the first replies to each request may be lost, the same in each run.

    It is given how often earlier sittings have asked each request.
    """

    play: Play
    journal: MemoryJournal
    times: Counter[str] = field(default_factory=Counter[str])
    asked: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """How many records there were at each request, and its text."""

    def __call__(self, request: ModelRequest) -> str | ModelReply | Failure:
        text = "\0".join(message.text for message in request.messages)
        lost = random.Random(text).choice((0, 0, 1, 3))
        self.asked.append((len(self.journal.records), text))
        self.times[text] += 1
        return LOST if self.times[text] <= lost else self.play.of_request(request)


def _team() -> Play:
    """Two turns of three workers, of whom two work at a time."""
    sent = {name: [write(f"output/{name}.md"), done(name)] for name in "abcdef"}
    turns = [plan("a.md"), delegate("a", "b", "c"), delegate("d", "e", "f"), complete()]
    return Play(turns, sent, usd=EACH)


def _run(
    usd: float, journal: MemoryJournal | None = None, times: Counter[str] | None = None
) -> tuple[Came, Endpoint]:
    journal = journal or MemoryJournal()
    journal.tail(0)
    play = _team()
    kit = kit_of(play, limits=with_limits(usd=usd, parallel_workers=2))
    endpoint = Endpoint(play, journal, times or Counter())
    model = ScriptedModel(endpoint, name="scripted/play", worst=WORST.usd)
    kit = replace(kit, manager=model, critic=model, works=ChatWorker(model, tools_for))
    return finished(run_agent(kit, journal=journal)), endpoint


@pytest.mark.parametrize("usd", [0.35, 5.0])
def test_a_run_keeps_its_limit_and_resumes_to_the_same_end_behind_any_record(usd: float):
    whole, endpoint = _run(usd)
    budget = whole.record.budget
    assert budget is not None
    assert budget.used.usd == pytest.approx(_booked(whole.journal))
    assert budget.used.usd <= usd + 1e-9
    assert any(one.reply is LOST for one in whole.journal.records if isinstance(one, CallRecord))
    for cut in range(len(whole.journal.records)):
        times = Counter(text for at, text in endpoint.asked if at < cut)
        again, _ = _run(usd, whole.journal.reopened(cut), times)
        assert timeless(again.record) == timeless(whole.record), f"cut behind {cut}"
        assert again.files == whole.files
        assert again.record.budget is not None
        assert again.record.budget.used.usd == pytest.approx(budget.used.usd)
        assert len(again.journal.records) == len(whole.journal.records)


class Uncounted:
    """A model of a server that counts no tokens."""

    name: str = "uncounted"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        return ModelReply("yes", Usage(calls=1))


def test_replies_without_counts_are_charged_to_a_limit_of_tokens_at_their_worst():
    account = Account(tokens=250, tool_calls=9, usd=None, wall=60.0, elapsed=0.0)
    scope = Metered(JournalScope(MemoryJournal(), "rollout/a/measure/b/0"), account)

    async def talk() -> list[bool]:
        asked = [
            ModelRequest((Message("user", f"question {n}"),), max_tokens=100) for n in range(4)
        ]
        return [isinstance(await ask(scope, Uncounted(), one), ModelReply) for one in asked]

    assert asyncio.run(talk()) == [True, True, False, False]
    assert account.out == "tokens"
    assert 200 < account.used.tokens_in <= 250
