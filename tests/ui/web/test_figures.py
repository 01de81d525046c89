"""Numbers never have more digits than the evidence."""

from pathlib import Path

import pytest

from kept.ui.web.templates import ago, figure, gained, money, place, share, signed, span


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (0.7083333, 0.53, 0.89, "0.71"),
        (0.7083333, 0.70, 0.716, "0.7083"),
        (0.29166, None, None, "0.292"),
        (1234.5678, None, None, "1,235"),
        (-0.0000001, -0.2, 0.2, "0.00"),
        (1.0, None, None, "1"),
        (None, None, None, "–"),
        (float("inf"), None, None, "–"),
        (-3.14159, None, None, "−3.14"),
    ],
)
def test_a_value_has_the_digits_that_its_interval_leaves(
    value: float | None, low: float | None, high: float | None, shown: str
):
    assert figure(value, low, high) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.25, "+0.250"), (-0.25, "−0.250"), (0.0, "0"), (None, "–")]
)
def test_a_difference_has_its_sign(value: float | None, shown: str):
    assert signed(value) == shown


def test_an_interval_reads_from_end_to_end():
    assert span(-0.021, 0.113) == "−0.021 … +0.113"
    assert span(None, 0.1) == "? … +0.100"
    assert span(None, None) == span(0.2, 0.2) == ""
    assert gained(0.06, 0.021, 0.113) == "+0.060 (+0.021 … +0.113)"
    assert gained(0.075, 0.075, 0.075) == "+0.0750"


def test_a_path_has_room_in_a_line():
    root = Path("/home/somebody/work")
    assert place("/home/somebody/work/race/task.yaml", root) == "race/task.yaml"
    assert place("/home/somebody/work/.kept/runs/2026-x", root) == "run 2026-x"
    assert place("/home/somebody/works/task.yaml", root) == "/home/somebody/works/task.yaml"
    assert place(f"/a/{'b' * 60}/c/task.yaml") == "…/c/task.yaml"
    assert len(place("x" * 500)) <= 60


@pytest.mark.parametrize(
    ("usd", "shown"),
    [(0, "none known"), (0.0000912, "$0.000091"), (0.5, "$0.50"), (12.345, "$12.35")],
)
def test_money_has_two_digits_that_count(usd: float, shown: str):
    assert money(usd) == shown


def test_shares_and_times_read_as_people_say_them():
    assert share(0.617) == "62 %"
    assert ago(0, 90) == "2 min ago"
    assert ago(100, 100.4) == "just now"
