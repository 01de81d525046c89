"""The rule of the artifact loop: crash, then constraints, then the metric, then tie-breakers."""

import pytest

from kept.core.objective import Constraint, Objective, TieBreaker
from kept.core.proposal import Ask
from kept.core.rollout import Pair
from kept.core.verdict import Verdict
from kept.gates.seed_rules import Strict
from kept.testing.fakes import CHALLENGER, INCUMBENT, hear
from tests.gates.tables import CRASH, Cell, Table, judged

MAXIMIZE = Objective("score")
BOUNDED = Objective("score", bounds=(0.0, 1.0))
MINIMIZE = Objective("seconds", "minimize")
SHORT = TieBreaker("length", "lower")
CLEAR = TieBreaker("clarity", "higher")


def test_it_asks_for_one_pass_of_each_side_over_the_deciding_cases():
    heard = hear(Strict(), Table({INCUMBENT: [0.0, 0.0], CHALLENGER: [1.0, 1.0]}).matter())
    pairs = (Pair("h0", 0), Pair("h1", 0))
    assert heard.asks == (Ask(INCUMBENT, pairs, "decide"), Ask(CHALLENGER, pairs, "decide"))


def test_repeats_ask_for_as_many_passes():
    heard = hear(Strict(repeats=2), Table({INCUMBENT: [0.0], CHALLENGER: [1.0]}).matter())
    assert heard.asks[0].pairs == (Pair("h0", 0), Pair("h0", 1))


def test_what_is_known_is_not_asked_for_again():
    matter = Table({INCUMBENT: [0.0], CHALLENGER: [1.0]}).matter()
    view = matter.view({(INCUMBENT, "decide"): (Pair("h0", 0),)})
    assert Strict().decide(view) == (Ask(CHALLENGER, (Pair("h0", 0),), "decide"),)


@pytest.mark.parametrize(
    ("objective", "old", "new", "outcome"),
    [
        (MAXIMIZE, 0.5, 0.5000001, "keep"),
        (MAXIMIZE, 0.5, 0.5, "discard"),
        (MAXIMIZE, 0.5, 0.4999999, "discard"),
        (MAXIMIZE, -2.0, -1.0, "keep"),
        (MINIMIZE, 10.0, 9.0, "keep"),
        (MINIMIZE, 10.0, 10.0, "discard"),
        (MINIMIZE, 10.0, 11.0, "discard"),
    ],
)
def test_it_keeps_what_is_strictly_better(
    objective: Objective, old: float, new: float, outcome: str
):
    verdict = judged(Strict(), [old], [new], objective)
    assert (verdict.outcome, verdict.best) == (outcome, outcome == "keep")


def test_it_compares_means_over_all_cases():
    assert judged(Strict(), [0.0, 1.0, 0.5], [1.0, 1.0, 0.0]).outcome == "keep"
    assert judged(Strict(), [0.0, 1.0, 0.5], [1.0, 0.5, 0.0]).outcome == "discard"


def test_the_reason_and_the_numbers_are_in_the_units_of_the_metric():
    verdict = judged(Strict(), [0.5], [0.75])
    assert verdict.reason == "strictly better: `score` 0.5 → 0.75"
    assert verdict.numbers == {"incumbent": 0.5, "challenger": 0.75, "gain": 0.25}
    assert judged(Strict(), [9.0], [9.5], MINIMIZE).reason == "worse: `seconds` 9 → 9.5"
    assert judged(Strict(), [9.0], [9.0], MINIMIZE).reason == "tied: `seconds` 9 → 9"


@pytest.mark.parametrize("objective", [MAXIMIZE, BOUNDED])
def test_a_challenger_that_never_runs_is_a_crash(objective: Objective):
    verdict = judged(Strict(), [0.0, 0.0], [CRASH, CRASH], objective)
    assert verdict.outcome == "crash"
    assert "it crashed" in verdict.words
    assert "it crashed" not in verdict.reason


def test_a_crash_comes_before_constraints():
    objective = Objective(constraints=(Constraint("violations", "==", 0),))
    assert judged(Strict(), [0.0], [CRASH], objective).outcome == "crash"


