"""Where the true gain lies, by cases that were seen and those that nobody saw."""

from collections.abc import Iterator
from itertools import product
from math import comb, inf
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kept.gates._common import interval_figures
from kept.gates._statistics import Interval, interval, risk_of

CHANCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95, 0.98, 1.0)

gains = st.lists(st.floats(-1, 1) | st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=30)


def holds(shown: Interval, true: float) -> bool:
    return shown.low - 1e-9 <= true <= shown.high + 1e-9


def outcomes(cases: int) -> Iterator[tuple[int, int, Interval]]:
    """Every number of cases that went up and down, with what is then shown."""
    for up, down in product(range(cases + 1), repeat=2):
        if up + down <= cases:
            found = [1.0] * up + [-1.0] * down + [0.0] * (cases - up - down)
            yield up, down, interval(found, 1.0)


def test_an_interval_holds_its_mean_and_one_case_says_nothing():
    shown = interval([0.1, 0.3, 0.2, 0.4], 1.0)
    assert shown.low < shown.mean < shown.high
    assert shown.mean == pytest.approx(0.25)
    assert interval([0.5], None)[1:] == (-inf, inf)
    assert interval([0.5], 1.0) == (0.5, -1.0, 1.0)
    assert interval([], 1.0) == (0.0, -1.0, 1.0)
    assert risk_of([0.5]) == 1.0
    assert risk_of([0.2] * 10) == 0.5**10
    assert risk_of([-0.2] * 10) == 1.0


def test_an_interval_does_not_go_beyond_what_a_gain_can_be():
    found = [1.0, 0.0, 1.0, 0.0]
    assert interval(found, None).high > 1
    assert interval(found, 1.0).high == 1.0


def test_of_a_metric_without_bounds_it_is_students():
    shown = interval([1.0, 2.0, 3.0, 4.0, 5.0], None)
    assert shown == pytest.approx((3.0, 3 - 2.7764 * 0.5**0.5, 3 + 2.7764 * 0.5**0.5), abs=1e-4)


@pytest.mark.parametrize(
    ("found", "low", "high"),
    [
        ([1.0] * 6, 0.207, 1.0),
        ([-1.0] * 6, -1.0, -0.207),
        ([0.5] * 6, 0.103, 0.647),
        # 1 - 0.025 ** (1/6): so many cases may yet do anything
        ([0.0] * 6, -0.459, 0.459),
        ([1.0] * 100, 0.947, 1.0),
        ([1.0] * 16 + [-1.0] + [0.0] * 15, 0.236, 0.647),
    ],
)
def test_cases_that_agree_leave_room_for_others(found: list[float], low: float, high: float):
    assert interval(found, 1.0) == pytest.approx((fmean(found), low, high), abs=6e-4)


def test_rounding_is_no_spread():
    almost = [0.1 + 0.2, 0.3] * 3
    assert interval(almost, None).ends is False
    assert interval([5e-17, -5e-17, 0.0], 1.0) == pytest.approx(interval([0.0] * 3, 1.0))


def test_what_nothing_bounds_has_no_interval_and_says_so():
    shown = interval([3.0] * 6, None)
    assert str(shown) == "+3.000 (no interval: nothing shows how cases differ)"
    assert interval_figures(shown) == {"gain": 3.0}


@pytest.mark.parametrize("cases", [6, 20])
def test_an_interval_of_pass_or_fail_holds_the_truth_as_often_as_it_says(cases: int):
    """Exactly: every outcome counts by its chance."""
    every, shares = list(outcomes(cases)), list[float]()
    for better, worse in product(CHANCES, repeat=2):
        alike = 1 - better - worse
        if alike > -1e-9:
            alike = max(0.0, alike)
            shares.append(
                sum(
                    comb(cases, up)
                    * comb(cases - up, down)
                    * better**up
                    * worse**down
                    * alike ** (cases - up - down)
                    for up, down, shown in every
                    if holds(shown, better - worse)
                )
            )
    assert fmean(shares) > 0.95
    assert min(shares) > 0.92


@pytest.mark.parametrize(("now", "was"), [(0.95, 0.1), (0.9, 0.05), (0.97, 0.0)])
def test_an_interval_of_a_few_passes_holds_the_truth_as_often_as_it_says(now: float, was: float):
    """Gains of thirds: nearly all cases agree, and those that do not say most."""
    chance, tries = Random(97), 600

    def passed(share: float) -> float:
        """Of three draws of a case, which mostly passes or mostly fails."""
        odds = chance.betavariate(share, 1 - share) if share else 0.0
        return sum(chance.random() < odds for _ in range(3)) / 3

    worlds = ([passed(now) - passed(was) for _ in range(10)] for _ in range(tries))
    assert sum(holds(interval(found, 1.0), now - was) for found in worlds) > 0.94 * tries


def test_an_interval_that_reaches_nothing_is_not_of_what_is_all_but_certain():
    """As many cases as would prove it that all gain the same."""
    for cases in range(5, 40):
        assert interval([0.1] * cases, 1.0).low > 0


@given(gains, st.floats(1, 100))
def test_an_interval_holds_the_mean_and_no_more_than_the_scale(found: list[float], scale: float):
    shown = interval(found, scale)
    assert -scale <= shown.low <= shown.mean <= shown.high <= scale


@given(gains)
def test_an_interval_turns_round_with_its_gains(found: list[float]):
    turned = interval([-gain for gain in found], 1.0)
    shown = interval(found, 1.0)
    assert turned == pytest.approx((-shown.mean, -shown.high, -shown.low), abs=1e-9)


@given(st.floats(-1, 1), st.integers(2, 40))
def test_more_cases_that_agree_narrow_an_interval(gain: float, cases: int):
    wide, narrow = (interval([gain] * n, 1.0) for n in (cases, cases + 1))
    assert wide.low <= narrow.low + 1e-9
    assert narrow.high <= wide.high + 1e-9
    assert wide.high - wide.low > 0


def test_an_interval_holds_its_mean_also_at_the_end_of_the_scale():
    """A mean of equal gains may be a rounding above the scale."""
    shown = interval([0.1] * 3, 0.1)
    assert shown.low <= shown.mean <= shown.high
    assert shown.mean > 0.1, "else this tests nothing"
