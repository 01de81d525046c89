"""A reply that was paid for is not paid for again, and a draw is not taken for another."""

import asyncio
import logging
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from kept.core.llm import Image, Message, ModelReply, ModelRequest, ToolCall
from kept.core.ports import Priced
from kept.core.rollout import FREE, Failure, Usage
from kept.engine.replay import BOOKED, JournalScope
from kept.errors import SetupError
from kept.models.ask import ask
from kept.models.cache import CachedModel, CallCache
from kept.models.client import Probe
from kept.models.providers import ModelConfig
from kept.models.structured_output import ReplyRules
from kept.testing import MemoryJournal, ScriptedModel

C = TypeVar("C", bound=Priced | Failure)

ASKED = ModelRequest(
    (Message("user", "x", images=(Image("image/png", b"\x00\xff"),)),), temperature=0.5
)


def draw(model: CachedModel, request: ModelRequest = ASKED, repeat: int = 0) -> ModelReply:
    reply = asyncio.run(model.draw(request, repeat))
    assert isinstance(reply, ModelReply)
    return reply


@pytest.fixture
def cache(tmp_path: Path):
    made = CallCache(tmp_path / "deep" / "calls.db")
    yield made
    made.close()


def test_the_same_draw_of_the_same_request_is_asked_for_once_and_then_free(cache: CallCache):
    said = ModelReply("x", Usage(1, 5, 5, usd=0.1), "tool_calls", (ToolCall("1", "t", "{}"),))
    scripted = ScriptedModel([said])
    first = draw(CachedModel(scripted, cache))
    again = draw(CachedModel(scripted, cache))
    assert first == said
    assert again == replace(said, usage=FREE)
    assert scripted.calls == 1


def test_a_reply_that_was_changed_in_the_file_is_asked_for_again(
    cache: CallCache, caplog: pytest.LogCaptureFixture
):
    scripted = ScriptedModel(["the truth", "asked again"])
    assert draw(CachedModel(scripted, cache)).text == "the truth"
    with closing(sqlite3.connect(cache.path)) as database, database:
        ((raw,),) = database.execute("SELECT reply FROM replies")
        changed = raw.replace(b"the truth", b"the trutj")
        assert changed != raw
        database.execute("UPDATE replies SET reply = ?", (changed,))
    assert draw(CachedModel(scripted, cache)).text == "asked again"
    assert "it does not match its digest" in caplog.text


def test_every_part_of_a_request_and_the_number_of_the_draw_tell_calls_apart(cache: CallCache):
    scripted = ScriptedModel(lambda request: "x")
    model = CachedModel(scripted, cache)
    others = [
        replace(ASKED, messages=(Message("user", "y"),)),
        replace(ASKED, messages=(Message("user", "x"),)),
        replace(ASKED, temperature=0.6),
        replace(ASKED, max_tokens=5),
        replace(ASKED, seed=1),
        replace(ASKED, schema={"type": "object"}),
        replace(ASKED, stop=("x",)),
        replace(ASKED, effort="low"),
    ]
    for request in (ASKED, *others):
        draw(model, request)
    draw(model, repeat=1)
    draw(CachedModel(ScriptedModel(lambda request: "x", name="another"), cache))
    draw(CachedModel(scripted, cache, address="elsewhere"))
    assert scripted.calls == len(others) + 3


def test_a_failure_is_not_kept(cache: CallCache):
    scripted = ScriptedModel([Failure("refused", "candidate", "no"), "yes"])
    model = CachedModel(scripted, cache)
    assert isinstance(asyncio.run(model.complete(ASKED)), Failure)
    assert draw(model).text == "yes"


WANTED = replace(ASKED, schema={"type": "object", "required": ["label"]})
UNUSABLE = {
    "a refusal": ModelReply("I will not", finish="refused"),
    "no JSON": ModelReply("I would say good"),
    "a schema failure": ModelReply('{"labels": 1}'),
    "a cut reply": ModelReply('{"label": "go'),
    "one that was cut at max_tokens": ModelReply('{"label": "go', finish="length"),
}


