"""The keys that replies are journalled by: a run that is gone on with must find them again."""

import asyncio
import json
from dataclasses import asdict, replace

import pytest

from kept.core.llm import Image, Message, ModelReply, ModelRequest, ToolCall, ToolOffer
from kept.engine.replay import JournalScope, older_key, request_key
from kept.errors import RunError
from kept.testing import MemoryJournal

REQUEST = ModelRequest(
    (
        Message("system", "Wörter"),
        Message("user", "?", images=(Image("image/png", b"\x00\xff"),)),
        Message("assistant", "", tool_calls=(ToolCall("1", "add", '{"a": 1}'),)),
    ),
    tools=(ToolOffer("add", "adds", {"type": "object"}),),
    schema={"b": 1, "a": [1, 2]},
    temperature=0.5,
    seed=7,
    stop=("x",),
)


def test_the_key_of_a_request_is_the_one_that_older_journals_have():
    system, user, assistant = REQUEST.messages
    # a picture has had a detail and a place since, and so another key
    request = replace(REQUEST, messages=(system, replace(user, images=()), assistant))
    assert older_key(request) == "ec70f5d5fe87bf8d502560d9"
    assert request_key(request) == "9df886c62cfc315189525d5d"


def test_replies_that_an_older_kept_wrote_down_are_heard_before_newer_ones():
    journal = MemoryJournal()
    journal.record_call("propose/1", older_key(REQUEST), ModelReply("first"))

    async def asked(*, times: int) -> list[str]:
        scope = JournalScope(journal, "propose/1")
        replies = [await scope.call(REQUEST, ModelReply, fresh) for _ in range(times)]
        return [reply.text for reply in replies if isinstance(reply, ModelReply)]

    async def fresh() -> ModelReply:
        return ModelReply("second")

    assert asyncio.run(asked(times=2)) == ["first", "second"]
    assert journal.calls("propose/1", request_key(REQUEST), ModelReply) == [ModelReply("second")]
    assert asyncio.run(asked(times=2)) == ["first", "second"]


@pytest.mark.parametrize("odd", ["\ud800", 2**80, {1: 2}, {None: 3}])
def test_what_cannot_be_packed_has_a_key_too(odd: object):
    assert request_key({"what": odd}) == older_key({"what": odd})


def test_what_is_no_number_is_not_nothing():
    assert request_key({"what": float("nan")}) != request_key({"what": None})


def test_a_request_has_the_key_of_what_it_holds():
    assert request_key(REQUEST) == request_key(asdict(REQUEST))
    plain = {**asdict(REQUEST), "schema": json.loads('{"a": [1, 2], "b": 1}')}
    assert request_key(plain) == request_key(REQUEST)


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, seed=8),
        replace(REQUEST, messages=REQUEST.messages[:2]),
        replace(REQUEST, messages=(Message("user", "Wörter"), *REQUEST.messages[1:])),
        replace(REQUEST, tools=(ToolOffer("add", "adds", {"type": "array"}),)),
    ],
)
def test_another_request_has_another_key(other: ModelRequest):
    assert request_key(other) != request_key(REQUEST)


def test_what_cannot_be_told_from_another_has_no_key():
    with pytest.raises(RunError, match="cannot be told from another"):
        request_key({"what": object()})
