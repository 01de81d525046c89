"""File tools: as every tool, and then what each of them does."""

import asyncio
from collections.abc import Mapping

import pytest

from kept.core.llm import ToolAnswer
from kept.core.ports import Tool
from kept.engine.replay import JournalScope
from kept.evaluators.tools.files import MOUNT, SharedFiles, file_tools
from kept.testing import MemoryJournal, ToolSuite


class TestFileWrite(ToolSuite):
    async def open_tool(self) -> Tool:
        return _tool(SharedFiles(), "file_write")

    async def open_hanging_tool(self) -> Tool | None:
        return None

    def arguments(self) -> Mapping[str, object]:
        return {"path": "output/a.md", "content": "hello"}

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return {"path": "output/a.md"}


def _tool(files: SharedFiles, name: str) -> Tool:
    return next(tool for tool in file_tools(files) if tool.offer.name == name)


def _use(
    files: SharedFiles, name: str, journal: MemoryJournal | None = None, **given: object
) -> ToolAnswer:
    return _asked(files, name, given, journal)


def _asked(
    files: SharedFiles, name: str, given: Mapping[str, object], journal: MemoryJournal | None = None
) -> ToolAnswer:
    scope = JournalScope(journal or MemoryJournal(), "rollout/a/measure/b/0")
    answer = asyncio.run(_tool(files, name).use(given, scope))
    assert isinstance(answer, ToolAnswer)
    return answer


def test_what_was_written_can_be_read_listed_and_deleted() -> None:
    files = SharedFiles()
    assert "5 bytes" in _use(files, "file_write", path="output/a.md", content="hello").text
    assert _use(files, "file_read", path="output/a.md").text == "hello"
    assert _use(files, "file_list").text == "output/a.md (5 bytes)"
    assert _use(files, "file_list", folder="output/").text == "output/a.md (5 bytes)"
    assert not _use(files, "file_delete", path="output/a.md").wrong
    assert files.all() == {}


def test_a_text_may_be_put_behind_another() -> None:
    files = SharedFiles()
    _use(files, "file_write", path="a", content="one ")
    _use(files, "file_write", path="a", content="two", append=True)
    assert files.read("a") == b"one two"


def test_a_path_outside_is_an_answer_and_changes_nothing() -> None:
    files = SharedFiles()
    for path in ("../x", "/etc/cron.d/x", "output/../../x", "d" * 300, "d/" * 3000 + "x"):
        answer = _use(files, "file_write", path=path, content="!")
        assert answer.wrong and "not a path below the workspace" in answer.text
    assert files.all() == {}


def test_half_a_character_in_arguments_is_an_answer() -> None:
    files = SharedFiles()
    assert _use(files, "file_write", path="\ud800", content="x").wrong
    assert _use(files, "file_write", None, path="a", content="x", **{"\ud800": 1}).wrong
    assert not _use(files, "file_write", path="a", content="x\ud83d").wrong
    assert files.all() == {"a": b"x?"}


def test_what_is_not_there_is_told() -> None:
    files = SharedFiles()
    assert _use(files, "file_read", path="nope").wrong
    assert _use(files, "file_delete", path="nope").wrong


def test_binary_data_is_told_and_not_shown() -> None:
    files = SharedFiles()
    files.apply({"a.png": b"\x89PNG\xff"}, 1)
    assert "5 bytes of binary data" in _use(files, "file_read", path="a.png").text


def test_a_resume_makes_a_journalled_change_again_in_other_files() -> None:
    journal = MemoryJournal()
    _use(SharedFiles(), "file_write", journal, path="output/a", content="hello")
    fresh = SharedFiles()
    _use(fresh, "file_write", journal, path="output/a", content="hello")
    assert fresh.all() == {"output/a": b"hello"}


def test_a_model_may_be_told_otherwise_what_a_tool_does() -> None:
    told = {
        tool.offer.name: tool.offer.description
        for tool in file_tools(SharedFiles(), {"file_read": "Look."})
    }
    assert told["file_read"] == "Look."
    assert told["file_list"].startswith("List")


def test_the_whole_workspace_is_listed_by_every_name_that_it_has() -> None:
    files = SharedFiles()
    files.apply({"output/a.md": b"hello"}, 1)
    for folder in (".", "./", "", "/", MOUNT, f"{MOUNT}/"):
        for name in ("folder", "path", "directory", "dir"):
            answer = _asked(files, "file_list", {name: folder})
            assert (answer.text, answer.wrong) == ("output/a.md (5 bytes)", False), (name, folder)
    for folder in ("output", "./output/", f"{MOUNT}/output"):
        assert "output/a.md" in _use(files, "file_list", path=folder).text, folder


@pytest.mark.parametrize("path", ["path", "file_path", "filepath", "filename", "file"])
@pytest.mark.parametrize("content", ["content", "contents", "text", "file_text"])
def test_arguments_may_be_spelled_as_other_tools_spell_them(path: str, content: str) -> None:
    files = SharedFiles()
    written = _asked(files, "file_write", {path: "output/a.md", content: "hello"})
    assert not written.wrong, written.text
    assert _asked(files, "file_read", {path: "output/a.md"}).text == "hello"
    assert not _asked(files, "file_delete", {path: "output/a.md"}).wrong
    assert files.all() == {}


def test_an_argument_that_is_given_twice_or_means_nothing_is_wrong() -> None:
    files = SharedFiles()
    twice = _use(files, "file_write", path="a", file_path="b", content="x")
    assert twice.wrong and "file_path" in twice.text
    assert _use(files, "file_read", path="a", encoding="utf-8").wrong
    assert files.all() == {}
