"""Versions share their storage, and none sees what was added to another."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.containers import Log, Seen

PLAIN = settings(deadline=None, derandomize=True, max_examples=150)

# Which earlier version to add to, and what.
growth = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=25)


@PLAIN
@given(growth)
def test_a_log_of_any_version_reads_as_if_it_were_alone(steps: list[tuple[int, int]]):
    versions: list[tuple[Log[int], list[int]]] = [(Log[int](), [])]
    for at, item in steps:
        log, plain = versions[at % len(versions)]
        versions.append((log.add(item), [*plain, item]))
    for log, plain in versions:
        assert list(log) == plain
        assert len(log) == len(plain)
        assert log == Log(plain)
        assert hash(log) == hash(Log(plain))
        assert log[1:4] == plain[1:4]
        assert log[::-1] == plain[::-1]
        assert log[-3:] == plain[-3:]
        if plain:
            assert (log[0], log[-1]) == (plain[0], plain[-1])


@PLAIN
@given(growth)
def test_a_set_of_any_version_holds_what_was_added_to_it_and_no_more(steps: list[tuple[int, int]]):
    versions: list[tuple[Seen, list[str]]] = [(Seen(), [])]
    for at, number in steps:
        seen, plain = versions[at % len(versions)]
        item = str(number)
        versions.append((seen.add(item), plain if item in plain else [*plain, item]))
    for seen, plain in versions:
        assert list(seen) == plain
        assert len(seen) == len(plain)
        assert all((str(n) in seen) == (str(n) in plain) for n in range(6))


def test_two_branches_of_a_log_do_not_leak_into_each_other():
    trunk = Log([1, 2])
    left, right = trunk.add(3), trunk.add(4)
    assert (list(trunk), list(left), list(right)) == ([1, 2], [1, 2, 3], [1, 2, 4])
    assert list(left.add(5)) == [1, 2, 3, 5]
    assert list(right.add(6)) == [1, 2, 4, 6]


def test_two_branches_of_a_set_do_not_leak_into_each_other():
    trunk = Seen().add("a")
    left, right = trunk.add("b"), trunk.add("c")
    assert ("b" in left, "c" in left, "b" in right, "c" in right) == (True, False, False, True)
    assert "b" not in trunk
    assert list(right.add("b")) == ["a", "c", "b"]


def test_what_stands_beyond_the_end_is_out_of_range():
    short = Log([1])
    short.add(2)
    for index in (1, -2, 99):
        with pytest.raises(IndexError):
            _ = short[index]


def test_growing_is_not_quadratic():
    log, seen = Log[int](), Seen()
    for n in range(100_000):
        log, seen = log.add(n), seen.add(str(n))
    assert len(log) == len(seen) == 100_000
