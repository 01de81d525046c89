import asyncio
from pathlib import Path

from kept.core.rollout import Failure
from kept.core.tool import ToolAnswer
from kept.engine.scope import JournalScope
from kept.store.journal import RunJournal
from kept.tools.using import MOST_TEXT, cut, journalled


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
