"""Lines that differ: exactly for texts of any usual size, and soon for every text."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.core import text as core_text
from kept.core.text import changes

TEXTS = st.lists(st.sampled_from("abcdef"), max_size=12)


def rebuilt(old: list[str], new: list[str]) -> list[str]:
    text = list(old)
    for change in reversed(list(changes(old, new))):
        text[change.start : change.end] = new[change.new_start : change.new_end]
    return text


def size(old: list[str], new: list[str]) -> int:
    return sum(c.end - c.start + c.new_end - c.new_start for c in changes(old, new))


@given(TEXTS, TEXTS)
def test_the_changes_make_the_one_text_of_the_other(old: list[str], new: list[str]):
    assert rebuilt(old, new) == new


@given(TEXTS, TEXTS)
def test_so_they_do_where_texts_are_taken_apart(old: list[str], new: list[str]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_text, "MANY", 4)
        assert rebuilt(old, new) == new


def test_two_changes_far_apart_in_a_long_text_are_two_lines():
    old = [f"line {n}" if n % 3 else "}" for n in range(30_000)]
    new = [*old]
    new[10], new[29_990] = "first", "last"
    del new[15_000]
    assert size(old, new) == 5


@pytest.mark.parametrize("kinds", [1, 2, 10, 200, 5000])
def test_no_text_takes_long(kinds: int):
    draw = random.Random(kinds)
    old, new = ([f"{draw.randrange(kinds)}" for _ in range(100_000)] for _ in range(2))
    new[50_000] = "another"
    began = time.process_time()
    assert rebuilt(old, new) == new
    assert time.process_time() - began < 10