@pytest.mark.parametrize(
    ("constraint", "measured", "holds"),
    [
        (Constraint("x", "==", 0), 0.0, True),
        (Constraint("x", "==", 0), 1.0, False),
        (Constraint("x", "!=", 0), 1.0, True),
        (Constraint("x", "<", 5), 5.0, False),
        (Constraint("x", "<=", 5), 5.0, True),
        (Constraint("x", ">", 5), 5.0, False),
        (Constraint("x", ">=", 5), 5.0, True),
    ],
)
def test_a_broken_constraint_blocks_a_keep_however_good_the_score(
    constraint: Constraint, measured: float, holds: bool
):
    objective = Objective(constraints=(constraint,))
    cells = [{"score": 0.0, "x": 0.0}], [{"score": 1.0, "x": measured}]
    verdict = judged(Strict(), *cells, objective)
    assert verdict.outcome == ("keep" if holds else "discard")
    assert verdict.code == ("judged" if holds else "constraint")
    if not holds:
        assert str(constraint) in verdict.reason


def test_constraints_are_asked_of_the_challenger_only():
    objective = Objective(constraints=(Constraint("x", "==", 0),))
    cells = [{"score": 0.0, "x": 9.0}], [{"score": 1.0, "x": 0.0}]
    assert judged(Strict(), *cells, objective).outcome == "keep"


def test_a_constraint_on_a_metric_that_is_not_emitted_does_not_hold():
    objective = Objective(constraints=(Constraint("x", "<=", 9),))
    verdict = judged(Strict(), [0.0], [1.0], objective)
    assert (verdict.outcome, verdict.code) == ("discard", "constraint")
    assert "not emitted" in verdict.reason


def test_a_constraint_must_be_shown_to_hold_by_every_rollout():
    objective = Objective(bounds=(0.0, 1.0), constraints=(Constraint("x", "<=", 9),))
    new: list[Cell] = [{"score": 1.0, "x": 1.0}, {"score": 1.0}]
    assert judged(Strict(), [0.0, 0.0], new, objective).code == "constraint"
    new = [{"score": 1.0, "x": 1.0}, CRASH]
    assert judged(Strict(), [0.0, 0.0], new, objective).code == "constraint"


@pytest.mark.parametrize(
    ("breaker", "old", "new", "outcome"),
    [
        (SHORT, 10.0, 9.0, "keep"),
        (SHORT, 10.0, 10.0, "discard"),
        (SHORT, 10.0, 11.0, "discard"),
        (CLEAR, 0.5, 0.6, "keep"),
        (CLEAR, 0.5, 0.5, "discard"),
        (CLEAR, 0.5, 0.4, "discard"),
    ],
)
def test_a_tie_is_kept_only_if_a_tie_breaker_is_better(
    breaker: TieBreaker, old: float, new: float, outcome: str
):
    objective = Objective(tie_breakers=(breaker,))
    cells = [{"score": 0.5, breaker.metric: old}], [{"score": 0.5, breaker.metric: new}]
    verdict = judged(Strict(), *cells, objective)
    assert (verdict.outcome, verdict.best) == (outcome, outcome == "keep")
    assert verdict.reason.startswith("tied")


def test_the_first_tie_breaker_that_differs_decides():
    objective = Objective(tie_breakers=(SHORT, CLEAR))
    same: Cell = {"score": 0.5, "length": 10.0, "clarity": 0.5}
    longer_and_clearer: Cell = {"score": 0.5, "length": 11.0, "clarity": 0.9}
    as_long_and_clearer: Cell = {"score": 0.5, "length": 10.0, "clarity": 0.9}
    assert judged(Strict(), [same], [longer_and_clearer], objective).outcome == "discard"
    assert judged(Strict(), [same], [as_long_and_clearer], objective).outcome == "keep"


def test_a_tie_breaker_that_nobody_emits_breaks_no_tie():
    assert judged(Strict(), [0.5], [0.5], Objective(tie_breakers=(SHORT,))).outcome == "discard"


def test_tie_breakers_do_not_matter_when_the_score_differs():
    objective = Objective(tie_breakers=(SHORT,))
    old: Cell = {"score": 0.5, "length": 10.0}
    assert judged(Strict(), [old], [{"score": 0.4, "length": 1.0}], objective).outcome == "discard"
    assert judged(Strict(), [old], [{"score": 0.6, "length": 99.0}], objective).outcome == "keep"


@pytest.mark.parametrize(
    ("gain", "shorter", "outcome"),
    [
        (0.125, False, "discard"),
        (0.125, True, "keep"),
        (-0.125, True, "keep"),
        (-0.125, False, "discard"),
        (0.25, False, "keep"),
        (-0.25, True, "discard"),
    ],
)
def test_inside_the_tolerance_it_is_a_tie(gain: float, shorter: bool, outcome: str):
    objective = Objective(tie_breakers=(SHORT,), tie_tolerance=0.125)
    old: Cell = {"score": 0.5, "length": 10.0}
    new: Cell = {"score": 0.5 + gain, "length": 9.0 if shorter else 11.0}
    assert judged(Strict(), [old], [new], objective).outcome == outcome


