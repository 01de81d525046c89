import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest, ToolAnswer, ToolCall
from kept.core.rollout import Failure
from kept.engine.replay import JournalScope
from kept.errors import JournalError
from kept.evaluators.tools.journalled_call import MOST_TEXT, cut, journalled
from kept.models.scripted import ScriptedModel
from kept.models.tool_loop import Agent
from kept.store.journal import RunJournal
from kept.testing.fakes import ScriptedTool


def used(folder: Path, answer: ToolAnswer | Failure) -> tuple[ToolAnswer | Failure, int]:
    """What a sitting is told by a tool that would answer so, and how often it was asked."""
    asked: list[int] = []

    async def do() -> ToolAnswer | Failure:
        asked.append(1)
        return answer

    journal = RunJournal(folder)
    # as a resume does, so that calls are at hand
    journal.tail(0)
    scope = JournalScope(journal, "rollout/a/decide/b/0")
    told = asyncio.run(journalled(scope, {"tool": "t", "arguments": {"a": 1}}, do))
    journal.close()
    return told, len(asked)


def test_a_use_is_told_from_the_disk_as_it_was_told_first(tmp_path: Path):
    answer = ToolAnswer("text", wrong=True, context=("one", "two"))
    first, _ = used(tmp_path / "run", answer)
    again, asked = used(tmp_path / "run", ToolAnswer("another"))
    assert asked == 0
    assert again == first
    assert isinstance(again, ToolAnswer) and again.context == ("one", "two")


def test_an_outage_is_no_answer_and_is_asked_again(tmp_path: Path):
    used(tmp_path / "run", Failure("network", "infrastructure", "away"))
    again, asked = used(tmp_path / "run", ToolAnswer("back"))
    assert (getattr(again, "text", None), asked) == ("back", 1)


def test_a_long_text_is_cut_with_how_much_is_missing():
    assert cut("x" * MOST_TEXT) == "x" * MOST_TEXT
    assert cut("x" * (MOST_TEXT + 1234)).endswith("x\n[1,234 more characters were left out]")


def test_what_a_tool_raises_beside_another_is_raised_as_it_is(tmp_path: Path):
    async def full(arguments: Mapping[str, object]) -> ToolAnswer:
        raise JournalError("cannot write rollouts.jsonl")

    tools = (ScriptedTool("good", "yes"), ScriptedTool("full", full))
    calls = (ToolCall("1", "good", "{}"), ToolCall("2", "full", "{}"))
    model = ScriptedModel([ModelReply("", tool_calls=calls)])
    agent = Agent(model, ModelRequest(()), tools)
    journal = RunJournal(tmp_path / "run")
    scope = JournalScope(journal, "rollout/a/decide/b/0")
    with pytest.raises(JournalError, match=r"^cannot write rollouts.jsonl$"):
        asyncio.run(agent.say((Message("user", "do"),), scope, 0))
    journal.close()
