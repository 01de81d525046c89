"""YAML by the fast library means what it means by the other, and stands in the same lines."""

from pathlib import Path

import pytest
import yaml

from kept.spec.yaml import Document, YamlFault, read_yaml

ROOT = Path(__file__).parents[2]
TEXTS = [
    "a: 1\n",
    "- \n-\n- x\n",
    "a:\n  b:\nc: ~\n",
    "{a: [1, {b: c}], d: 'x: ${y}'}\n",
    "a: ${X}\nb: \"${Y}\"\nc: '${Z}'\n",
    "a: |\n  x\n\n  y\nb: >\n  f\n  g\n",
    "a: &x {k: 1}\nb: *x\n",
    "? a\n: b\n",
    "a: 0o17\nb: 0b11\nc: 1e3\nd: .5\ne: 1_0\nf: 012\ng: 2020-01-01\nh: yes\ni: NO\nj: True\n",
    "a: 'it''s'\nb: \"\\u263a \\x41 \\/\"\n",
    "a:    # a comment\n  - 1 # another\n",
    "---\na: 1\n...\n",
    "!!map {a: !!str 5, b: !!int '7'}\n",
    "a: \U0001f600 x\n",
    "[a, b\n",
    "a: b: c\n",
    "- a\n b\n",
    "a: 1\na: 2\n",
    'a: "x\n  y"\n',
    "",
    "# nothing\n",
    "a: -\n",
    "a: =\nb: !!str <<\n",
    "{a:1}\n",
    "a: !foo x\n",
    "a: @x\n",
    "- - 1\n  - 2\n- {a: }\n",
    "a: 1\n---\nb: 2\n",
    "a: &x {k: 1, l: 2}\nb:\n  <<: *x\n  l: 3\n",
    "a:\tb\n",
    "a: x\u2028y\n",
    "a: \x07\n",
]


def outcome(text: str) -> Document | tuple[int, str]:
    try:
        return read_yaml(text)
    except YamlFault as fault:
        return fault.line, fault.message


@pytest.mark.parametrize("text", TEXTS)
def test_both_libraries_read_the_same(text: str, monkeypatch: pytest.MonkeyPatch):
    fast = outcome(text)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert outcome(text) == fast
    assert repr(outcome(text)) == repr(fast)  # 1 is not 1.0 and not True


def test_both_libraries_read_the_examples_the_same(monkeypatch: pytest.MonkeyPatch):
    texts = [path.read_text() for path in sorted(ROOT.glob("examples/**/*.yaml"))]
    assert len(texts) > 3
    fast = list(map(outcome, texts))
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert list(map(outcome, texts)) == fast


def test_the_fast_library_is_really_used(monkeypatch: pytest.MonkeyPatch):
    from ruamel.yaml import YAML

    def never(*_: object) -> None:
        raise AssertionError("the slow one was asked")

    monkeypatch.setattr(YAML, "compose", never)
    assert read_yaml("a: [1, x]\n").data == {"a": [1, "x"]}


def test_a_merge_key_adds_what_a_mapping_does_not_say():
    document = read_yaml(
        "base: &b\n  x: 1\n  y: 2\nmore: &m {z: 5}\nall:\n  <<: [*b, *m]\n  y: 3\n"
    )
    assert document.data == {
        "base": {"x": 1, "y": 2},
        "more": {"z": 5},
        "all": {"y": 3, "x": 1, "z": 5},
    }
    assert document.lines["all", "y"] == 7
    assert document.lines["all", "x"] == 2
    assert document.doubles == []


def test_a_merge_key_of_no_mapping_is_a_fault():
    assert outcome("a:\n  <<: 7\n") == (2, "`<<` takes a mapping, or a list of them")


def test_texts_without_quotes_that_hold_a_variable_are_remembered():
    document = read_yaml("a: ${X}\nb: '${X}'\nc:\n- y\n- ${X}\n")
    assert document.templates == {("a",), ("c", 1)}


def test_a_variable_without_quotes_inside_brackets_is_a_fault_that_says_what_to_do():
    with pytest.raises(YamlFault) as caught:
        read_yaml("a: 1\nb: {key: ${NAME}}\n")
    assert caught.value.line == 2
    assert caught.value.hint == "put quotes round `${NAME}` where it stands inside brackets"
