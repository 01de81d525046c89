"""The keys that replies are journalled by: a run that is gone on with must find them again."""

import json
from dataclasses import asdict, replace

import pytest

from kept.core.model import Image, Message, ModelRequest, ToolCall, ToolOffer
from kept.engine.scope import request_key
from kept.errors import RunError

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
    assert request_key(REQUEST) == "db95e3092825b0089ff61250"


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
