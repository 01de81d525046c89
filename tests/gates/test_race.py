"""The race: what its evidence is worth, when it looks, what it asks for, what it says."""

import itertools
from dataclasses import replace
from math import exp

import pytest

from kept.core.alpha import Ledger, left, level
from kept.core.objective import Constraint, Objective
from kept.core.proposal import Asked, note_asked
from kept.core.rollout import Failure, Pair
from kept.core.score import Outcome, summarize
from kept.core.verdict import Verdict
from kept.gates._common import forbidden
from kept.gates._pairs import TENURE, looks
from kept.gates._statistics import STAKES, evidence, sign_test, student, student_chance
from kept.gates.race import PRESETS, Race
from kept.gates.screen import Screen
from kept.testing.fakes import CHALLENGER, INCUMBENT, Draw, Matter, hear

HOLDOUT = tuple(f"h{n}" for n in range(20))


def scored(value: float) -> Outcome:
    return Outcome({"score": value})


def matter(new: float, old: float, train: float | None = None) -> Matter:
    """Pass rates of both sides, told by a fixed pattern; those on train may differ."""

    def outcome(draw: Draw) -> Outcome:
        rate = new if draw.owner == CHALLENGER else old
        if draw.purpose == "screen" and train is not None and draw.owner == CHALLENGER:
            rate = train
        at = (int(draw.pair.case[1:]) * 7 + draw.pair.repeat * 13) % 20
        return scored(float(at < rate * 20))

    return Matter(outcome=outcome, train=tuple(f"t{n}" for n in range(15)), holdout=HOLDOUT)


def test_levels_before_the_first_keep_never_sum_up_to_more_than_alpha():
    total = sum(level(Ledger(tests=n), 0.05) for n in range(20_000))
    assert 0.03 < total <= 0.05


@pytest.mark.parametrize("keeps", [(), (2,), (1, 4, 9)])
def test_what_is_left_is_all_that_later_tests_may_risk(keeps: tuple[int, ...]):
    ledger = Ledger(tests=10, keeps=keeps)
    later = sum(level(ledger._replace(tests=n), 0.05) for n in range(10, 20_000))
    assert later < left(ledger, 0.05) < later * 1.06, "the rest of the sum has no end"
    assert left(ledger.give(), 0.05) == pytest.approx(left(ledger, 0.05) - level(ledger, 0.05))


def test_a_keep_earns_some_back_and_soon_spends_it():
    poor, rich = Ledger(tests=20), Ledger(tests=20, keeps=(20,))
    assert level(rich, 0.05) > level(poor, 0.05)
    later = [level(Ledger(tests=20 + n, keeps=(20,)), 0.05) for n in range(30)]
    assert later == sorted(later, reverse=True)


def test_all_that_a_keep_earns_is_at_most_alpha():
    earned = sum(
        level(Ledger(tests=1 + n, keeps=(1, 1)), 0.05) - level(Ledger(tests=1 + n), 0.05)
        for n in range(20_000)
    )
    assert earned <= 0.05 * 1.2 + 1e-9


@pytest.mark.parametrize(
    "rates",
    [
        # challenger and incumbent by case; no gain in the mean, but on single cases
        [(0.5, 0.5), (0.5, 0.5), (0.5, 0.5)],
        [(0.9, 0.5), (0.1, 0.5), (0.5, 0.5)],
        [(1.0, 0.0), (0.0, 1.0), (0.3, 0.3)],
        [(0.95, 0.9), (0.9, 0.95), (0.2, 0.2)],
    ],
)
def test_a_pass_without_a_gain_does_not_grow_the_stake_on_average(
    rates: list[tuple[float, float]],
):
    expected = 0.0
    for fell in itertools.product((0, 1), repeat=2 * len(rates)):
        chance, gains = 1.0, list[float]()
        for at, (new, old) in enumerate(rates):
            x, y = fell[2 * at], fell[2 * at + 1]
            chance *= (new if x else 1 - new) * (old if y else 1 - old)
            gains.append(float(x - y))
        expected += chance * exp(evidence(gains))
    assert expected <= 1 + 1e-12


