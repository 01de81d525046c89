"""Replies from a file."""

import asyncio
from pathlib import Path

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest, ToolCall
from kept.core.rollout import Failure
from kept.engine.replay import JournalScope
from kept.errors import SetupError
from kept.models.ask import ask as asking
from kept.models.client import connect
from kept.models.prices import worst_usd
from kept.models.providers import ModelConfig, Price
from kept.testing import MemoryJournal


def ask(folder: Path, *texts: str, price: Price | None = None) -> list[ModelReply | Failure]:
    config = ModelConfig(provider="scripted", model="replies.jsonl", folder=folder, price=price)
    made = connect(config)
    asked = [ModelRequest((Message("user", text),)) for text in texts]

    async def all_of_them() -> list[ModelReply | Failure]:
        return [await made.complete(request) for request in asked]

    replies = asyncio.run(all_of_them())
    for request, reply in zip(asked, replies, strict=True):
        assert reply.usage.usd <= (worst_usd(made, request) or 0.0)
    return replies


def test_a_reply_is_found_by_words_or_said_in_its_turn(tmp_path: Path):
    (tmp_path / "replies.jsonl").write_text(
        '"first in turn"\n\n{"when": "weather", "text": "sunny"}\n{"text": "second in turn"}\n'
    )
    replies = ask(tmp_path, "a", "how is the weather?", "b", "c")
    assert [getattr(reply, "text", None) for reply in replies[:3]] == [
        *("first in turn", "sunny", "second in turn")
    ]
    assert isinstance(replies[3], Failure)


def test_who_has_no_reply_is_told_by_its_file_and_by_what_was_asked(tmp_path: Path):
    (tmp_path / "replies.jsonl").write_text('{"when": "weather", "text": "sunny"}\n"only one"\n')
    *_, failure = ask(tmp_path, "a", "Is there\nanything else?")
    assert isinstance(failure, Failure) and failure.kind == "harness"
    path = tmp_path / "replies.jsonl"
    why = "no `when` is in it, and 1 reply in turn is used up"
    assert failure.message == f"{path} has no reply to `Is there anything else?`: {why}"
    path.write_text('{"when": "weather", "text": "sunny"}\n')
    (failure,) = ask(tmp_path, "a")
    assert isinstance(failure, Failure) and failure.message.endswith("none is in turn")


def test_a_script_may_have_a_price(tmp_path: Path):
    (tmp_path / "replies.jsonl").write_text('{"text": "x", "tokens_in": 1000, "tokens_out": 100}\n')
    (reply,) = ask(tmp_path, "a", price=Price(input=1, output=10))
    assert reply.usage.usd == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("text", "words"), [("[1]", "replies.jsonl:1"), ('{"txt": "x"}', "txt"), ("{", "not a reply")]
)
def test_a_line_that_is_no_reply_is_named(tmp_path: Path, text: str, words: str):
    (tmp_path / "replies.jsonl").write_text(text)
    with pytest.raises(SetupError, match=words):
        ask(tmp_path, "a")


def test_a_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(SetupError, match=r"cannot read the replies in .*replies\.jsonl"):
        ask(tmp_path, "a")


def test_a_reply_may_want_tools_used(tmp_path: Path):
    (tmp_path / "replies.jsonl").write_text(
        '{"text": "", "tool_calls": [{"name": "add", "arguments": {"a": 1}}, {"name": "now"}]}\n'
    )
    (reply,) = ask(tmp_path, "a")
    assert isinstance(reply, ModelReply)
    assert reply.finish == "tool_calls"
    assert reply.tool_calls == (
        ToolCall("call-0", "add", '{"a":1}'),
        ToolCall("call-1", "now", "{}"),
    )


def test_a_script_goes_on_behind_what_an_earlier_sitting_has_heard(tmp_path: Path):
    lines = ['"one"', '{"when": "weather", "text": "sunny"}', '"two"', '"three"']
    (tmp_path / "replies.jsonl").write_text("\n".join(lines))
    journal = MemoryJournal()

    async def sitting(*texts: str) -> list[str]:
        model = connect(ModelConfig(provider="scripted", model="replies.jsonl", folder=tmp_path))
        scope = JournalScope(journal, "run")
        requests = [ModelRequest((Message("user", text),)) for text in texts]
        replies = [await asking(scope, model, request) for request in requests]
        return [getattr(reply, "text", "failed") for reply in replies]

    assert asyncio.run(sitting("a", "the weather?")) == ["one", "sunny"]
    journal.tail(0)
    said = asyncio.run(sitting("a", "the weather?", "b", "the weather now?", "c", "d"))
    assert said == ["one", "sunny", "two", "sunny", "three", "failed"]
