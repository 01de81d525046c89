"""JSON that satisfies its schema, out of what models really write."""

import asyncio
import json
import time

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.rollout import FREE, Failure, Usage
from kept.engine.replay import JournalScope
from kept.models import structured_output
from kept.models.ask import ask
from kept.models.structured_output import ReplyRules, Unfit, fit, is_cut, without_thoughts
from kept.testing import MemoryJournal, ScriptedModel
from kept.testing.server import ModelServer
from tests.models.worlds import model

SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["good", "bad"]}, "why": {"type": "string"}},
    "required": ["label"],
    "additionalProperties": False,
}
ASKED = ModelRequest((Message("user", "good or bad?"),), schema=SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        '{"label": "good"}',
        '```json\n{"label": "good"}\n```',
        'Sure! Here it is:\n```\n{"label": "good"}\n```\nAnything else?',
        '<think>is it {"label": "bad"}? no</think>\n{"label": "good"}',
        'the template ate the start of this {"label": "bad"}</think>{"label": "good"}',
        "{'label': 'good',}",
        'The answer is {label: "good"} because.',
        '{"label": "good"}\n{"label": "good"}',
    ],
)
def test_json_is_found_in_what_is_round_it(text: str):
    assert json.loads(fit(text, SCHEMA)) == {"label": "good"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "no JSON"),
        ("I would say it is good.", "no JSON"),
        ('{"label": "fine"}', "at `label`"),
        ('{"why": "x"}', "label"),
        ('{"label": "good", "sure": 1}', "sure"),
        ("[1, 2]", "object"),
    ],
)
def test_what_does_not_satisfy_the_schema_is_told_where(text: str, wrong: str):
    with pytest.raises(Unfit, match=wrong):
        fit(text, SCHEMA)


WHOLE = '{"label": "good", "why": "it has {braces}, [brackets] and \\"quotes\\""}'


@pytest.mark.parametrize(
    "text",
    [
        *(WHOLE[:n] for n in range(1, len(WHOLE))),
        '```json\n{"label": "good", "why": "x\n```',
        'Here it is: {"label": "good", "why": [{"a": 1}, {"b": 2}',
        "{'label': 'good', 'why': 'x",
        '[{"label": "good"}, {"label',
    ],
)
def test_json_that_does_not_end_is_cut_and_is_not_closed(text: str):
    assert is_cut(text)
    with pytest.raises(Unfit, match="cut off"):
        fit(text, {"type": "object"})


@pytest.mark.parametrize(
    "text",
    [
        *("", "prose", "a {remark} and [another] one", "an open {remark", "see [1] and {x"),
        *(WHOLE, f"{WHOLE} and so on", f"```json\n{WHOLE}\n```", "[]", "{}", "[[1], {}]"),
        *("{'label': 'it is'}", '{"a": [1, 2}', '{"a": "he said "hi" to me"}', "{label: 1,}"),
        '{"a": "\\\\"}',
    ],
)
def test_json_that_ends_is_not_cut(text: str):
    assert not is_cut(text)


def test_a_reply_that_was_cut_although_it_says_stop_is_asked_for_again():
    reply, scripted, _ = settled('{"label": "good", "why": "be', '{"label": "bad"}')
    assert isinstance(reply, ModelReply)
    assert reply.text == '{"label": "bad"}'
    assert "cut off" in scripted.requests[1].messages[-1].text


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a": ' * 500 + "1" + "}" * 500,
        '{"label": "good", "why": NaN}',
        '{"label": "good", "why": "\\ud800"}',
    ],
    ids=lambda text: text[:20],
)
def test_json_that_cannot_be_kept_is_unfit(text: str):
    with pytest.raises(Unfit):
        fit(text, {"type": "object"})


def test_json_that_takes_long_to_mend_is_unfit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(structured_output, "MEND_SECONDS", 0.05)
    with pytest.raises(Unfit, match="takes more than"):
        fit('{"label": "good",, "why": "' + '" ' * 200_000 + '"}', {"type": "object"})


NESTED = {
    "type": "object",
    "properties": {
        "edits": {"type": "array", "items": SCHEMA},
        "about": {"type": "object", "properties": {"x": {"type": "integer"}}},
    },
    "required": ["edits"],
    "additionalProperties": False,
}


def test_keys_that_a_schema_does_not_allow_are_ignored_where_the_rules_say_so():
    text = '{"edits": [{"label": "good", "sure": 1}], "about": {"x": 1, "y": 2}, "mood": []}'
    with pytest.raises(Unfit):
        fit(text, NESTED)
    found = json.loads(fit(text, NESTED, ignore_extra_keys=True))
    assert found == {"edits": [{"label": "good"}], "about": {"x": 1, "y": 2}}
    with pytest.raises(Unfit, match="label"):
        fit('{"edits": [{"labels": "good"}]}', NESTED, ignore_extra_keys=True)


def test_a_text_that_may_be_any_text_is_not_made_of_prose():
    assert fit('"plain"', {"type": "string"}) == '"plain"'
    with pytest.raises(Unfit):
        fit("prose", {"type": "object"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "nested more than 100 levels deep"),
        ('{"a": ' * 100_000, "nested more than 100 levels deep"),
        ("1" * 10_000, "more than 308 digits"),
    ],
)
def test_a_reply_beyond_a_bound_says_which(text: str, told: str):
    with pytest.raises(Unfit, match=told):
        fit(text, SCHEMA, mend=False)


