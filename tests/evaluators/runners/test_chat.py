"""Prompts that are templates: what cannot be sent says so, and ends no run."""

import json

import pytest

from kept.evaluators.runners.model import NoChat, chat_of

MESSAGE = '{"role": "user", "content": "hi", "more": %s}'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.txt", "{{ " + "not " * 3000 + "q }}"),
        ("p.txt", "{{ " + "9" * 5000 + " }}"),
        ("p.txt", "{{ q" + " + q" * 3000 + " }}"),
        ("p.json", "[" + MESSAGE % ("[" * 900 + "]" * 900) + "]"),
        ("p.txt", "[" + MESSAGE % ("[" * 900 + "]" * 900) + "]"),
    ],
)
def test_a_prompt_that_nobody_could_fill_in_is_told_and_not_a_crash_of_ours(name: str, text: str):
    with pytest.raises(NoChat):
        chat_of(name, text, {"q": "x"})


def test_a_chat_in_json_is_filled_in_text_by_text():
    text = json.dumps([{"role": "user", "content": "say {{ q }}"}])
    assert [m.text for m in chat_of("p.json", text, {"q": 'a "b"'})] == ['say a "b"']


def test_the_messages_of_a_chat_are_bounded_together():
    text = json.dumps([{"role": "user", "content": "{{ q }}"}] * 5)
    assert len(chat_of("p.json", text, {"q": "x" * 100_000})) == 5
    with pytest.raises(NoChat, match="too much text together"):
        chat_of("p.json", text, {"q": "x" * 300_000})
