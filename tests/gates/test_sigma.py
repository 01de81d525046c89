"""The rule of the coordinate optimizer, checked against the numbers its source works out."""

from math import sqrt

import pytest

from kept.core.objective import Constraint, Objective
from kept.core.rollout import Failure, Pair, Purpose
from kept.core.score import Evaluation, Outcome, summarize
from kept.core.verdict import Side, Verdict, View
from kept.gates.sigma import HoldoutPolicy, Sigma
from kept.testing.fakes import CHALLENGER, INCUMBENT, Heard, hear
from tests.gates.tables import CRASH, Cell, Table, purposes

LOSS = Objective("loss", "minimize", (0.0, 1.0))
SCORE = Objective("score", bounds=(0.0, 1.0))

TRAIN_ONLY = [(INCUMBENT, "screen"), (CHALLENGER, "screen")]
BOTH = [*TRAIN_ONLY, (INCUMBENT, "decide"), (CHALLENGER, "decide")]


def sweeps(mean: float, std: float) -> list[list[Cell]]:
    """One case whose three repeats have this mean and this population standard deviation."""
    reach = std * sqrt(3 / 2)
    return [[mean - reach, mean, mean + reach]]


def heard(
    gate: Sigma,
    train: tuple[list[list[Cell]], list[list[Cell]]],
    holdout: tuple[list[list[Cell]], list[list[Cell]]],
    objective: Objective = LOSS,
) -> Heard:
    table = Table(
        train=dict(zip((INCUMBENT, CHALLENGER), train, strict=True)),
        holdout=dict(zip((INCUMBENT, CHALLENGER), holdout, strict=True)),
        objective=objective,
    )
    return hear(gate, table.matter())


def judged(gate: Sigma, *train: list[list[Cell]]) -> Verdict:
    """The verdict when the holdout shows no difference at all."""
    flat: list[list[Cell]] = [[0.5] * gate.repeats]
    return heard(gate, (train[0], train[1]), (flat, flat)).verdict


def test_the_accepted_example_of_the_source_is_kept():
    pooled = 0.013
    train = sweeps(0.221, sqrt(pooled**2 - 0.011**2)), sweeps(0.184, 0.011)
    holdout = sweeps(0.184, 0.014 / sqrt(2)), sweeps(0.196, 0.014 / sqrt(2))
    verdict = heard(Sigma(), train, holdout).verdict
    assert (verdict.outcome, verdict.best) == ("keep", True)
    assert {name: round(value, 6) for name, value in verdict.numbers.items()} == {
        "train_before": 0.221,
        "train": 0.184,
        "train_std": 0.011,
        "repeats": 3,
        "gain": 0.037,
        "pooled_std": 0.013,
        "accept_sigma": 1.0,
        "noise_bar": 0.013,
        "holdout_before": 0.184,
        "holdout": 0.196,
        "holdout_regression": 0.012,
        "holdout_noise_bar": 0.014,
    }


def test_the_rejected_example_of_the_source_is_discarded_without_reading_the_holdout():
    train = sweeps(0.184, sqrt(0.021**2 - 0.018**2)), sweeps(0.171, 0.018)
    result = heard(Sigma(), train, ([[CRASH] * 3], [[CRASH] * 3]))
    verdict = result.verdict
    assert verdict.outcome == "discard"
    assert "0.013 is below the noise bar 0.021" in verdict.reason
    assert verdict.numbers["gain"] == pytest.approx(0.013)
    assert verdict.numbers["noise_bar"] == pytest.approx(0.021)
    assert purposes(result) == TRAIN_ONLY


def test_the_accepted_example_is_discarded_when_the_holdout_loses_more_than_its_noise():
    train = sweeps(0.221, 0.006), sweeps(0.184, 0.011)
    holdout = sweeps(0.184, 0.014 / sqrt(2)), sweeps(0.199, 0.014 / sqrt(2))
    verdict = heard(Sigma(), train, holdout).verdict
    assert verdict.outcome == "discard"
    assert "holdout lost 0.015" in verdict.reason


def test_a_higher_sigma_raises_both_bars():
    train = sweeps(0.221, 0.006), sweeps(0.184, 0.011)
    flat = sweeps(0.2, 0.01), sweeps(0.2, 0.01)
    assert heard(Sigma(accept_sigma=2.0), train, flat).verdict.outcome == "keep"
    assert heard(Sigma(accept_sigma=3.0), train, flat).verdict.outcome == "discard"
    lost = sweeps(0.184, 0.01), sweeps(0.199, 0.01)
    assert heard(Sigma(accept_sigma=1.0), train, lost).verdict.outcome == "discard"
    assert heard(Sigma(accept_sigma=2.0), train, lost).verdict.outcome == "keep"


