"""A text that may be rewritten: what is read of it, and what is written."""

import pytest

from kept.core.artifact import Artifact, Candidate, NoSpan, Rules
from kept.core.edit import apply_edits
from kept.proposers.text_units import TextAxis
from kept.spec.locate.tree import locate_or_insert

HEAD = "---\nversion: '2.1'\ntags: [x]\n---\n"


def rewritten(axis: TextAxis, texts: dict[str, str], new: str) -> dict[str, str]:
    rules = Rules({name: Artifact(name) for name in texts})
    made = apply_edits(Candidate(texts), axis.edits(texts, new), rules, locate_or_insert)
    assert made.complete
    return dict(made.candidate.texts)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Be brief.\n", "Be brief.\n"),
        (f"{HEAD}\nBe brief.\n", "Be brief.\n"),
        ("---\nprose in rules\n---\nBe brief.\n", "---\nprose in rules\n---\nBe brief.\n"),
        ("---\n# nothing\n---\nBe brief.\n", "---\n# nothing\n---\nBe brief.\n"),
        ("---\na: [\n---\nBe brief.\n", "---\na: [\n---\nBe brief.\n"),
        ("---\nno end\n", "---\nno end\n"),
    ],
)  # fmt: skip
def test_a_head_is_no_part_of_a_file(text: str, read: str):
    assert TextAxis("instructions", "a.md").read({"a.md": text}) == read


def test_a_file_keeps_its_head():
    axis = TextAxis("instructions", "a.md")
    assert rewritten(axis, {"a.md": f"{HEAD}Old.\n"}, "New.\n") == {"a.md": f"{HEAD}New.\n"}


def test_a_new_text_that_begins_like_a_head_is_not_dropped():
    axis = TextAxis("instructions", "a.md")
    new = "---\nrole: judge\n---\nBe fair.\n"
    assert axis.read(rewritten(axis, {"a.md": "Old.\n"}, new)) == new


def test_a_value_of_a_file_is_read_and_rewritten():
    axis = TextAxis("instructions", "agent.yaml", "instructions.inline")
    texts = {"agent.yaml": "name: x # me\ninstructions:\n  inline: |\n    Old.\n    Text.\n"}
    assert axis.read(texts) == "Old.\nText.\n"
    now = rewritten(axis, texts, "New.\nText.")
    assert now["agent.yaml"].startswith("name: x # me\ninstructions:\n  inline: |-\n    New.\n")
    assert axis.read(now) == "New.\nText."


def test_a_text_is_written_whole_however_long_it_is():
    # whoever writes one that is too long is asked again; half of it would be another text
    axis = TextAxis("instructions", "a.md", max_chars=10)
    long = "Answer in one word. Never guess.\n"
    assert axis.read(rewritten(axis, {"a.md": "Old.\n"}, long)) == long


def test_what_is_not_there_is_told():
    assert isinstance(TextAxis("x", "gone.md").read({}), NoSpan)
    assert isinstance(TextAxis("x", "a.yaml", "b").read({"a.yaml": "a: 1"}), NoSpan)