def test_a_rollout_that_failed_is_not_a_short_one():
    objective = Objective(bounds=(0.0, 1.0), tie_breakers=(SHORT,))
    rambling: Cell = {"score": 0.0, "length": 1000.0}
    good: Cell = {"score": 1.0, "length": 10.0}
    assert judged(Strict(), [good, rambling], [good, CRASH], objective).outcome == "discard"


def test_a_failure_counts_as_the_worst_value_where_there_is_one():
    nine = [0.5] * 9
    assert judged(Strict(), [0.5] * 10, [*nine, CRASH], BOUNDED).outcome == "discard"
    assert judged(Strict(), [0.1] * 10, [*nine, CRASH], BOUNDED).outcome == "keep"
    slow = Objective("seconds", "minimize", (0.0, 60.0))
    assert judged(Strict(), [10.0, 10.0], [1.0, CRASH], slow).outcome == "discard"
    assert judged(Strict(), [40.0, 40.0], [1.0, CRASH], slow).outcome == "keep"


def test_a_failure_without_a_worst_value_cannot_be_judged():
    verdict = judged(Strict(), [0.1] * 10, [0.5] * 9 + [CRASH], MAXIMIZE)
    assert (verdict.outcome, verdict.code) == ("skip", "unscored")
    assert "no declared bounds" in verdict.reason


def test_an_incumbent_that_fails_loses_to_a_challenger_that_does_not():
    for objective in (MAXIMIZE, BOUNDED):
        assert judged(Strict(), [CRASH, CRASH], [0.0, 0.1], objective).outcome == "keep"
    assert judged(Strict(), [0.9, CRASH], [0.5, 0.5], BOUNDED).outcome == "keep"


def test_one_failure_of_the_incumbent_does_not_make_a_worse_challenger_win():
    # without bounds the failure has no value: the far better incumbent used to lose by it
    verdict = judged(Strict(), [*[0.9] * 9, CRASH], [0.01] * 10, MAXIMIZE)
    assert (verdict.outcome, verdict.code) == ("skip", "unscored")


@pytest.mark.parametrize(("missing", "outcome"), [(1, "keep"), (2, "skip"), (10, "skip")])
@pytest.mark.parametrize("side", ["incumbent", "challenger"])
def test_under_nine_answers_in_ten_it_cannot_tell(missing: int, outcome: str, side: str):
    gap: list[Cell] = [None] * missing
    rows: dict[str, list[Cell]] = {INCUMBENT: [0.25] * 10, CHALLENGER: [0.75] * 10}
    rows[side] = [*gap, *rows[side][missing:]]
    verdict = judged(Strict(), rows[INCUMBENT], rows[CHALLENGER])
    assert verdict.outcome == outcome
    assert verdict.code == ("judged" if outcome == "keep" else "indecisive")
    if outcome == "skip":
        assert f"{missing} of 10 rollouts of the {side}" in verdict.reason
        assert "503" in verdict.words


def test_what_is_missing_on_one_side_is_left_out_on_both():
    # without the case that the outage hides, the two score the same
    hard: list[Cell] = [0.0, *[1.0] * 9]
    hidden: list[Cell] = [None, *[1.0] * 9]
    assert judged(Strict(), hard, hidden).reason == "tied: `score` 1 → 1, on 9 of 10 cases"
    assert judged(Strict(), hidden, hard).reason == "tied: `score` 1 → 1, on 9 of 10 cases"


@pytest.mark.parametrize(("least", "outcome"), [(-0.3, "discard"), (-0.25, "keep"), (None, "keep")])
def test_a_row_of_ties_does_not_lead_away_from_the_best(least: float | None, outcome: str):
    objective = Objective(tie_tolerance=0.125, tie_breakers=(TieBreaker("length"),))
    old, new = {"score": 0.2, "length": 2.0}, {"score": 0.15, "length": 1.0}
    table = Table({INCUMBENT: [old], CHALLENGER: [new]}, objective=objective)
    view = hear(Strict(), table.matter()).views[-1]
    verdict = Strict().decide(view._replace(least=least))
    assert isinstance(verdict, Verdict)
    assert verdict.outcome == outcome


def test_a_tie_breaker_that_the_challenger_does_not_emit_is_lost():
    objective = Objective(tie_breakers=(TieBreaker("cost"), TieBreaker("length")))
    old = {"score": 0.5, "cost": 1.0, "length": 2.0}
    table = Table(
        {INCUMBENT: [old], CHALLENGER: [{"score": 0.5, "length": 1.0}]}, objective=objective
    )
    assert hear(Strict(), table.matter()).verdict.outcome == "discard"
