"""Near misses: when they are raced as one, and what is left of them afterwards."""

from kept.core.proposal import NearMiss, raced, ripe, strongest

POOL = (NearMiss(1, 0.1), NearMiss(2, 0.3), NearMiss(5, 0.2))


def test_a_pool_is_ripe_when_it_is_worth_it_or_large():
    assert not ripe(POOL, goal=0.7, most=4)
    assert ripe(POOL, goal=0.6, most=4)
    assert ripe(POOL, goal=9.0, most=3)
    assert not ripe((), goal=0.1, most=1)


def test_what_was_kept_or_lost_leaves_the_pool():
    assert raced(POOL, (1, 2), kept=True, gain=0.2) == (NearMiss(5, 0.2),)
    assert raced(POOL, (2,), kept=False, gain=-0.1) == (NearMiss(1, 0.1), NearMiss(5, 0.2))


def test_of_what_came_to_nothing_together_the_best_is_raced_alone():
    left = raced(POOL, (1, 2), kept=False, gain=-0.1)
    assert left == (NearMiss(5, 0.2), NearMiss(2, 0.3, alone=True))
    assert ripe(left, goal=9.0, most=9)
    assert raced(left, (2,), kept=False, gain=0.1) == (NearMiss(5, 0.2),)


def test_of_what_fell_short_of_proof_the_better_half_stays():
    assert raced(POOL, (1, 2, 5), kept=False, gain=0.1) == (NearMiss(2, 0.3),)
    assert raced(POOL, (2,), kept=False, gain=0.1) == (NearMiss(1, 0.1), NearMiss(5, 0.2))


def test_each_case_knows_the_near_miss_that_does_best_on_it():
    a = NearMiss(1, 0.1, (("c0", -1.0), ("c1", -0.5)))
    b = NearMiss(2, 0.1, (("c0", -1.0), ("c1", -0.9), ("c2", 0.0)))
    assert strongest((a, b)) == {"c0": a, "c1": b, "c2": b}
    assert strongest((NearMiss(3, 0.2),)) == {}
