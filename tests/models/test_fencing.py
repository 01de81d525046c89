import re

from hypothesis import given
from hypothesis import strategies as st

from kept.models.context_window import fenced, mark_of

TEXTS = st.lists(st.tuples(st.sampled_from(["input", "output"]), st.text()), min_size=1)


@given(TEXTS)
def test_no_text_holds_the_mark_that_ends_it(texts: list[tuple[str, str]]):
    mark = mark_of(texts)
    assert not any(mark in text for _, text in texts)
    found = re.findall(rf"<(\w+)-{mark}>\n(.*?)\n</\1-{mark}>", fenced(texts), re.DOTALL)
    assert found == texts


def test_a_text_that_holds_the_first_mark_gets_another():
    first = mark_of([("output", "x")])
    # what begins with the mark of its own rest would have to be found by trying
    other = mark_of([("output", f"x{first}")])
    assert other not in f"x{first}"
    assert mark_of([("output", "x")]) == first, "the same in every sitting"
