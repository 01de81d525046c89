"""Candidates are what they hold, and paths stay inside their folder."""

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.artifact import Artifact, Candidate, Rules, is_safe_path

words = st.text(max_size=8)


def test_equal_content_is_the_same_candidate_whatever_made_it():
    one = Candidate({"a": "x", "b": "y"})
    two = Candidate({"b": "y", "a": "x"})
    assert one == two
    assert one.id == two.id
    assert len({one, two}) == 1


@pytest.mark.slow
@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.dictionaries(words, words, max_size=3), st.dictionaries(words, words, max_size=3))
def test_different_content_is_a_different_candidate(one: dict[str, str], two: dict[str, str]):
    assert (Candidate(one).id == Candidate(two).id) == (one == two)
    assert Candidate(one).id != Candidate(one, {"blob": "0"}).id


def test_a_character_that_moves_from_path_to_text_makes_another_candidate():
    assert Candidate({"ab": "c"}).id != Candidate({"a": "bc"}).id
    assert Candidate({"a": "x", "b": ""}).id != Candidate({"a": "xb"}).id
    assert Candidate({"a": "x"}).id != Candidate({}, {"a": "x"}).id


def test_a_copy_is_the_same_candidate_and_can_be_changed_without_it():
    one = Candidate({"a": "x"}, {"b": "0"})
    copy = one.copied()
    assert (copy.texts, copy.blobs, copy.id) == (one.texts, one.blobs, one.id)
    cast("dict[str, str]", copy.texts)["a"] = "y"
    cast("dict[str, str]", copy.blobs).clear()
    assert (one.texts, one.blobs) == ({"a": "x"}, {"b": "0"})


def test_bytes_that_are_not_utf8_have_an_id_too():
    assert Candidate({"a": "caf\udce9"}).id != Candidate({"a": "café"}).id


def test_the_text_of_a_candidate_is_there_when_it_has_just_one():
    assert Candidate({"a": "x"}).text == "x"
    with pytest.raises(ValueError, match=r"2 texts \(a, b\): name one, as in candidate\['a'\]"):
        _ = Candidate({"a": "x", "b": "y"}).text


@pytest.mark.parametrize(
    "path", ["a", "a/b", "a b/c.d", ".hidden", "a/...", "ü/ß", "a/b:c", "\udcff", "d" * 240]
)
def test_a_path_inside_its_folder_is_safe(path: str):
    assert is_safe_path(path)


OUTSIDE = ["", "/", "/a", "..", "../a", "a/..", "a/../b", ".", "./a", "a/./b", "a//b", "a/"]


NO_FILE = ["a\0b", "a/\ud800", "d" * 241, "é" * 121, "d/" * 600 + "x"]
"""No file can have these, or none below a folder."""


@pytest.mark.parametrize("path", [*OUTSIDE, "a\\b", "C:/a", "C:", *NO_FILE])
def test_a_path_out_of_its_folder_is_not(path: str):
    assert not is_safe_path(path)
    assert not Rules({}, new_files=("*",)).allows(path)


def test_what_is_an_artifact_is_in_scope_and_what_no_pattern_matches_is_not():
    rules = Rules({"a": Artifact("a")}, new_files=("docs/*.md",))
    assert rules.allows("a")
    assert rules.allows("docs/b.md")
    assert not rules.allows("b")
    assert not rules.allows("docs/b.txt")
    assert not Rules({"a": Artifact("a")}).allows("docs/b.md")
