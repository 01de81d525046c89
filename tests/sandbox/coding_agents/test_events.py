"""What each CLI said in a real run, recorded, as the steps of a trace."""

import copy
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kept.core.rollout import Failure, TraceItem, Usage
from kept.models.providers import ModelConfig, Price
from kept.sandbox.coding_agents.definition import MOST_STEP, Told
from kept.sandbox.coding_agents.result import Result, events_of, status_in
from kept.sandbox.coding_agents.run import CLIS
from kept.sandbox.command import Exit
from kept.sandbox.workspace import Output

RECORDED = Path(__file__).parent / "recorded"


def heard(name: str, tag: str = "") -> Told:
    cli = CLIS[name]
    text = (RECORDED / f"{cli.short}{tag}.jsonl").read_text(encoding="utf-8")
    return cli.listen(events_of(text))


@pytest.mark.parametrize("name", CLIS)
def test_a_recorded_run_becomes_numbered_steps(name: str):
    told = heard(name)
    said = [(item.data["step"], item.role) for item in told.numbered]
    assert said == [(1, "assistant"), (2, "tool"), (3, "tool"), (4, "tool"), (5, "assistant")]
    skill = told.numbered[1].text
    assert skill.startswith(f"$ cat {CLIS[name].skills}/units/SKILL.md\n  ---\n  name: units\n")
    assert skill.endswith("\n  Use metres.")
    assert told.final == "I wrote 1.83 m to answer.txt."
    assert told.session
    assert (told.error, told.waiting, told.stop) == ("", "", "")


@pytest.mark.parametrize(
    ("name", "how"),
    [("codex_exec", "[exit 2]"), ("claude_code_exec", "[failed]"), ("opencode_exec", "[exit 2]")],
)
def test_a_tool_that_failed_is_told_with_how(name: str, how: str):
    lines = heard(name).numbered[2].text.splitlines()
    assert lines[0] == "$ ls nowhere"
    assert "cannot access 'nowhere'" in lines[-2]
    assert lines[-1] == f"  {how}"


JUNK: tuple[Any, ...] = (None, 5, -1, 10**30, 0.5, True, "x", "", [], {}, [1], [{}], {"x": [1]})


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    keys: list[Any] = [*node] if isinstance(node, dict) else [*range(len(node))]
    for key in keys:
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


@pytest.mark.parametrize("name", CLIS)
def test_of_spoiled_events_a_typed_failure_or_a_rollout_comes_out(name: str):
    cli, draw = CLIS[name], random.Random(27)
    lines = (RECORDED / f"{cli.short}.jsonl").read_text(encoding="utf-8").splitlines()
    config = ModelConfig(provider=cli.providers[0], model="m", price=Price(input=3, output=15))
    failed = 0
    for _ in range(100):
        rows: list[Any] = [json.loads(line) for line in lines]
        for _ in range(draw.choice((1, 2, 5))):
            found = list(places(rows))
            node, key = found[draw.randrange(len(found))]
            node[key] = copy.deepcopy(draw.choice(JUNK))
        text = "\n".join(map(json.dumps, rows))
        if draw.random() < 0.2:
            text = text[: draw.randrange(len(text))] + "\udcff" + "[" * 2000
        result = Result(cli, config, "do it", Exit(0, text, ""), 60, worst_usd=2.0)
        ended = result.brought(Output({}, ()), {}, ".home")
        assert 0 <= ended.usage.usd < 1000
        assert ended.usage.tokens_in >= 0
        if isinstance(ended, Failure):
            failed += 1
            assert ended.blame == "infrastructure" or ended.kind in ("empty", "limit", "refused")
    assert failed > 10


