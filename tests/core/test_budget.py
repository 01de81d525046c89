"""What does not fit is refused before it is started, and what fits to the last cent is not."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.budget import Budget, Reservation, Spend, StopKind, StopReason, out_of_time, refusal


def refused(budget: Budget, spent: Spend, reserved: Reservation, worst: Reservation) -> str | None:
    reason = refusal(budget, spent, reserved, worst)
    return reason.kind if reason else None


def test_without_limits_everything_fits():
    assert refused(Budget(), Spend(10**9, usd=1e9), Reservation(), Reservation(10**9, 1e9)) is None


@pytest.mark.parametrize(
    ("spent", "reserved", "worst", "fits"),
    [(0, 0, 10, True), (0, 0, 11, False), (5, 3, 2, True), (5, 3, 3, False), (10, 0, 0, True)],
)
def test_rollouts_spent_set_aside_and_wanted_fit_together_or_not(
    spent: int, reserved: int, worst: int, fits: bool
):
    found = refused(
        Budget(max_rollouts=10), Spend(spent), Reservation(reserved), Reservation(worst)
    )
    assert found == (None if fits else "rollouts")


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.integers(1, 2000), st.integers(1, 99))
def test_sums_of_cents_fit_a_budget_of_as_many_cents(calls: int, cents: int):
    price = cents / 100
    spent = sum(price for _ in range(calls))
    budget = Budget(max_usd=round((calls + 1) * price, 2))
    assert refused(budget, Spend(usd=spent), Reservation(), Reservation(1, price)) is None
    assert refused(budget, Spend(usd=spent), Reservation(), Reservation(1, price + 0.01)) == "usd"


def test_ten_dimes_are_a_dollar():
    spent = Spend()
    for _ in range(9):
        spent += Spend(usd=0.1)
    assert spent.usd != 0.9
    assert refused(Budget(max_usd=1.0), spent, Reservation(), Reservation(1, 0.1)) is None


def test_a_refusal_says_what_is_left():
    reason = refusal(Budget(max_rollouts=10), Spend(6), Reservation(1), Reservation(5))
    assert reason is not None
    assert reason.message == "5 more rollouts do not fit: 3 of 10 are left"
    reason = refusal(Budget(max_usd=1.0), Spend(usd=0.75), Reservation(), Reservation(1, 0.5))
    assert reason is not None
    assert reason.message == "up to $0.5000 more does not fit: $0.2500 of $1.00 is left"


def test_time_is_up_when_the_minutes_are_used():
    assert out_of_time(Budget(), 1e9) is None
    assert out_of_time(Budget(max_minutes=2), 119.9) is None
    late = out_of_time(Budget(max_minutes=2), 120.0)
    assert late is not None
    assert (late.kind, late.message) == ("minutes", "2 minutes are used")


@pytest.mark.parametrize(
    ("kind", "resumable"),
    [("interrupted", True), ("error", True), ("iterations", False), ("usd", False)],
)
def test_a_run_that_was_cut_short_says_so(kind: StopKind, resumable: bool):
    assert StopReason(kind, "why").resumable == resumable


def test_sums_add_up_field_by_field():
    one = Spend(1, 2, 3, 4, 5, 6, 7, 0.5, 0.25)
    assert one + one == Spend(2, 4, 6, 8, 10, 12, 14, 1.0, 0.5)
    assert one + Spend() == one
