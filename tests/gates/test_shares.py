"""The exact bound for a share, against what can be reckoned by hand and drawn."""

import random
from math import comb

import pytest

from kept.gates._statistics import chance_of, share_at_most


def test_a_chance_is_the_sum_over_all_ways_to_draw_so_many():
    by_hand = sum(comb(20, n) * 0.3**n * 0.7 ** (20 - n) for n in range(5))
    assert chance_of(4, 20, 0.3) == pytest.approx(by_hand)
    assert chance_of(20, 20, 0.3) == 1.0
    assert (chance_of(3, 20, 0.0), chance_of(3, 20, 1.0)) == (1.0, 0.0)
    # where one power after the other would be nothing
    assert chance_of(1000, 20_000, 0.05) == pytest.approx(0.5, abs=0.02)


def test_where_none_was_seen_the_bound_is_the_root_of_the_risk():
    assert share_at_most(0, 50, 0.01) == pytest.approx(1 - 0.01 ** (1 / 50))
    assert share_at_most(50, 50, 0.01) == 1.0


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
def test_the_true_share_is_above_the_bound_no_more_often_than_the_risk(share: float):
    drawn = random.Random(f"{share}")
    bounds = [share_at_most(seen, 60, 0.05) for seen in range(61)]
    rows = (sum(drawn.random() < share for _ in range(60)) for _ in range(2000))
    above = sum(bounds[seen] < share for seen in rows)
    assert above <= 0.05 * 2000 + 30, "three errors of 2,000 draws"
