"""Copies of plain data: what somebody does to one is not seen in the value, nor in another."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kept.core.containers import copier

fixed = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
plain = st.recursive(
    fixed | st.sets(st.integers(), max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


def spoil(value: Any) -> None:
    """Change everything in a value that can be changed."""
    if isinstance(value, dict | list | tuple):
        for one in [*(value.values() if isinstance(value, dict) else value)]:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] # any data
            spoil(one)
    if isinstance(value, dict | list | set):
        value.clear()


@given(plain)
def test_a_copy_is_equal_and_nothing_done_to_it_reaches_the_value(value: object):
    before = repr(value)
    make = copier(value)
    if make is None:
        spoil(value)
        assert repr(value) == before, "there was nothing in it to be changed"
        return
    first = make()
    assert first == value and type(first) is type(value)
    spoil(first)
    assert repr(value) == before
    assert make() == value


def test_what_is_no_plain_data_is_handed_over_as_it_is():
    class Handle: ...

    handle = Handle()
    assert copier(handle) is None
    make = copier({"handle": handle, "tags": ["a"]})
    assert make is not None
    fresh: Any = make()
    assert fresh["handle"] is handle
