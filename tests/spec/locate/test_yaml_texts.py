"""Texts over several lines in YAML, and keys that a mapping has not: set, the rest stays."""

import string
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from kept.core.artifact import NoSpan, Span, Value
from kept.spec.locate.tree import locate, locate_or_insert, read_value

AGENT = """\
# who it is
name: desk   # its name
model:
  provider: openai
  name: ${MODEL}  # which
instructions:
  inline: |  # what it is told
    Answer in one word.

    Be kind.

# what it has
tools:
- name: search
  description: >-
    Finds
    things.
  database:
    provider: qdrant
- {name: add, description: Adds.}
"""


def values(text: str) -> Any:
    yaml: Any = YAML(typ="safe", pure=True)
    return yaml.load(text)


def put(text: str, key: str, value: Value) -> str:
    span = locate_or_insert("a.yaml", text, key)
    assert isinstance(span, Span), span
    return text[: span.start] + span.render(value) + text[span.end :]


def test_a_block_is_replaced_by_a_block_and_comments_stay():
    assert read_value("a.yaml", AGENT, "instructions.inline") == "Answer in one word.\n\nBe kind.\n"
    changed = put(AGENT, "instructions.inline", "One.\n\n  Two: #2\n")
    assert changed == AGENT.replace(
        "    Answer in one word.\n\n    Be kind.\n", "    One.\n\n      Two: #2\n"
    )


def test_a_text_without_a_last_line_end_has_none():
    changed = put(AGENT, "instructions.inline", "One.\nTwo.")
    assert "inline: |-  # what it is told\n    One.\n    Two.\n\n# what" in changed
    assert values(changed)["instructions"] == {"inline": "One.\nTwo."}


def test_a_folded_text_becomes_a_block():
    changed = put(AGENT, "tools[name=search].description", "Finds:\n* all")
    assert "  description: |-\n    Finds:\n    * all\n  database:" in changed


@pytest.mark.parametrize("text", ["a\x07b\nc", " begins so\nc", "c\n\n\n", "a\r\nb", "\n \n", ""])
def test_a_text_that_no_block_can_hold_stands_in_quotes(text: str):
    changed = put(AGENT, "instructions.inline", text)
    assert 'inline: "' in changed
    assert '"  # what it is told\n' in changed
    assert values(changed)["instructions"] == {"inline": text}


def test_a_text_on_a_line_becomes_a_block_where_nothing_follows():
    changed = put("a: old\nb: 1\n", "a", "x\ny")
    assert changed == "a: |-\n  x\n  y\nb: 1\n"
    assert put("a: old # c\nb: 1\n", "a", "x\ny") == 'a: "x\\ny" # c\nb: 1\n'
    assert put("{a: old}\n", "a", "x\ny") == '{a: "x\\ny"}\n'


@pytest.mark.parametrize(
    ("key", "value", "was", "now"),
    [
        ("model.temperature", 0.5, "  # which\n", "  # which\n  temperature: 0.5\n"),
        ("tools[name=search].top_k", 7, "- name: search\n", "- name: search\n  top_k: 7\n"),
        ("tools[name=add].top_k", 7, "description: Adds.}", "description: Adds., top_k: 7}"),
        ("openai.max_turns", 3, "# its name\n", "# its name\nopenai:\n  max_turns: 3\n"),
        ("tools[1].a.b", "x y", "Adds.}", "Adds., a: {b: x y}}"),
    ],
)
def test_a_key_that_is_not_there_is_put_into_its_mapping(
    key: str, value: Value, was: str, now: str
):
    assert isinstance(locate("a.yaml", AGENT, key), NoSpan)
    changed = put(AGENT, key, value)
    assert changed == AGENT.replace(was, now, 1)
    # and the next time it is there
    assert put(changed, key, value) == changed
    assert read_value("a.yaml", changed, key) == value


