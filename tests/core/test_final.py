"""Who is in a final, and what the pool is after it."""

from kept.core.near_misses import AHEAD, ENTERED, finalists, settled
from kept.core.proposal import ClosedStep, NearMiss, Turn
from kept.core.verdict import Verdict, VerdictCode


def closed(
    step: int, incumbent: str = "seed", code: VerdictCode = "near miss", *, entered: bool = True
) -> ClosedStep:
    verdict = Verdict("discard", "", code, numbers={ENTERED: 1.0} if entered else {})
    return ClosedStep(step, Turn("variants"), incumbent, f"c{step}", None, (), verdict)


POOL = (NearMiss(1, 0.1), NearMiss(3, 0.3), NearMiss(4, 0.2))
STEPS = tuple(closed(miss.step) for miss in POOL)


def test_in_a_final_is_who_entered_against_the_incumbent_and_was_not_dropped():
    rows = [
        closed(0),
        closed(1, code="judged"),
        closed(2, incumbent="another"),
        closed(3, entered=False),
        closed(4),
    ]
    assert [step.step for step in finalists(rows, "seed")] == [0, 4]


def test_after_a_final_the_winner_is_taken_up_and_nobody_else():
    assert settled(POOL, STEPS, (3,), {AHEAD: 2.0}) == (NearMiss(4, 0.2, alone=True),)


def test_a_final_that_is_won_or_lost_leaves_nobody():
    assert settled(POOL, STEPS, (3,), {"alpha_promote": 0.01}) == ()


def test_who_was_taken_up_as_the_winner_does_not_hand_it_on():
    pool = (NearMiss(4, 0.2, alone=True),)
    assert settled(pool, STEPS, (4,), {AHEAD: 1.0}) == ()
