"""Read-only tools for documents: what they show, and that nothing else can be reached."""

import asyncio
from pathlib import Path

import pytest

from kept.core.llm import ToolAnswer
from kept.core.rollout import Job
from kept.engine.replay import JournalScope
from kept.evaluators.tools.document_tools import Documents, document_tools
from kept.testing import MemoryJournal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "1941").mkdir(parents=True)
    (tmp_path / "docs" / "a.txt").write_text("\n".join(f"line {n}" for n in range(1, 201)))
    (tmp_path / "docs" / "1941" / "b.txt").write_text("Defense\n2,602 millions\n")
    (tmp_path / "secret.txt").write_text("the answer")
    (tmp_path / "docs" / "link.txt").symlink_to(tmp_path / "secret.txt")
    return tmp_path


def used(documents: Documents, name: str, **arguments: object) -> ToolAnswer:
    tool = next(one for one in document_tools(documents) if one.offer.name == name)
    scope = JournalScope(MemoryJournal(), Job("x", "c", 0, "decide"))
    answer = asyncio.run(tool.use(arguments, scope))
    assert isinstance(answer, ToolAnswer), answer
    return answer


def test_documents_are_listed_read_and_searched(folder: Path):
    documents = Documents((folder / "docs",))
    assert used(documents, "glob", pattern="*").text == "1941/b.txt\na.txt"
    assert used(documents, "glob", pattern="**/b.txt").text == "1941/b.txt"
    assert used(documents, "glob", pattern="*.csv").text == "no document fits `*.csv`"
    first = used(documents, "read", path="a.txt").text.splitlines()
    assert (first[0], first[79], first[80]) == ("line 1", "line 80", "[lines 1 to 80 of 200]")
    some = used(documents, "read", path="a.txt", start=199, limit=5).text
    assert some == "line 199\nline 200\n[lines 199 to 200 of 200]"
    assert used(documents, "read", path="a.txt", start=300).wrong
    assert used(documents, "grep", pattern="DEFENSE", path="1941/b.txt").text == "1: Defense"
    assert used(documents, "grep", pattern="2,602").text == "1941/b.txt:2: 2,602 millions"
    many = used(documents, "grep", pattern="line", path="a.txt").text.splitlines()
    assert len(many) == 21 and many[-1] == "[there are more]"


def test_what_is_long_is_cut(folder: Path):
    (folder / "docs" / "long.txt").write_text("x" * 9_000)
    told = used(Documents((folder / "docs",)), "read", path="long.txt").text
    assert told.startswith("x" * 4_000 + "\n[cut after 4,000 characters]")


@pytest.mark.parametrize(
    "path", ["../secret.txt", "link.txt", "/etc/passwd", "docs/../../secret.txt", "nowhere.txt"]
)
def test_nothing_else_can_be_reached(folder: Path, path: str):
    documents = Documents((folder / "docs",))
    assert used(documents, "read", path=path).wrong
    assert used(documents, "grep", pattern="answer", path=path).wrong
    assert used(documents, "grep", pattern="the answer").text == "no line has `the answer`"


def test_only_the_named_files_are_there(folder: Path):
    documents = Documents((folder / "docs",), frozenset({"b.txt"}))
    assert used(documents, "glob", pattern="*").text == "1941/b.txt"
    assert used(documents, "read", path="a.txt").wrong
    assert used(documents, "grep", pattern="line 7").text == "no line has `line 7`"


def test_of_two_folders_the_first_has_the_say(folder: Path):
    (folder / "more").mkdir()
    (folder / "more" / "a.txt").write_text("another")
    (folder / "more" / "c.txt").write_text("third")
    documents = Documents((folder / "more", folder / "docs"))
    assert used(documents, "glob", pattern="*").text == "1941/b.txt\na.txt\nc.txt"
    assert used(documents, "read", path="a.txt").text.startswith("another")


def test_wrong_arguments_are_an_answer(folder: Path):
    documents = Documents((folder / "docs",))
    assert used(documents, "read", file="a.txt").wrong
    assert used(documents, "read", path="a.txt", start="one").wrong
