"""Bounds by means of subsets: exact, balanced, and moved by gains in one direction only."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.gates._statistics import BITS, bounds, chance, fewest, subset_means

GAINS = st.lists(st.floats(-1, 1, width=16), min_size=2, max_size=20)


@pytest.mark.parametrize("cases", [1, 2, 5, 11])
def test_of_few_cases_every_subset_counts(cases: int):
    draw = random.Random(cases)
    gains = tuple(draw.uniform(-1, 1) for _ in range(cases))
    wanted = [
        sum(part) / len(part)
        for size in range(1, cases + 1)
        for part in itertools.combinations(gains, size)
    ]
    assert subset_means(gains) == pytest.approx(sorted(wanted))


@pytest.mark.parametrize("cases", [13, 40, 300])
def test_of_many_cases_each_is_in_half_of_the_subsets_and_each_two_in_a_quarter(cases: int):
    where = [memberships(cases, one) for one in {0, 1, 12, cases - 1}]
    assert all(len(mine) == 2**BITS / 2 for mine in where)
    assert all(len(a & b) == 2**BITS / 4 for a, b in itertools.combinations(where, 2))


def memberships(cases: int, one: int) -> set[int]:
    """The subsets that a case is in, found by what it adds to their sums."""
    from kept.gates._statistics import _sums  # pyright: ignore[reportPrivateUsage] # no other way in

    sums = _sums([float(n == one) for n in range(cases)], BITS)
    return {at for at, total in enumerate(sums) if total}


@pytest.mark.parametrize("level", [0.004, 0.01, 0.05, 0.2])
def test_of_all_ways_that_signs_can_fall_the_bound_is_passed_by_no_more_than_its_share(
    level: float,
):
    draw = random.Random(7)
    sizes = [draw.uniform(0.1, 1) for _ in range(8)]
    signs = list(itertools.product((-1, 1), repeat=len(sizes)))
    falls = [[s * size for s, size in zip(row, sizes, strict=True)] for row in signs]
    wrong = sum(bounds(gains, level).low > 0 for gains in falls)
    assert wrong == int(level * len(signs)), "exact: no more, and none given away"
    assert sum(bounds(gains, level).high < 0 for gains in falls) == wrong


@pytest.mark.slow
def test_a_group_of_subsets_is_as_exact_as_all_of_them():
    draw = random.Random(3)
    wrong = sum(
        bounds([draw.choice((-1, 1)) * draw.random() for _ in range(30)], 0.05).low > 0
        for _ in range(600)
    )
    assert 14 <= wrong <= 46  # 30 expected, within three standard deviations


def test_the_chance_is_that_of_the_sign_test_where_all_changes_are_alike():
    assert chance([1.0] * 6 + [0.0] * 20) == pytest.approx(0.5**6)
    assert chance([1.0] * 5 + [-1.0]) == pytest.approx(7 / 64)


def test_what_rounding_leaves_of_nothing_is_no_gain():
    gains = [0.1, 0.2, -0.3] * 4
    assert bounds(gains, 0.4).low <= 0.0 <= bounds(gains, 0.4).high
    assert chance([0.1, 0.2, -0.3]) == chance([1.0, 2.0, -3.0])


def test_so_few_cases_bound_nothing():
    assert bounds([1.0] * 4, 0.05).low == float("-inf")
    assert bounds([1.0] * 5, 0.05).low == 1.0
    assert (fewest(0.05), fewest(0.5)) == (5, 1)


@given(GAINS, st.integers(0), st.floats(0, 1))
def test_a_gain_that_grows_never_lowers_a_bound(gains: list[float], which: int, more: float):
    grown = [*gains]
    grown[which % len(gains)] += more
    for level in (0.01, 0.1):
        before, after = bounds(gains, level), bounds(grown, level)
        assert after.low >= before.low - 1e-12
        assert after.high >= before.high - 1e-12


@given(GAINS)
def test_the_other_way_round_everything_is_the_other_way_round(gains: list[float]):
    low, high = bounds(gains, 0.1)
    assert bounds([-gain for gain in gains], 0.1) == pytest.approx((-high, -low))