def test_without_any_spread_a_tie_is_not_a_keep_and_any_gain_is():
    assert judged(Sigma(), sweeps(0.5, 0.0), sweeps(0.5, 0.0)).outcome == "discard"
    assert judged(Sigma(), sweeps(0.5, 0.0), sweeps(0.4999, 0.0)).outcome == "keep"
    assert judged(Sigma(), sweeps(0.5, 0.0), sweeps(0.5001, 0.0)).outcome == "discard"


def test_a_gain_that_equals_the_noise_bar_clears_it():
    # sweep means 0.25 and 0.75: mean 0.5 and standard deviation 0.25, exactly
    old: list[list[Cell]] = [[0.75, 0.75]]
    new: list[list[Cell]] = [[0.25, 0.75]]
    verdict = judged(Sigma(repeats=2), old, new)
    assert verdict.numbers["gain"] == verdict.numbers["noise_bar"] == 0.25
    assert verdict.outcome == "keep"


def test_with_zero_sigma_a_tie_with_spread_is_not_a_keep():
    both = sweeps(0.5, 0.1)
    assert judged(Sigma(accept_sigma=0.0), both, both).outcome == "discard"


def test_one_repeat_has_no_spread_so_any_gain_is_kept():
    assert judged(Sigma(repeats=1), [[0.5]], [[0.49]]).outcome == "keep"
    assert judged(Sigma(repeats=1), [[0.5]], [[0.5]]).outcome == "discard"


