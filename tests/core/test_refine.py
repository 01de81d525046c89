"""Refinement: tiers, halves and ends, as the table and the rules of its source have them."""

import pytest

from kept.core.schedules.refine import Caps, clamped, halved, stop_of, tier_of

TABLE = {
    1: "H",
    2: "LH",
    3: "LMH",
    4: "LLMH",
    5: "LLMMH",
    6: "LLMMHH",
    7: "LLLMMHH",
    8: "LLLMMMHH",
    9: "LLLMMMHHH",
    10: "LLLLMMMHHH",
}


@pytest.mark.parametrize("n", TABLE)
def test_tiers_are_those_of_the_table_for_every_number_of_iterations(n: int):
    assert "".join(tier_of(k, n)[0].upper() for k in range(1, n + 1)) == TABLE[n]


@pytest.mark.parametrize("n", range(3, 11))
def test_from_three_iterations_on_every_tier_has_one_and_no_earlier_one_follows(n: int):
    tiers = [tier_of(k, n) for k in range(1, n + 1)]
    order = ["low", "mid", "high"]
    assert sorted(tiers, key=order.index) == tiers
    counts = [tiers.count(tier) for tier in ("low", "mid", "high")]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] >= 1


@pytest.mark.parametrize(("k", "n"), [(0, 3), (4, 3), (1, 0), (-1, 2)])
def test_there_is_no_tier_for_an_iteration_that_is_none(k: int, n: int):
    with pytest.raises(ValueError, match="no iteration"):
        tier_of(k, n)


def caps(*of: int) -> Caps:
    return Caps(*of)


@pytest.mark.parametrize(
    ("seed", "observed", "half"),
    [
        # loops, workers, tokens, tool calls, seconds, depth
        (caps(20, 40, 1_000_000, 600, 3600, 4), 1800, caps(10, 20, 500_000, 300, 900, 4)),
        (caps(1, 1, 1, 1, 3600, 4), 10, caps(1, 1, 1, 1, 60, 4)),
        (caps(1, 1, 10, 1, 3600, 4), 10, caps(1, 1, 5, 1, 60, 4)),
        (caps(12, 10, 200_000, 1500, 600, 4), 100, caps(6, 5, 100_000, 750, 60, 4)),
        (caps(5, 7, 11, 9, 3600, 2), 301, caps(3, 4, 5, 5, 150, 2)),
        # nobody knows how long it took: half of what it might have
        (caps(20, 40, 1_000_000, 600, 3600, 4), 0, caps(10, 20, 500_000, 300, 1800, 4)),
    ],
)
def test_an_iteration_has_half_the_caps_of_the_seed_and_half_its_observed_time(
    seed: Caps, observed: float, half: Caps
):
    assert halved(seed, observed) == half


@pytest.mark.parametrize(
    ("losses", "n", "word"),
    [
        ([0.5, 0.4, 0.3], 3, "max_iterations"),
        ([0.3, 0.4, 0.5], 5, "regression"),
        ([0.3, 0.4, 0.5], 3, "regression"),
        ([0.40, 0.395, 0.394], 5, "plateau"),
        ([0.2683, 0.2683, 0.2683], 5, "plateau"),
        ([0.1 + 0.2, 0.3, 0.1 + 0.2], 5, "plateau"),
        ([0.3, 0.4], 5, None),
        ([0.3, 0.3], 5, "plateau"),
        ([0.1 + 0.2, 0.3], 5, "plateau"),
        ([0.3, 0.4, 0.4], 5, "plateau"),
        ([0.3, 0.305], 5, None),
        ([0.5, 0.4, 0.45, 0.5], 9, "regression"),
        ([0.5, 0.4, 0.45, 0.3], 9, None),
        ([], 3, None),
        ([0.5], 1, "max_iterations"),
    ],
)
def test_iterations_end_by_how_their_losses_move(losses: list[float], n: int, word: str | None):
    assert stop_of(losses, n) == word


def test_iterations_end_when_they_took_twice_the_time_of_the_seed():
    assert stop_of([0.5], 3, seconds=200, seed_seconds=100) == "wall_time_exhausted"
    assert stop_of([0.5], 3, seconds=199, seed_seconds=100) is None
    # also where none of them has left anything
    assert stop_of([], 3, seconds=200, seed_seconds=100) == "wall_time_exhausted"
    assert stop_of([], 3, seconds=0, seed_seconds=100) is None
    # who knows nothing of the seed's time cannot say so
    assert stop_of([0.5], 3, seconds=200) is None
    # the last iteration is the last, however long it took
    assert stop_of([0.5], 1, seconds=200, seed_seconds=100) == "max_iterations"


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (-3, 1), (3, 3), (10, 10), (99, 10)])
def test_a_session_has_one_to_ten_iterations(asked: int, given: int):
    assert clamped(asked) == given