def test_evidence_is_the_mean_of_the_stakes():
    assert exp(evidence([1.0])) == pytest.approx(1 + sum(STAKES) / len(STAKES))
    assert evidence([]) == pytest.approx(0.0)
    assert evidence([1.0] * 2000) > 500, "no overflow"


@pytest.mark.parametrize(
    ("chance", "freedom", "t"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.3027), (0.95, 9, 1.8331), (0.975, 24, 2.0639)],
)
def test_student_is_exact(chance: float, freedom: int, t: float):
    assert student(chance, freedom) == pytest.approx(t, abs=1e-4)
    assert student_chance(t, freedom) == pytest.approx(chance, abs=1e-5)
    assert student_chance(-t, freedom) == pytest.approx(1 - chance, abs=1e-5)


def test_it_looks_often_at_first_and_only_whole_passes_can_win():
    assert looks(20, 8) == [20, 40, 60, 80, 100, 120, 140, 160][: len(looks(20, 8))]
    assert looks(200, 2) == [25, 50, 100, 200, 400]


def test_a_clear_gain_is_kept_and_is_not_the_best_before_it_is_proven():
    heard = hear(Race(), matter(0.9, 0.4))
    assert heard.verdict.outcome == "keep"
    assert not heard.verdict.best
    assert heard.verdict.numbers["evidence"] > 0
    told = heard.verdict.numbers
    assert {"alpha", "alpha_left", "challenger_rollouts", "incumbent_rollouts"} <= {*told}
    assert 0.2 < told["low"] < told["gain"] < told["high"] < 0.8
    assert told["better"] > 0.99


def test_what_does_nothing_on_train_is_dropped_for_the_price_of_a_screen():
    heard = hear(Race(), matter(0.9, 0.5, train=0.3))
    assert heard.verdict.outcome == "discard"
    assert "screened out" in heard.verdict.reason
    mine = [draw for draw in heard.draws if draw.owner == CHALLENGER]
    assert len(mine) <= 15
    assert {draw.purpose for draw in heard.draws} == {"screen"}


def test_what_shines_on_train_alone_is_not_kept():
    heard = hear(Race(), matter(0.5, 0.5, train=1.0))
    assert heard.verdict.outcome == "discard"