def test_tokens_of_a_cli_that_cannot_be_true_are_charged_at_the_declared_most():
    cli = CLIS["codex_exec"]
    text = (RECORDED / "codex.jsonl").read_text(encoding="utf-8")
    spoiled = re.sub(r'"input_tokens": ?\d+', '"input_tokens": -5', text)
    assert spoiled != text
    config = ModelConfig(provider="openai", model="m", price=Price(input=3, output=15))
    result = Result(cli, config, "do it", Exit(0, spoiled, ""), 60, worst_usd=2.0)
    ended = result.brought(Output({}, ()), {}, ".home")
    assert ended.usage == Usage(1, usd=2.0)


@pytest.mark.parametrize(
    ("name", "tokens_in", "tokens_out"),
    [("codex_exec", 20164, 66), ("claude_code_exec", 38113, 69), ("opencode_exec", 10689, 69)],
)
def test_tokens_are_those_of_the_whole_run(name: str, tokens_in: int, tokens_out: int):
    taken = heard(name).taken
    assert taken is not None
    assert (taken.tokens_in, taken.tokens_out) == (tokens_in, tokens_out)


def test_a_provider_that_failed_once_was_asked_again_and_is_forgotten():
    told = heard("claude_code_exec")
    assert told.retried
    assert told.waiting == ""


@pytest.mark.parametrize(
    ("name", "tag", "status", "words", "retried"),
    [
        ("codex_exec", "-401", 401, "401 Unauthorized: bad key", True),
        ("codex_exec", "-429", 429, "429 Too Many Requests", False),
        ("codex_exec", "-cut", None, "stream disconnected before completion", True),
        ("claude_code_exec", "-401", 401, "Failed to authenticate", True),
        ("claude_code_exec", "-529", 529, "overloaded", True),
        ("claude_code_exec", "-context", 400, "Prompt is too long", False),
        ("opencode_exec", "-401", 401, "bad key", False),
    ],
)
def test_what_a_provider_answered_is_told(
    name: str, tag: str, status: int | None, words: str, retried: bool
):
    told = heard(name, tag)
    assert words in told.error
    assert (told.status, told.retried) == (status, retried)
    # what a CLI says of an error is no answer of a model
    assert (told.final, told.numbered) == ("", [])


@pytest.mark.parametrize("name", ["codex_exec", "claude_code_exec"])
def test_a_command_that_was_under_way_at_the_end_is_told(name: str):
    cli = CLIS[name]
    lines = (RECORDED / f"{cli.short}.jsonl").read_text(encoding="utf-8").splitlines()
    starts = "item.started" if name == "codex_exec" else "tool_use"
    at = max(n for n, line in enumerate(lines) if f'"type":"{starts}"' in line)
    told = cli.listen(events_of("\n".join(lines[: at + 1])))
    last = told.numbered[-1].text.splitlines()
    assert last == ["$ printf 'six feet\\n' > answer.txt", "  [did not end]"]


@pytest.mark.parametrize("name", CLIS)
def test_lines_that_are_no_events_and_events_nobody_knows_do_no_harm(name: str):
    noise = '… 12 bytes left out …\nnot json\n[1]\n7\n{"type": "new.kind"}\n{}\n{"type": 3}\n'
    assert CLIS[name].listen(events_of(noise)) == Told()


def test_a_long_step_keeps_its_beginning_and_its_end():
    told = Told()
    told.use("$ seq", "\n".join(map(str, range(10_000))))
    (item,) = told.steps
    assert len(item.text) < MOST_STEP + 100
    assert item.text.startswith("$ seq\n  0\n")
    assert item.text.endswith("  9999")
    assert "characters left out" in item.text


def test_thoughts_and_notes_are_no_steps_to_go_on_from():
    told = Told()
    told.think("hm")
    told.note("a warning")
    told.say("yes")
    assert told.steps == [
        TraceItem("thought", "hm"),
        TraceItem("info", "a warning"),
        TraceItem("assistant", "yes", {"step": 1}),
    ]


@pytest.mark.parametrize(
    ("message", "status"),
    [("answered 503", 503), ("error 404: no", 404), ("3500 tokens", None), ("40122", None)],
)
def test_a_status_is_a_number_by_itself(message: str, status: int | None):
    assert status_in(message) == status
