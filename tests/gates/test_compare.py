"""The comparison: how often it errs, what it finds, what it spends, what it says."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kept.core.objective import Constraint, Objective
from kept.core.rollout import Failure, Pair
from kept.core.score import Outcome
from kept.core.verdict import Verdict
from kept.gates._statistics import Spread, cases_needed, detectable, noise_of, passes_needed
from kept.gates.compare import FIRST, PROBE, Compare, forecasts, looks
from kept.testing.fakes import CHALLENGER, INCUMBENT, Draw, Heard, Matter, hear
from tests.gates.compare_worlds import Chances, alike, mixed, noisy, told
from tests.sampling import some_or_all

BOUNDED = Objective(bounds=(0.0, 1.0))


def answers(gate: Compare, cases: int, chances: Chances, runs: int) -> Counter[str]:
    found = (hear(gate, noisy(seed, cases, chances)).verdict.code for seed in range(runs))
    return Counter(found)


def rollouts(heard: Heard) -> Counter[str]:
    """How many rollouts of each side were asked for."""
    return Counter(draw.owner for draw in set(heard.draws))


@pytest.mark.slow
@some_or_all
@pytest.mark.parametrize("cases", [9, 24])
def test_what_is_the_same_in_distribution_is_rarely_called_better(cases: int, everything: bool):
    runs, most = (400, 20) if everything else (60, 5)
    found = answers(Compare(most=8), cases, alike(0.0), runs)
    assert found["better"] <= most, "5 % of comparisons"
    assert found["worse"] <= most


@pytest.mark.slow
@some_or_all
def test_gains_that_only_these_cases_show_are_rarely_called_better(everything: bool):
    runs, most = (300, 21) if everything else (50, 5)
    found = answers(Compare(most=8), 24, mixed(0.35), runs)
    assert found["better"] <= most, "5 %, and two standard deviations"


@pytest.mark.slow
@some_or_all
def test_with_several_challengers_the_error_is_that_of_all_of_them_together(everything: bool):
    gate = Compare(challengers=5, most=4)
    wrong, (runs, most) = 0, (120, 10) if everything else (25, 3)
    for run in range(runs):
        fives = (noisy(1000 * run + nth, 16, alike(0.0)) for nth in range(5))
        wrong += any(hear(gate, one).verdict.code == "better" for one in fives)
    assert wrong <= most, "5 %, and two standard deviations"


@pytest.mark.slow
@some_or_all
def test_a_real_gain_is_found_nearly_always_and_a_real_loss_never_taken_for_one(everything: bool):
    runs = 60 if everything else 12
    found = answers(Compare(), 24, alike(0.25), runs)
    assert found["better"] >= 0.9 * runs
    found = answers(Compare(), 24, alike(-0.2), runs)
    assert found["better"] == 0
    assert found["worse"] + found["not better"] >= 0.9 * runs
    assert found["worse"] >= runs / 6


def test_a_gain_that_shows_at_once_is_told_at_once():
    heard = hear(Compare(), noisy(1, 30, alike(0.9)))
    assert heard.verdict.code == "better"
    assert rollouts(heard) == {CHALLENGER: 30, INCUMBENT: 30}


@pytest.mark.parametrize(("gaining", "code"), [(0, "not better"), (2, "cannot tell")])
def test_where_few_cases_gain_others_that_do_were_not_drawn(gaining: int, code: str):
    """Of 100 cases two gain once in nine times where one in twenty does."""
    better = {f"h{n}" for n in range(gaining)}

    def outcome(draw: Draw) -> Outcome:
        return Outcome({"score": float(draw.owner == CHALLENGER and draw.pair.case in better)})

    matter = Matter(outcome=outcome, holdout=tuple(f"h{n}" for n in range(100)), objective=BOUNDED)
    assert hear(Compare(), matter).verdict.code == code


def test_it_never_keeps_and_never_moves_the_best():
    verdict = hear(Compare(), noisy(1, 30, alike(0.9))).verdict
    assert (verdict.outcome, verdict.best, verdict.word) == ("skip", False, "better")


def test_the_interval_and_the_answer_never_contradict_each_other():
    seen: set[str] = set()
    for seed, gain in enumerate([-0.5, -0.2, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2, 0.5] * 3):
        verdict = hear(Compare(most=4), noisy(seed, 40, alike(gain))).verdict
        low, high = verdict.numbers["low"], verdict.numbers["high"]
        assert low <= verdict.numbers["gain"] <= high
        assert (verdict.code == "better") == (low > 0)
        assert (verdict.code == "worse") == (high < 0)
        assert (verdict.code in ("worse", "not better")) == (low <= 0 and high <= 0.05)
        seen.add(verdict.code)
    assert seen == {"better", "worse", "not better", "cannot tell"}


def test_what_all_looks_may_risk_sums_up_to_the_risk():
    gate = Compare(challengers=3, most=16)
    assert looks(50, 16) == [50, 100, 200, 400, 800]
    spent = sum(gate.left(at) / 10 for at in range(4)) + gate.left(4)
    assert 3 * spent == pytest.approx(0.05)
    assert gate.final(50, 16) == gate.left(4)


def test_a_large_set_is_first_looked_at_in_part():
    assert looks(1000, 4) == [100, 200, 400, 1000, 2000, 4000]
    assert looks(2 * FIRST - 1, 1) == [2 * FIRST - 1]
    heard = hear(Compare(), noisy(5, 400, alike(0.6)))
    assert heard.verdict.code == "better"
    assert rollouts(heard) == {CHALLENGER: FIRST, INCUMBENT: FIRST}
    assert heard.verdict.numbers["cases"] == FIRST


def steps(ups: int, downs: int, cases: int) -> Matter:
    """Without noise: so many cases go up, so many down, the others stay."""

    def value(owner: str, pair: Pair) -> float:
        at = int(pair.case[1:])
        if owner == INCUMBENT:
            return float(ups <= at < ups + downs)
        return float(at < ups)

    return told(value, cases, BOUNDED)


@pytest.mark.parametrize(
    ("ups", "downs", "answer"),
    [(4, 0, "cannot tell"), (5, 0, "better"), (7, 1, "better"), (5, 1, "cannot tell")],
)
def test_without_noise_it_is_the_exact_test_over_cases(ups: int, downs: int, answer: str):
    verdict = hear(Compare(), steps(ups, downs, 40)).verdict
    assert verdict.code == answer
    n = ups + downs
    exact = {(4, 0): 1 / 16, (5, 0): 1 / 32, (7, 1): 9 / 256, (5, 1): 7 / 64}[ups, downs]
    assert verdict.numbers["p"] == pytest.approx(exact)
    assert verdict.numbers["risk"] == pytest.approx(0.05), f"nothing was spent before, of {n}"


def test_without_noise_no_more_repeats_are_paid_for_than_it_takes_to_see_that():
    undecided = rollouts(hear(Compare(), steps(6, 0, 100)))
    assert undecided == {CHALLENGER: 100 + PROBE, INCUMBENT: 100 + PROBE}
    clear = rollouts(hear(Compare(), steps(12, 0, 100)))
    assert clear == {CHALLENGER: 100, INCUMBENT: 100}
    declared = rollouts(hear(Compare(most=1), steps(6, 0, 100)))
    assert declared == {CHALLENGER: 100, INCUMBENT: 100}


def test_a_seed_without_noise_does_not_hide_that_a_challenger_has_some():
    """A seed that always fails looks deterministic; its challenger is not."""
    matter = noisy(2, 60, lambda draw: (0.0, 0.15))
    heard = hear(Compare(), matter)
    assert heard.verdict.code == "better"
    assert rollouts(heard)[CHALLENGER] > 60 + PROBE


def test_where_nothing_differs_it_says_how_many_cases_would_show_that():
    few = hear(Compare(), steps(0, 0, 40)).verdict
    assert few.code == "cannot tell"
    assert few.numbers["high"] == pytest.approx(1 - 0.05 ** (1 / 40))
    assert few.numbers["wanted_cases"] == 59
    assert hear(Compare(), steps(0, 0, 59)).verdict.code == "not better"


def test_better_on_these_very_cases_is_told_where_it_is_not_shown_for_new_ones():
    matter = noisy(6, 10, lambda draw: (0.5, draw.choice((0.05, 0.95, 0.95))))
    verdict = hear(Compare(), matter).verdict
    assert verdict.code == "cannot tell"
    assert verdict.numbers["here"] == 1
    assert "wanted_passes" not in verdict.numbers, "these cases alone cannot show it for others"
    same = hear(Compare(), noisy(3, 10, alike(0.0))).verdict
    assert same.numbers["here"] == 0
    assert hear(Compare(), steps(0, 2, 40)).verdict.numbers["here"] == -1


def test_repeats_end_when_only_more_cases_would_help():
    heard = hear(Compare(), noisy(0, 20, lambda draw: (0.5, draw.choice((0.02, 0.98)))))
    assert heard.verdict.code == "cannot tell"
    assert heard.verdict.numbers["passes"] < Compare().most
    assert heard.verdict.numbers["effect"] > heard.verdict.numbers["noise"] / 4


def test_what_it_would_take_is_about_what_it_takes():
    """The forecast of a comparison that cannot tell, tried out."""
    verdict = hear(Compare(most=2), noisy(8, 30, alike(0.15))).verdict
    assert verdict.code == "cannot tell"
    spread = Spread(verdict.numbers["noise"], verdict.numbers["effect"])
    cases = cases_needed(spread, 0.15, 2, Compare(most=2).final(30, 2))
    assert cases is not None
    found = answers(Compare(most=2), cases, alike(0.15), 40)
    assert 24 <= found["better"] <= 40, f"four of five were promised with {cases} cases"
    more = passes_needed(spread, 0.15, 30, 0.05)
    assert more is not None
    assert detectable(spread, 30, more, 0.05) <= 0.15 < detectable(spread, 30, more - 1, 0.05)


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_a_metric_without_bounds_is_compared_in_its_own_units(direction: str):
    sign = 1 if direction == "maximize" else -1

    def value(owner: str, pair: Pair) -> float:
        wobble = (int(pair.case[1:]) * 7 + pair.repeat * 3) % 11 - 5
        return 200.0 + wobble + (sign * 30 + wobble / 3 if owner == CHALLENGER else 0)

    objective = Objective("score", "maximize" if sign > 0 else "minimize")
    verdict = hear(Compare(), told(value, 20, objective)).verdict
    assert verdict.code == "better"
    assert verdict.numbers["gain"] == pytest.approx(30, abs=3)
    assert verdict.numbers["least"] == pytest.approx(10, abs=0.2), "5 % of the seed's score"
    assert verdict.numbers["value"] - verdict.numbers["seed_value"] == pytest.approx(
        sign * verdict.numbers["gain"]
    )


def test_the_least_gain_worth_knowing_of_is_for_the_user_to_say():
    same = noisy(6, 40, alike(0.0))
    assert hear(Compare(most=4, least=0.5), same).verdict.code == "not better"
    assert hear(Compare(most=4, least=0.001), same).verdict.code == "cannot tell"


CRASH = Outcome(failure=Failure("crash", "candidate", "it fell over"))


def failing(owner: str, objective: Objective) -> Matter:
    matter = told(lambda owner, pair: 0.5, 12, objective)

    def outcome(draw: Draw) -> Outcome:
        return CRASH if draw.owner == owner else matter.outcome(draw)

    return replace(matter, outcome=outcome)


def test_whoever_fails_everywhere_is_not_the_better_one():
    for objective in (BOUNDED, Objective()):
        assert hear(Compare(), failing(INCUMBENT, objective)).verdict.code == "better"
        assert hear(Compare(), failing(CHALLENGER, objective)).verdict.outcome == "crash"


def test_a_broken_constraint_is_not_better_whatever_it_scores():
    def outcome(draw: Draw) -> Outcome:
        better = draw.owner == CHALLENGER
        return Outcome({"score": float(better), "tokens": 900.0 if better else 100.0})

    objective = replace(BOUNDED, constraints=(Constraint("tokens", "<=", 500),))
    matter = Matter(outcome=outcome, train=(), holdout=told_cases(12), objective=objective)
    verdict = hear(Compare(), matter).verdict
    assert verdict.code == "not better"
    assert "constraint broken: tokens <= 500: it is 900" in verdict.reason


def told_cases(count: int) -> tuple[str, ...]:
    return tuple(f"h{n}" for n in range(count))


def measured(matter: Matter, gate: Compare | None = None) -> Verdict:
    """What two passes of the seed say."""
    gate = gate or Compare()
    asks = gate.measure(matter.view({}))
    assert not isinstance(asks, Verdict)
    (ask,) = asks
    view = matter.view({(ask.candidate, ask.purpose): ask.pairs})
    verdict = gate.measure(view)
    assert isinstance(verdict, Verdict)
    return verdict


def test_two_passes_of_the_seed_tell_noise_from_cases():
    verdict = measured(noisy(1, 200, lambda draw: (draw.choice((0.1, 0.9)), 0.0)))
    assert verdict.code == "measured"
    # the chances of the challenger's side, which stands for the seed here, are all 0
    assert verdict.numbers["noise"] == 0
    verdict = measured(noisy(1, 200, lambda draw: (0.0, draw.choice((0.1, 0.9)))))
    assert verdict.numbers["noise"] == pytest.approx(0.09, abs=0.03)
    assert verdict.numbers["between"] == pytest.approx(0.16, abs=0.03)
    assert verdict.numbers["between"] < verdict.numbers["widest"] < 0.25


@pytest.mark.slow
@some_or_all
def test_a_forecast_is_what_then_happens(everything: bool):
    """The gain that a plan says is found four times out of five, compared many times."""
    gate = Compare(most=4)
    chances: Chances = lambda draw: (0.5, 0.5)  # noqa: E731 # one line, and it has a type
    plan = measured(noisy(0, 60, chances))
    row = forecasts(gate, 60, plan.numbers["noise"], plan.numbers["widest"])[-1]
    assert (row.passes, row.rollouts) == (4, 480)
    runs, few, many = (60, 39, 57) if everything else (15, 9, 14)
    found = answers(gate, 60, lambda draw: (0.5, 0.5 + row.alike), runs)
    assert few <= found["better"] <= many, f"a gain of {row.alike:.3f} is found 4 times of 5"


def test_forecasts_fall_with_passes_where_gains_are_alike_and_not_below_what_cases_allow():
    rows = forecasts(Compare(), 40, noise=0.25, widest=0.04)
    assert [row.passes for row in rows] == [1, 2, 4, 8, 16]
    assert list(falls(row.alike for row in rows)) == [True] * 4
    floor = detectable(Spread(0.0, 0.08), 40, 1, Compare().final(40, 16))
    assert rows[-1].worst > floor > rows[-1].alike
    assert len(forecasts(Compare(), 40, noise=0.0, widest=0.04)) == 1, "repeats show nothing"
    shared = forecasts(Compare(challengers=3), 40, noise=0.25, widest=0.04)
    assert (rows[0].rollouts, shared[0].rollouts) == (80, 160)
    assert shared[0].alike > rows[0].alike, "three challengers share the risk of one"


def falls(values: Iterator[float]) -> Iterator[bool]:
    before = next(values)
    for value in values:
        yield value < before
        before = value


def test_noise_is_what_repeats_of_one_case_differ_by():
    pairs = {Pair("a", 0): 1.0, Pair("a", 1): 3.0, Pair("b", 0): 10.0, Pair("b", 1): 10.0}
    assert noise_of(pairs) == 1.0
    assert noise_of({Pair("a", 0): 1.0, Pair("b", 0): 2.0}) is None