@pytest.mark.parametrize("text", ["<think>" * 200_000, "```\n" + "\n" * 300_000])
def test_what_is_opened_and_never_closed_is_read_in_one_pass(text: str):
    began = time.process_time()
    with pytest.raises(Unfit):
        fit(text, SCHEMA, mend=False)
    assert time.process_time() - began < 5


@pytest.mark.slow
def test_mending_a_long_reply_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch):
    long = '{"label": "good",, "why": "' + "x" * 5000 + '"}'
    assert json.loads(fit(long, SCHEMA))["label"] == "good"
    monkeypatch.setattr(structured_output, "MEND_SECONDS", 0.5)
    with pytest.raises(Unfit, match=r"mending its JSON takes more than 0\.5 seconds"):
        fit('{"k": "x' + '" y' * 200_000 + '"}', SCHEMA)


def test_thoughts_are_left_out_wherever_they_stand():
    assert without_thoughts("<think>a</think>b<thinking>c\nd</thinking>e") == "be"


def settled(*said: str | ModelReply) -> tuple[ModelReply | Failure, ScriptedModel, MemoryJournal]:
    scripted, journal = ScriptedModel(said), MemoryJournal()
    scope = JournalScope(journal, "propose/0")
    return asyncio.run(ask(scope, scripted, ASKED)), scripted, journal


def test_a_reply_that_does_not_fit_is_asked_for_once_more_with_what_is_wrong():
    reply, scripted, _ = settled('{"label": "fine"}', '{"label": "good"}')
    assert isinstance(reply, ModelReply)
    assert reply.text == '{"label": "good"}'
    assert reply.usage.calls == 2
    said, words = scripted.requests[1].messages[-2:]
    assert said == Message("assistant", '{"label": "fine"}')
    assert "at `label`" in words.text


def test_what_still_does_not_fit_is_a_failure_of_the_candidate_with_the_reply_kept():
    failure, scripted, _ = settled("no idea", "still none")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("parse", "candidate")
    assert failure.detail == "still none"
    assert scripted.calls == 2


def test_a_reply_that_was_cut_off_is_not_asked_for_again():
    failure, scripted, _ = settled(ModelReply('{"why": "', Usage(1, 5, 5), "length"))
    assert isinstance(failure, Failure)
    assert "max_tokens" in failure.message
    assert scripted.calls == 1


def test_both_questions_are_journalled_so_that_a_resume_repeats_neither():
    _, _, journal = settled("no idea", '{"label": "bad"}')
    silent = ScriptedModel([])
    again = asyncio.run(ask(JournalScope(journal, "propose/0"), silent, ASKED))
    assert isinstance(again, ModelReply)
    assert again.text == '{"label": "bad"}'
    assert silent.calls == 0


def test_a_request_without_a_schema_is_left_alone():
    scope = JournalScope(MemoryJournal(), "propose/0")
    request = ModelRequest((Message("user", "hi"),))
    reply = asyncio.run(ask(scope, ScriptedModel(["{not json"]), request))
    assert isinstance(reply, ModelReply)
    assert reply.text == "{not json"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "openai_compatible"])
def test_a_client_s_reply_is_settled_over_http(provider: str):
    with ModelServer(["```json\n{'label': 'fine'}\n```", '{"label": "bad"}']) as server:
        scope = JournalScope(MemoryJournal(), "propose/0")
        reply = asyncio.run(ask(scope, model(provider, server), ASKED))
        assert isinstance(reply, ModelReply)
        assert reply.text == '{"label": "bad"}'
        assert "does not satisfy the schema" in server.log[1].text


def asked(replies: list[str], rounds: int, wants: str = "") -> tuple[ModelReply | Failure, int]:
    scripted = ScriptedModel(replies)
    scope = JournalScope(MemoryJournal(), "here")

    def check(value: dict[str, str]) -> str:
        return "" if value.get("why") == wants else f"`why` is not {wants}"

    rules = ReplyRules(rounds, check if wants else None)
    found = ask(scope, scripted, ASKED, rules=rules)
    return asyncio.run(found), scripted.calls


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_a_reply_is_asked_for_no_oftener_than_allowed(rounds: int):
    scope, scripted = JournalScope(MemoryJournal(), "here"), ScriptedModel(["nothing"] * 5)
    found = asyncio.run(ask(scope, scripted, ASKED, rules=ReplyRules(rounds)))
    assert isinstance(found, Failure) and found.kind == "parse" and scripted.calls == rounds
    assert scope.usage.calls == rounds, "all of them were paid for"
    assert found.usage == FREE, "who adds up a scope and its failure counts nothing twice"


def test_what_no_schema_can_say_is_checked_and_asked_again():
    wrong, right = ('{"label": "good", "why": "%s"}' % why for why in ("no", "yes"))  # noqa: UP031
    found, calls = asked([wrong, wrong, right], 3, "yes")
    assert isinstance(found, ModelReply) and json.loads(found.text)["why"] == "yes" and calls == 3
    found, calls = asked([wrong, wrong, right], 2, "yes")
    assert isinstance(found, Failure) and "`why` is not yes" in found.message and calls == 2
