"""The two rules that track the best apart from the incumbent."""

import pytest

from kept.core.objective import Constraint, Objective
from kept.gates.seed_rules import Follow, Selection
from kept.testing.fakes import CHALLENGER, INCUMBENT, hear
from tests.gates.tables import BEST, CRASH, Cell, Table, judged, purposes

BOUNDED = Objective(bounds=(0.0, 1.0))
LOSS = Objective("loss", "minimize", (0.0, 10.0))


@pytest.mark.parametrize(
    ("incumbent", "best", "challenger", "outcome", "new_best"),
    [
        (0.5, 0.5, 0.6, "keep", True),
        (0.5, 0.5, 0.5, "discard", False),
        (0.5, 0.5, 0.4, "discard", False),
        (0.5, 0.8, 0.6, "keep", False),
        (0.5, 0.8, 0.8, "keep", False),
        (0.5, 0.8, 0.9, "keep", True),
        (0.5, 0.8, 0.5, "discard", False),
    ],
)
def test_selection_keeps_what_beats_the_incumbent_and_tracks_the_best_apart(
    incumbent: float, best: float, challenger: float, outcome: str, new_best: bool
):
    verdict = judged(Selection(), [incumbent], [challenger], BOUNDED, [best])
    assert (verdict.outcome, verdict.best) == (outcome, new_best)


def test_selection_asks_about_all_three_once():
    rows = {INCUMBENT: [0.5], CHALLENGER: [0.5], BEST: [0.5]}
    asked = purposes(hear(Selection(), Table(rows).matter()))
    assert asked == [(INCUMBENT, "decide"), (BEST, "decide"), (CHALLENGER, "decide")]
    asked = purposes(hear(Selection(), Table({INCUMBENT: [0.5], CHALLENGER: [0.5]}).matter()))
    assert asked == [(INCUMBENT, "decide"), (CHALLENGER, "decide")]


def test_selection_says_by_how_much():
    verdict = judged(Selection(), [0.5], [0.75], BOUNDED)
    assert verdict.numbers == {"gain": 0.25}
    assert verdict.reason.endswith("`score` is now 0.75, was 0.5; a new best")
    assert judged(Selection(), [0.5], [0.5], BOUNDED).reason.startswith("tied")
    assert judged(Selection(), [0.5], [0.25], BOUNDED).reason.startswith("worse")


def test_selection_does_not_keep_what_breaks_a_constraint():
    objective = Objective(bounds=(0.0, 1.0), constraints=(Constraint("cost", "<", 1),))
    new: Cell = {"score": 1.0, "cost": 2.0}
    assert judged(Selection(), [0.5], [new], objective).code == "constraint"


def test_selection_keeps_what_runs_over_what_does_not():
    verdict = judged(Selection(), [CRASH], [0.1])
    assert (verdict.outcome, verdict.best) == ("keep", True)
    assert judged(Selection(), [0.1], [CRASH]).outcome == "crash"


@pytest.mark.parametrize("gate", [Selection(), Follow()], ids=lambda gate: gate.name)
def test_a_best_that_an_outage_hides_is_not_beaten(gate: Selection | Follow):
    verdict = judged(gate, [0.1] * 5, [0.2] * 5, BOUNDED, [None, 0.9, 0.9, 0.9, 0.9])
    assert (verdict.outcome, verdict.code, verdict.best) == ("skip", "indecisive", False)
    assert "of the best" in verdict.reason


@pytest.mark.parametrize(
    ("best", "challenger", "new_best"),
    [(5.0, 4.0, True), (5.0, 5.0, False), (5.0, 6.0, False), (0.0, 0.0, False)],
)
def test_follow_always_goes_on_and_promotes_only_a_strictly_lower_loss(
    best: float, challenger: float, new_best: bool
):
    verdict = judged(Follow(), [9.0], [challenger], LOSS, [best])
    assert (verdict.outcome, verdict.best) == ("keep", new_best)


def test_follow_compares_with_the_best_and_not_with_the_incumbent():
    assert not judged(Follow(), [9.0], [8.0], LOSS, [5.0]).best
    assert judged(Follow(), [1.0], [4.0], LOSS, [5.0]).best


def test_follow_does_not_go_on_from_what_never_ran():
    assert judged(Follow(), [5.0], [CRASH], LOSS).outcome == "crash"
    assert judged(Follow(), [5.0], [None], LOSS).outcome == "skip"


def test_follow_counts_a_part_that_failed_at_the_worst_value():
    verdict = judged(Follow(), [5.0, 5.0], [0.0, CRASH], LOSS)
    assert (verdict.outcome, verdict.best) == ("keep", False)
    verdict = judged(Follow(), [6.0, 6.0], [0.0, CRASH], LOSS)
    assert (verdict.outcome, verdict.best) == ("keep", True)


def test_follow_takes_the_first_that_runs_as_the_best():
    verdict = judged(Follow(), [CRASH], [4.0], Objective("loss", "minimize"))
    assert (verdict.outcome, verdict.best) == ("keep", True)