@pytest.mark.parametrize(
    ("text", "key", "changed"),
    [
        ("a: {}\n", "a.b", "a: {b: 1}\n"),
        ("a: {c: {d: 2}}\n", "a.b", "a: {b: 1, c: {d: 2}}\n"),
        ("a: {c: 2,}\n", "a.b", "a: {c: 2, b: 1,}\n"),
        ("a:\n  c:\n    d: 2\n", "a.b", "a:\n  b: 1\n  c:\n    d: 2\n"),
        ("a: &x\n  c: 2", "a.b", "a: &x\n  c: 2\n  b: 1"),
        ("a:\r\n  c: 2\r\n", "a.b", "a:\r\n  c: 2\r\n  b: 1\r\n"),
        ("x: &x {k: 2}\na:\n  <<: *x\n", "a.k", "x: &x {k: 2}\na:\n  k: 1\n  <<: *x\n"),
        ("a:\n  c: [1,\n    2] # c\n", "a.b", "a:\n  c: [1,\n    2] # c\n  b: 1\n"),
    ],
)  # fmt: skip
def test_a_key_finds_its_room_in_mappings_of_all_kinds(text: str, key: str, changed: str):
    assert put(text, key, 1) == changed
    values(changed)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("x: &x {k: 1}\na: *x\n", "a.b"),
        ("a: 1\n", "a.b"),
        ("a: [1]\n", "a[1]"),
        ("a: [1]\n", "b[0].c"),
        ("a:\n", "a"),
        ("a: [", "b"),
        ("a: 1", "b["),
    ],
)
def test_where_there_is_no_room_the_reason_is_the_same_as_before(text: str, key: str):
    found = locate_or_insert("a.yaml", text, key)
    assert isinstance(found, NoSpan)
    assert found == locate("a.yaml", text, key)


def test_nothing_is_put_into_other_formats():
    assert isinstance(locate_or_insert("a.json", '{"a": 1}', "b"), NoSpan)
    assert isinstance(locate_or_insert("a.env", "A=1", "B"), NoSpan)


PLACES = [
    ("{0}: {1}\nz: 1\n", "{0}", 2),
    ("k:\n  {0}: {1}\n  # c\n  z: 1\n", "k.{0}", 4),
    ("k:\n- n: 1\n  {0}: {1}\n\n  z: 1\n- 3\n", "k[0].{0}", 4),
    ("k:\n- {1}\n- 3\n", "k[0]", 2),
    ("z: 1\n{0}: {1}", "{0}", 2),
    ("k: &a\n    {0}: {1}\n    z: 1\n", "k.{0}", 8),
    ("k:\n  {0}:\n    {1}\n  z: 1\n", "k.{0}", 4),
]
WRITTEN = [
    "old",
    "'old'",
    '"old"',
    "|\n{m}old\n{m}  text\n",
    "|+\n{m}old\n\n{m}text\n\n",
    ">-\n{m}old\n{m}text",
    "|2\n{m}old",
    "!!str |-\n{m}old  \n\n   \n",
    "old\n{m}text",
    '"old\n{m}text"',
]
letters = string.ascii_letters + " \n\n\t#:-'\"|>{}[],&*!%@`\\é☃😀\xa0\r\x07\x85\u2028"
texts = st.text(letters, max_size=30) | st.text(max_size=6)


whole = texts.filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(at=st.sampled_from(PLACES), written=st.sampled_from(WRITTEN), new=whole)
def test_any_text_in_any_place_reads_back_and_the_rest_stays(
    at: tuple[str, str, int], written: str, new: str
):
    place, key, margin = at
    assume("|2" not in written or margin == 2)
    text = place.format("a", written.format(m=" " * margin).rstrip("\n"))
    before = values(text)
    path = key.format("a")
    changed = put(text, path, new)
    after = values(changed)
    assert read_value("a.yaml", changed, path) == new
    assert _without(after) == _without(before)
    assert ("# c" in changed) >= ("# c" in text)


def _without(tree: Any) -> Any:
    """A tree with what is set left out."""
    if isinstance(tree, dict):
        return {k: _without(v) for k, v in tree.items() if k != "a"}  # pyright: ignore[reportUnknownVariableType] # any YAML
    if isinstance(tree, list):
        return [_without(v) for v in tree if not isinstance(v, str)]  # pyright: ignore[reportUnknownVariableType] # any YAML
    return tree