def heard(model: CachedModel, journal: MemoryJournal, rules: ReplyRules) -> ModelReply | Failure:
    return asyncio.run(ask(JournalScope(journal, "here"), model, WANTED, rules=rules))


@pytest.mark.parametrize("said", UNUSABLE.values(), ids=UNUSABLE)
def test_an_unusable_reply_is_served_on_resume_and_to_no_other_run(
    cache: CallCache, said: ModelReply
):
    once, journal = ReplyRules(rounds=1), MemoryJournal()
    assert isinstance(heard(CachedModel(ScriptedModel([said]), cache), journal, once), Failure)
    # a resume: it was paid for, and is in the journal
    silent = ScriptedModel([])
    again = heard(CachedModel(silent, cache), journal, once)
    assert isinstance(again, Failure)
    assert silent.calls == 0
    # another run, after the server was fixed
    fixed = CachedModel(ScriptedModel(['{"label": 1}']), cache)
    assert isinstance(heard(fixed, MemoryJournal(), once), ModelReply)
    # and what can be used is served to the next
    kept = heard(CachedModel(silent, cache), MemoryJournal(), once)
    assert isinstance(kept, ModelReply)
    assert (kept.text, kept.usage, silent.calls) == ('{"label": 1}', FREE, 0)


class Killed(MemoryJournal):
    """A journal of a run that is killed when a reply has come, and before it is journalled."""

    def record_call(self, scope: str, key: str, reply: C, *, unpriced: bool = False) -> C:
        raise KeyboardInterrupt


def test_a_reply_that_a_kill_kept_from_the_journal_is_not_had_for_nothing_afterwards(
    cache: CallCache,
):
    said = ModelReply("x", Usage(1, 5, 5, usd=0.1))
    model = CachedModel(ScriptedModel([said, said]), cache)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(ask(JournalScope(Killed(), "here"), model, ASKED))
    resumed = JournalScope(MemoryJournal(), "here")
    asyncio.run(ask(resumed, model, ASKED))
    assert resumed.usage == said.usage, "the books lack a reply"
    later = JournalScope(MemoryJournal(), "here")
    asyncio.run(ask(later, model, ASKED))
    assert later.usage == FREE, "what is journalled is kept for other runs"


class Late:
    """A model whose reply comes only when nobody waits for it any more."""

    name = "late"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def complete(self, request: ModelRequest) -> ModelReply:
        booking = BOOKED.get()
        assert booking is not None
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            booking.late = True
        return ModelReply("late", Usage(1, 5, 5))


def test_a_reply_that_came_after_its_caller_had_gone_is_kept_for_other_runs(cache: CallCache):
    journal = MemoryJournal()

    async def give_up() -> None:
        model = Late()
        asking = ask(JournalScope(journal, "here"), CachedModel(model, cache), ASKED)
        task = asyncio.create_task(asking)
        await model.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert journal.heard("here")
    assert draw(CachedModel(ScriptedModel([], name=Late.name), cache)).text == "late"


def test_a_retry_within_a_run_is_asked_anew_where_the_first_reply_was_unusable(cache: CallCache):
    scripted = ScriptedModel(["no JSON", '{"label": 1}'])
    model, once = CachedModel(scripted, cache), ReplyRules(rounds=1)
    scope = JournalScope(MemoryJournal(), "here")
    assert isinstance(asyncio.run(ask(scope, model, WANTED, rules=once)), Failure)
    assert isinstance(asyncio.run(ask(scope, model, WANTED, rules=once)), ModelReply)
    assert scripted.calls == 2


def test_a_reply_that_its_caller_cannot_use_is_not_kept(cache: CallCache):
    scripted = ScriptedModel(["one", "two"])
    model = CachedModel(scripted, cache)
    for wanted in ("nothing", "two", "two"):
        scope = JournalScope(MemoryJournal(), "here")
        rules = ReplyRules(usable=partial(str.__eq__, wanted))
        asyncio.run(ask(scope, model, ASKED, rules=rules))
    assert scripted.calls == 2, "the third was served what the second was told"