def test_the_draws_of_an_incumbents_time_are_its_own():
    view = hear(Race(), matter(0.9, 0.4)).views[0]
    answer = Race().decide(view._replace(ledger=Ledger(3, (1, 3))))
    assert not isinstance(answer, Verdict)
    assert {pair.repeat // TENURE for ask in answer for pair in ask.pairs} == {2}


def test_an_evaluator_that_never_varies_is_asked_once():
    def outcome(draw: Draw) -> Outcome:
        better = draw.owner == CHALLENGER and draw.pair.case in ("h0", "h1", "h2")
        return scored(1.0 if better or int(draw.pair.case[1:]) > 9 else 0.0)

    heard = hear(Race(), Matter(outcome=outcome, train=(), holdout=HOLDOUT))
    assert heard.verdict.outcome == "discard"
    assert "3 cases better, 0 worse" in heard.verdict.reason
    mine = [draw for draw in heard.draws if draw.owner == CHALLENGER]
    assert len(set(mine)) == len(HOLDOUT), "a second pass would show the same"


def test_without_noise_enough_cases_decide():
    def verdict(better: int) -> str:
        def outcome(draw: Draw) -> Outcome:
            at = int(draw.pair.case[1:])
            return scored(1.0 if at > 9 or (draw.owner == CHALLENGER and at < better) else 0.0)

        return hear(Race(), Matter(outcome=outcome, train=(), holdout=HOLDOUT)).verdict.outcome

    assert verdict(8) == "keep"
    assert verdict(6) == "discard", "one of many proposals has a level of its own to pass"
    assert sign_test([1.0] * 6 + [0.0] * 14) == (6, 0, 1 / 64)
    assert sign_test([]) == (0, 0, 1.0)


def test_an_outage_on_one_side_leaves_it_open():
    gone = Failure("server", "infrastructure", "503")

    def outcome(draw: Draw) -> Outcome:
        if draw.owner == INCUMBENT and int(draw.pair.case[1:]) < 5:
            return Outcome(failure=gone)
        return scored(1.0 if draw.owner == CHALLENGER else 0.0)

    verdict = hear(Race(), Matter(outcome=outcome, train=(), holdout=HOLDOUT)).verdict
    assert (verdict.outcome, verdict.code) == ("skip", "indecisive")


def test_the_presets_are_points_on_one_rule():
    assert set(PRESETS) == {"fast", "balanced", "careful"}
    assert PRESETS["balanced"] == Race()
    assert PRESETS["careful"].alpha < PRESETS["balanced"].alpha


def proof_after(tests: int) -> Verdict:
    """What a proof says of the same draws when so many were raced before it."""
    asked: Asked = {}
    heard = matter(0.8, 0.55)
    while True:
        view = heard.view(asked)._replace(ledger=Ledger(tests, (tests,), chosen=tests))
        answer = Race(promote_passes=(2,)).prove(view)
        if isinstance(answer, Verdict):
            return answer
        assert note_asked(asked, answer)


def test_a_proof_asks_more_of_what_was_chosen_among_many():
    first, late = proof_after(1), proof_after(10_000)
    assert first.numbers["gain"] == late.numbers["gain"]
    assert (first.best, late.best) == (True, False)
    assert first.numbers["alpha_promote"] == pytest.approx(1e4 * late.numbers["alpha_promote"])


@pytest.mark.parametrize("at_once", [True, False])
def test_what_breaks_a_constraint_is_not_promoted_however_much_better_it_is(at_once: bool):
    free = Objective(bounds=(0.0, 1.0))
    bound = replace(free, constraints=(Constraint("score", "<=", 0.5),))
    for objective, best in ((free, True), (bound, False)):
        about = replace(matter(0.9, 0.4), objective=objective)
        asked: Asked = {}
        told: Verdict | None = None
        while told is None:
            view = about.view(asked)._replace(proves=at_once, merged=1 if at_once else 0)
            answer = Race().decide(view) if at_once else Race().prove(view)
            if isinstance(answer, Verdict):
                told = answer
            else:
                note_asked(asked, answer)
        assert told.best == best
        assert (told.outcome == "keep") == (best and at_once)
        assert ("constraint broken" in told.reason) != best


def test_a_constraint_on_a_mean_is_held_to_the_look_that_knows_most():
    """The first draws break it, all of them together do not."""

    def outcome(draw: Draw) -> Outcome:
        if draw.owner != CHALLENGER:
            return scored(0.3 + 0.1 * (draw.pair.repeat % 2))
        return scored(1.0 if draw.pair.repeat < 2 else 0.8)

    bound = Objective(bounds=(0.0, 1.0), constraints=(Constraint("score", "<=", 0.9),))
    about = replace(matter(0.9, 0.4), outcome=outcome, objective=bound)
    asked: Asked = {}
    while not isinstance(answer := Race().prove(about.view(asked)), Verdict):
        note_asked(asked, answer)
    assert (answer.best, answer.code) == (True, "promoted")


def test_what_a_constraint_forbids_is_none_of_those_a_proof_chooses_among():
    bound = Objective(constraints=(Constraint("score", "<=", 0.5),))
    shown = summarize("c", "decide", [(Pair("a", 0), scored(0.9))], bound)
    told = forbidden(shown, bound, {"gain": 1, "chosen": 1})
    assert told is not None
    assert told.numbers == {"gain": 1}


def test_the_most_that_is_asked_counts_looks_at_what_is_merged_or_alone():
    usual = Screen(cases=1, passes=1, steps=((1, -9.0),), alone=((1, -9.0),), together=((1, -9.0),))
    for longer in (replace(usual, together=((600, -9.0),)), replace(usual, alone=((600, -9.0),))):
        assert longer.most_asked(8) - usual.most_asked(8) == 599