def test_the_spread_is_that_of_whole_sweeps_not_of_single_cases():
    # the cases swing, but in opposite directions: every sweep has the same mean
    old: list[list[Cell]] = [[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    new: list[list[Cell]] = [[0.0, 0.5, 0.0], [0.5, 0.0, 0.5]]
    verdict = judged(Sigma(), old, new)
    assert verdict.numbers["noise_bar"] == 0.0
    assert verdict.outcome == "keep"


@pytest.mark.parametrize(
    ("policy", "gain", "asked"),
    [
        ("on_train_improve", True, BOTH),
        ("on_train_improve", False, TRAIN_ONLY),
        ("every_trial", True, BOTH),
        ("every_trial", False, BOTH),
        ("skip", True, TRAIN_ONLY),
        ("skip", False, TRAIN_ONLY),
    ],
)
def test_the_policy_says_when_the_holdout_is_read(
    policy: HoldoutPolicy, gain: bool, asked: list[tuple[str, str]]
):
    train = sweeps(0.5, 0.01), sweeps(0.3 if gain else 0.6, 0.01)
    flat = sweeps(0.5, 0.01), sweeps(0.5, 0.01)
    result = heard(Sigma(holdout_policy=policy), train, flat)
    assert purposes(result) == asked
    assert result.verdict.outcome == ("keep" if gain else "discard")


def test_every_trial_asks_for_everything_at_once():
    train = sweeps(0.5, 0.01), sweeps(0.3, 0.01)
    result = heard(Sigma(holdout_policy="every_trial"), train, train)
    assert len(result.views) == 2


def test_the_holdout_decides_even_when_it_was_read_beforehand():
    train = sweeps(0.5, 0.01), sweeps(0.3, 0.01)
    lost = sweeps(0.3, 0.01), sweeps(0.5, 0.01)
    verdict = heard(Sigma(holdout_policy="every_trial"), train, lost).verdict
    assert verdict.outcome == "discard"


def test_what_is_kept_unread_says_so():
    train = sweeps(0.5, 0.01), sweeps(0.3, 0.01)
    assert "holdout not read" in judged(Sigma(holdout_policy="skip"), *train).reason


def test_a_score_to_be_maximized_works_the_same_way_round():
    table = Table(
        train={INCUMBENT: [0.5, 0.5], CHALLENGER: [0.75, 0.75]},
        holdout={INCUMBENT: [0.5], CHALLENGER: [0.5]},
        objective=SCORE,
    )
    verdict = hear(Sigma(), table.matter()).verdict
    assert (verdict.outcome, verdict.numbers["gain"]) == ("keep", 0.25)


def test_a_broken_constraint_blocks_a_keep():
    objective = Objective(bounds=(0.0, 1.0), constraints=(Constraint("cost", "<=", 1),))
    cheap: Cell = {"score": 0.5, "cost": 1.0}
    dear: Cell = {"score": 1.0, "cost": 2.0}
    table = Table(
        {INCUMBENT: [cheap], CHALLENGER: [dear]}, {INCUMBENT: [cheap], CHALLENGER: [dear]}
    )
    matter = Table(table.holdout, table.train, objective).matter()
    assert hear(Sigma(), matter).verdict.code == "constraint"


def test_an_outage_on_the_holdout_leaves_it_undecided():
    train = sweeps(0.5, 0.01), sweeps(0.3, 0.01)
    away: list[list[Cell]] = [[None, None, None]]
    verdict = heard(Sigma(), train, (sweeps(0.5, 0.01), away)).verdict
    assert (verdict.outcome, verdict.code) == ("skip", "indecisive")


def test_what_is_missing_on_one_side_of_the_train_cases_is_left_out_on_both():
    old: list[list[Cell]] = [[1.0] * 3, *[[0.5] * 3 for _ in range(11)]]
    new: list[list[Cell]] = [[None] * 3, *[[0.5] * 3 for _ in range(11)]]
    verdict = judged(Sigma(), old, new)
    assert (verdict.outcome, verdict.numbers["gain"]) == ("discard", 0.0)


def test_a_crash_that_evens_out_the_sweeps_does_not_lower_the_bar():
    """Two cases, three repeats: replacing a good draw by a crash made the sweeps alike."""
    ids = ("a", "b")
    objective = Objective(bounds=(0.0, 1.0))

    def side(name: str, rows: dict[str, list[float | None]]) -> Side:
        crash = Failure("crash", "candidate", "it fell over")
        outcomes = [
            (Pair(case, n), Outcome(failure=crash) if score is None else Outcome({"score": score}))
            for case, scores in rows.items()
            for n, score in enumerate(scores)
        ]
        return Side(name, {"screen": summarize(name, "screen", outcomes, objective)})

    incumbent = side("incumbent", {"a": [0.45] * 3, "b": [0.45] * 3})
    gate = Sigma(holdout_policy="skip")
    first: tuple[float | None, ...] = (0.8, None)
    for b in ([draw, 0.5, 0.5] for draw in first):
        challenger = side("challenger", {"a": [1.0, 0.5, 0.5], "b": b})
        view = View(challenger, incumbent, incumbent, ids, ids, objective)
        verdict = gate.decide(view)
        assert isinstance(verdict, Verdict)
        assert verdict.outcome == "discard", verdict.reason


def test_more_errors_than_are_borne_leave_it_open_whatever_the_gain():
    # one of four rollouts of the challenger is missing: a quarter
    old: list[list[Cell]] = [[0.9], [0.9], [0.9], [0.9]]
    new: list[list[Cell]] = [[0.1], [0.1], [0.1], [None]]
    flat: list[list[Cell]] = [[0.5]]
    borne = heard(Sigma(repeats=1, max_errored=0.25), (old, new), (flat, flat)).verdict
    assert borne.outcome == "keep"
    strict = heard(Sigma(repeats=1, max_errored=0.2), (old, new), (flat, flat)).verdict
    assert (strict.outcome, strict.code) == ("skip", "indecisive")


def test_a_least_gain_holds_where_there_is_no_noise():
    old, new = sweeps(0.5, 0.0), sweeps(0.495, 0.0)
    assert judged(Sigma(min_gain=0.01), old, new).outcome == "discard"
    assert judged(Sigma(min_gain=0.004), old, new).outcome == "keep"


@pytest.mark.parametrize(("policy", "purposes"), [("skip", {"screen"}), ("every_trial", None)])
def test_the_seed_is_measured_by_what_its_first_challenger_is_held_against(
    policy: HoldoutPolicy, purposes: set[str] | None
):
    gate = Sigma(repeats=2, holdout_policy=policy)
    seed = Side("seed")
    view = View(seed, seed, seed, ("t0", "t1"), ("h0",), LOSS)
    asks = gate.measure(view)
    assert isinstance(asks, tuple)
    assert {ask.purpose for ask in asks} == (purposes or {"screen", "decide"})
    known: dict[Purpose, Evaluation] = {
        ask.purpose: summarize(
            "seed", ask.purpose, [(pair, Outcome({"loss": 0.25})) for pair in ask.pairs], LOSS
        )
        for ask in asks
    }
    seen = Side("seed", known)
    told = gate.measure(View(seen, seen, seen, ("t0", "t1"), ("h0",), LOSS))
    assert isinstance(told, Verdict)
    assert (told.outcome, told.code, told.numbers["train"]) == ("skip", "measured", 0.25)
    assert ("holdout" in told.numbers) is (policy != "skip")