def test_a_kept_reply_that_no_longer_meets_the_rules_is_asked_for_anew(cache: CallCache):
    scripted = ScriptedModel(['{"label": 1}', '{"label": 2}'])
    model = CachedModel(scripted, cache)
    heard(model, MemoryJournal(), ReplyRules(rounds=1))
    second = ReplyRules(1, lambda value: "" if value["label"] == 2 else "it is old")
    assert isinstance(heard(model, MemoryJournal(), second), ModelReply)
    assert scripted.calls == 2


def test_replies_that_an_earlier_kept_cached_are_dropped(tmp_path: Path):
    path = tmp_path / "calls.db"
    cache = CallCache(path)
    draw(CachedModel(ScriptedModel(["unusable"]), cache))
    cache.close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 0")
    db.close()
    cache = CallCache(path)
    assert draw(CachedModel(ScriptedModel(["new"]), cache)).text == "new"
    cache.close()


def test_replies_outlive_the_process_that_asked(tmp_path: Path):
    path = tmp_path / "calls.db"
    for scripted in (ScriptedModel(["kept"]), ScriptedModel([])):
        cache = CallCache(path)
        assert draw(CachedModel(scripted, cache)).text == "kept"
        cache.close()
    assert path.stat().st_mode & 0o077 == 0


def test_a_cache_that_is_named_is_opened_with_the_first_call(tmp_path: Path):
    opened: list[CallCache] = []

    def open_it() -> CallCache:
        opened.append(CallCache(tmp_path / "calls.db"))
        return opened[0]

    model = CachedModel(ScriptedModel(["said"]), open_it)
    assert opened == []
    assert draw(model).text == "said"
    opened[0].close()


def test_a_question_in_a_scope_may_name_its_draw(cache: CallCache):
    scripted = ScriptedModel(["first", "second"])
    model = CachedModel(scripted, cache)

    async def ask_for(repeat: int, path: str) -> str:
        reply = await ask(JournalScope(MemoryJournal(), path), model, ASKED, repeat)
        assert isinstance(reply, ModelReply)
        return reply.text

    texts = [asyncio.run(ask_for(n, f"rollout/{k}")) for k, n in enumerate((0, 1, 0, 1))]
    assert texts == ["first", "second", "first", "second"]


def test_a_reply_that_cannot_be_read_is_a_miss(cache: CallCache, caplog: pytest.LogCaptureFixture):
    model = CachedModel(ScriptedModel(["one", "two"]), cache)
    draw(model)
    with sqlite3.connect(cache.path) as db:
        db.execute("UPDATE replies SET reply = 'torn'")
    db.close()
    with caplog.at_level(logging.WARNING, "kept"):
        assert draw(model).text == "two"
    assert "cannot be read" in caplog.text


def test_a_file_that_is_no_cache_is_named(tmp_path: Path):
    (tmp_path / "calls.db").write_text("something else entirely, and long enough to be looked at")
    with pytest.raises(SetupError, match=r"calls\.db"):
        CallCache(tmp_path / "calls.db")


@dataclass(frozen=True)
class Away(Probe):
    """An endpoint that is there, or not, after a moment."""

    why: str | None = None
    looks: list[float] = field(default_factory=list[float])

    async def unreachable(self) -> str | None:
        self.looks.append(time.monotonic())
        await asyncio.sleep(0.01)
        return self.why


@pytest.mark.parametrize("why", [None, "no route"])
def test_requests_side_by_side_wait_for_one_probe(cache: CallCache, why: str | None):
    probe = Away(ModelConfig(provider="openai", model="m"), why=why)
    model = CachedModel(ScriptedModel(["x"] * 9), cache, probe=probe)

    async def ask_all() -> list[ModelReply | Failure]:
        return await asyncio.gather(*(model.draw(ASKED, n) for n in range(8)))

    found = asyncio.run(ask_all())
    assert len(probe.looks) == 1
    assert all(isinstance(one, Failure if why else ModelReply) for one in found)
    # what cannot be reached is looked at again, also in another event loop
    asyncio.run(ask_all())
    assert len(probe.looks) == (2 if why else 1)
