"""One place knows directions; everywhere else lower is better."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.objective import Constraint, Direction, Objective, Penalty
from kept.core.rollout import Pair
from kept.core.score import Finding, Outcome, Score, Tally, summarize, usable
from tests.gates.tables import CRASH, OUTAGE

UP = Objective("score", "maximize", (0.0, 1.0))
DOWN = Objective("seconds", "minimize", (0.0, 60.0))
FREE = Objective("score")


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.sampled_from(("maximize", "minimize")), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_the_better_value_has_the_lower_loss(direction: Direction, one: float, two: float):
    objective = Objective("m", direction)
    better = one > two if direction == "maximize" else one < two
    assert (objective.loss({"m": one}) < objective.loss({"m": two})) == better
    assert objective.value(objective.loss({"m": one})) == one


def test_a_loss_of_zero_is_shown_as_zero():
    assert math.copysign(1.0, UP.value(UP.loss({"score": 0.0}))) == 1.0


def test_the_worst_value_is_the_bad_end_of_the_bounds():
    assert UP.worst_loss == 0.0
    assert DOWN.worst_loss == 60.0
    assert FREE.worst_loss is None
    assert max(UP.loss({"score": value}) for value in (0.0, 0.5, 1.0)) == UP.worst_loss


def test_measures_inside_the_bounds_have_no_fault():
    for value in (0.0, 0.5, 1.0):
        assert UP.fault({"score": value, "other": math.nan}) is None
    assert FREE.fault({"score": -1e9}) is None


def test_a_metric_that_is_not_emitted_is_nobodys_fault_and_stays_broken():
    fault = UP.fault({"points": 1.0})
    assert fault is not None
    assert (fault.kind, fault.blame) == ("harness", "infrastructure")
    assert not fault.retryable
    assert "`points`" in fault.message
    nothing = UP.fault({})
    assert nothing is not None
    assert "nothing" in nothing.message


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e200, -1e200, 10**400])
def test_a_value_that_is_no_number_to_sum_up_is_the_candidates_fault(value: float):
    for objective in (UP, FREE):
        fault = objective.fault({"score": value})
        assert fault is not None
        assert (fault.kind, fault.blame) == ("parse", "candidate")


@pytest.mark.parametrize("value", [-0.001, 1.001, 100])
def test_a_value_outside_its_bounds_means_that_the_bounds_or_the_scorer_are_wrong(value: float):
    fault = UP.fault({"score": value})
    assert fault is not None
    assert (fault.kind, fault.blame) == ("harness", "infrastructure")
    assert "outside its bounds 0 … 1" in fault.message


def test_a_constraint_reads_as_it_was_written():
    assert str(Constraint("tokens", "<=", 500)) == "tokens <= 500"


def test_measures_that_cannot_be_summed_up_are_left_out_and_named():
    score = Score({"score": 0.5, "ratio": math.nan, "cost": math.inf}, (Finding("seen"),))
    cleaned = usable(score)
    assert cleaned.metrics == {"score": 0.5}
    assert [finding.text for finding in cleaned.findings] == [
        "seen",
        "`ratio` is nan, left out",
        "`cost` is inf, left out",
    ]
    fine = Score({"score": 0.5})
    assert usable(fine) is fine


def summed(objective: Objective, *cells: tuple[str, int, Outcome]):
    pairs = [(Pair(case, repeat), outcome) for case, repeat, outcome in cells]
    return summarize("id", "decide", pairs, objective)


def test_every_case_weighs_the_same_however_often_it_was_repeated():
    often = [("a", n, Outcome({"score": 1.0})) for n in range(9)]
    found = summed(UP, *often, ("b", 0, Outcome({"score": 0.0})))
    assert found.loss == -0.5
    assert found.cases["a"] == Tally(9, -9.0, 9.0)
    assert found.repeats[0] == Tally(2, -1.0, 1.0)
    assert found.metric("score") == 0.9
    assert found.metric("other") is None


def test_a_failure_of_the_candidate_counts_at_the_worst_value():
    found = summed(DOWN, ("a", 0, Outcome({"seconds": 10.0})), ("b", 0, Outcome(failure=CRASH)))
    assert (found.loss, found.failed, found.unscored, found.missing) == (35.0, 1, 0, 0)
    assert found.cases["b"] == Tally(1, 60.0, 3600.0, 1)
    assert found.metrics["seconds"].n == 1
    assert found.first_failure == "b: it crashed"
    assert found.coverage == 1.0


def test_a_failure_without_a_worst_value_is_counted_but_not_summed_up():
    found = summed(FREE, ("a", 0, Outcome({"score": 1.0})), ("b", 0, Outcome(failure=CRASH)))
    assert (found.loss, found.failed, found.unscored) == (None, 1, 1)
    assert "b" not in found.cases


def test_what_an_outage_left_open_is_missing():
    found = summed(UP, ("a", 0, Outcome({"score": 1.0})), ("b", 0, Outcome(failure=OUTAGE)))
    assert (found.loss, found.missing, found.failed, found.asked) == (-1.0, 1, 0, 2)
    assert found.coverage == 0.5


def test_nothing_asked_is_nothing_known():
    found = summed(UP)
    assert (found.loss, found.coverage) == (None, 0.0)
    assert summed(UP, ("a", 0, Outcome(failure=OUTAGE))).loss is None


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_a_tally_knows_mean_and_spread(values: list[float]):
    tally = Tally(len(values), sum(values), sum(v * v for v in values))
    mean = sum(values) / len(values)
    assert tally.mean == pytest.approx(mean, abs=1e-6)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
    assert tally.std == pytest.approx(spread, abs=1.0)
    assert Tally(3, 0.3, 0.03).std >= 0.0


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.sampled_from((UP, DOWN)),
    st.lists(st.floats(0.0, 1.0) | st.sampled_from((0.0, -0.0, 0.1)), min_size=1, max_size=30),
)
def test_what_ran_once_is_summed_up_to_the_bit_as_anything_else_is(
    objective: Objective, values: list[float]
):
    metric = objective.metric
    cells = [(f"case-{n}", 3, Outcome({metric: value})) for n, value in enumerate(values)]
    more = [(case, n, Outcome({**o.metrics, "other": 1.0})) for case, n, o in cells]
    plain, other = summed(objective, *cells), summed(objective, *more)
    assert plain == replace(other, metrics={metric: other.metrics[metric]})
    assert plain.loss is not None
    assert str(objective.value(plain.loss)) != "-0.0"


def test_what_a_rollout_uses_is_added_to_its_loss():
    spends = Penalty("usd", 0.05), Penalty("seconds", 0.001)
    charged = Objective("loss", "minimize", (0.0, 1.0), penalties=spends)
    assert charged.loss({"loss": 0.2, "usd": 2.0, "seconds": 30.0}) == pytest.approx(0.33)
    score = Objective("score", "maximize", (0.0, 1.0), penalties=spends)
    assert score.loss({"score": 0.8, "usd": 2.0}) == pytest.approx(-0.7)
    assert charged.own == ("usd", "seconds")


def test_a_failure_is_worse_than_the_dearest_rollout_that_answers():
    charged = Objective("loss", "minimize", (0.0, 1.0), penalties=(Penalty("usd", 9.0),))
    dearest = charged.loss({"loss": 1.0, "usd": 1000.0})
    assert dearest == charged.worst_loss == charged.scale == 2.0
