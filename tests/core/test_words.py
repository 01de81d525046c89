"""One of a thing is not many."""

import pytest

from kept.core.budget import Budget, Reservation, Spend, out_of_time, refusal
from kept.core.schedules.round_robin import budget_stop
from kept.core.state import State
from kept.core.text import are, count, dollars_at_most, p_words


@pytest.mark.parametrize(
    ("n", "words"),
    [
        (0, "0 steps"),
        (1, "1 step"),
        (2, "2 steps"),
        (1.0, "1 step"),
        (0.5, "0.5 steps"),
        (2_000_000, "2000000 steps"),
    ],
)
def test_a_count_reads_as_a_person_would_say_it(n: float, words: str):
    assert count(n, "step") == words


def test_a_plural_may_be_spelled_out():
    assert [count(n, "retry", "retries") for n in (1, 2)] == ["1 retry", "2 retries"]


def test_one_is_and_others_are():
    assert [are(n) for n in (0, 1, 2)] == ["are", "is", "are"]


def test_limits_of_one_are_told_in_the_singular():
    rollouts = Budget(max_rollouts=1)
    reason = refusal(rollouts, Spend(rollouts=1), Reservation(), Reservation(rollouts=1))
    assert reason is not None
    assert reason.message == "1 more rollout does not fit: 0 of 1 are left"
    late = out_of_time(Budget(max_minutes=1), 60.0)
    assert late is not None
    assert late.message == "1 minute is used"
    stop = budget_stop(Budget(max_iterations=1), State(next_step=1), 0.0)
    assert stop is not None
    assert stop.message == "the only iteration is used"
    failed = budget_stop(Budget(max_failures=1), State(crashes=1), 0.0)
    assert failed is not None
    assert failed.message == "1 step crashed, the limit"


@pytest.mark.parametrize(
    ("chance", "words"),
    [(0.0, "p < 1e-15"), (1e-320, "p < 1e-15"), (1e-15, "p = 1e-15"), (0.00312, "p = 0.0031")],
)
def test_no_chance_is_zero(chance: float, words: str):
    assert p_words(chance) == words


@pytest.mark.parametrize(
    ("usd", "words"),
    [
        (0.0, "$0.00"),
        (0.0012341, "$0.00124"),
        (0.07, "$0.07"),
        (0.1 + 0.2, "$0.30"),
        (12.341, "$12.35"),
        (1234.561, "$1,234.57"),
        (1e30, "$1,000,000,000,000,000,019,884,624,838,656.00"),
    ],
)
def test_the_most_that_is_paid_is_rounded_up(usd: float, words: str):
    assert dollars_at_most(usd) == words
