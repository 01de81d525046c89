"""Tie-breakers of a race: what is as good and costs less is kept, not what only seems so."""

import random
from dataclasses import replace

import pytest

from kept.core.objective import Objective, TieBreaker
from kept.core.proposal import Ask
from kept.core.score import Outcome
from kept.core.verdict import Verdict, View
from kept.gates._common import difference
from kept.gates.race import Race
from kept.gates.simplify import Simplify
from kept.testing.fakes import CHALLENGER, INCUMBENT, Draw, Heard, Matter, hear
from tests.sampling import some_or_all

COST = TieBreaker("cost")
CHEAP = Objective("score", "maximize", (0.0, 1.0), tie_breakers=(COST,))
MARGIN = Simplify().margin
TRAIN = tuple(f"t{n}" for n in range(15))
HOLDOUT = tuple(f"h{n}" for n in range(40))


def world(seed: object, *, loss: float = 0.0, cheaper: float = 0.0, noise: bool = True) -> Matter:
    """Cases that mostly pass or mostly fail, each with a price that varies by a tenth."""

    def outcome(draw: Draw) -> Outcome:
        owner, purpose, (case, repeat) = draw
        number = int(case[1:])
        fell = random.Random(f"{seed} {owner} {purpose} {case} {repeat if noise else 0}")
        mine = owner == CHALLENGER
        right = fell.random() < (0.97, 0.05)[number % 2] - (loss if mine else 0.0)
        cost = (1 + number % 7) * (1 - (cheaper if mine else 0.0)) * fell.uniform(0.9, 1.1)
        return Outcome({"score": float(right), "cost": cost})

    return Matter(outcome=outcome, train=TRAIN, holdout=HOLDOUT, objective=CHEAP)


def heard(matter: Matter, race: Race | None = None) -> Heard:
    return hear(race or Race(), matter)


def kept(runs: int, cheaper: float, loss: float = 0.0) -> float:
    found = [heard(world(seed, cheaper=cheaper, loss=loss)).verdict for seed in range(runs)]
    return sum(verdict.outcome == "keep" for verdict in found) / runs


@pytest.mark.slow
def test_what_is_as_good_and_costs_less_is_kept_with_the_interval_in_words():
    found = [heard(world(seed, cheaper=0.4)).verdict for seed in range(12)]
    keeps = [verdict for verdict in found if verdict.outcome == "keep"]
    assert len(keeps) >= 6
    for verdict in keeps:
        assert verdict.reason.startswith("`cost` ")
        assert f"and not worse than by {MARGIN:g}" in verdict.reason
        assert "margin" in verdict.numbers


@pytest.mark.slow
@some_or_all
def test_what_costs_less_and_loses_twice_the_margin_is_hardly_ever_kept(everything: bool):
    runs, most = (100, 0.05) if everything else (25, 0.1)
    assert kept(runs, 0.4, 2 * MARGIN) <= most


@pytest.mark.slow
@some_or_all
@pytest.mark.parametrize("cheaper", [0.0, -0.3])
def test_what_is_as_good_and_does_not_cost_less_is_never_kept(cheaper: float, everything: bool):
    assert kept(60 if everything else 15, cheaper) == 0.0


def test_without_tie_breakers_nothing_is_kept_for_its_cost():
    for seed in range(6):
        matter = replace(world(seed, cheaper=0.4), objective=replace(CHEAP, tie_breakers=()))
        assert heard(matter).verdict.outcome == "discard"


def test_what_is_clearly_better_is_kept_for_that_whatever_it_costs():
    found = [heard(world(seed, loss=-0.5, cheaper=-0.5)).verdict for seed in range(1, 5)]
    assert all(verdict.reason.startswith("better") for verdict in found)


def test_an_evaluator_without_noise_has_ties_that_are_facts():
    found = heard(world(3, cheaper=0.3, noise=False)).verdict
    assert found.outcome == "keep"
    assert "no noise" in found.reason


def test_what_costs_the_same_less_on_every_case_is_kept_and_shows_no_interval():
    def outcome(draw: Draw) -> Outcome:
        cost = 3.0 if draw.owner == CHALLENGER else 5.0
        return Outcome({"score": 1.0, "cost": cost})

    found = heard(replace(world(0), outcome=outcome)).verdict
    assert found.outcome == "keep"
    assert found.reason.startswith("`cost` 5 → 3, and not worse than by ")


def test_a_draw_that_failed_is_not_a_cheap_one():
    """Half of the challenger's costs are missing, the dear ones: it only seems to cost less."""
    asked: list[View] = []

    class Watching:
        name = "watching"

        def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
            asked.append(view)
            return Race().decide(view)

    matter = world(5)
    dear = {case for case in TRAIN if int(case[1:]) % 7 > 3}

    def outcome(draw: Draw) -> Outcome:
        found = matter.outcome(draw)
        if draw.owner == CHALLENGER and draw.pair.case in dear:
            return Outcome({"score": found.metrics["score"]})
        return found

    hear(Watching(), replace(matter, outcome=outcome))
    screened = [view for view in asked if view.challenger.ties.get("screen")]
    assert screened
    assert all(difference(view, "screen", view.incumbent, 0.01) is None for view in screened)


def test_the_first_tie_breaker_that_differs_decides():
    two = replace(CHEAP, tie_breakers=(TieBreaker("length"), COST))

    def outcome(draw: Draw) -> Outcome:
        found = world(1, cheaper=0.4).outcome(draw)
        longer = 10.0 + (draw.owner == CHALLENGER) * 5 + int(draw.pair.case[1:]) % 3
        return Outcome({**found.metrics, "length": longer})

    matter = replace(world(1, cheaper=0.4), objective=two, outcome=outcome)
    assert heard(matter).verdict.outcome == "discard"
    same = replace(two, tie_breakers=(TieBreaker("other"), COST))
    again = heard(replace(matter, objective=same))
    assert again.verdict.outcome == heard(world(1, cheaper=0.4)).verdict.outcome
    assert INCUMBENT in {draw.owner for draw in again.draws}


@pytest.mark.parametrize(
    ("shorter", "cheaper", "promoted"),
    [(True, 0.0, True), (False, 0.0, False), (False, 0.3, True), (True, -0.3, False)],
)
def test_what_is_as_good_is_promoted_for_less_text_or_for_less_cost(
    shorter: bool, cheaper: float, promoted: bool
):
    class Proof:
        name = "proof"

        def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
            return Race().prove(view._replace(simplifies=True, shorter=shorter))

    def outcome(draw: Draw) -> Outcome:
        number = int(draw.pair.case[1:])
        less = cheaper if draw.owner == CHALLENGER else 0.0
        noise = random.Random(str(draw)).uniform(0.9, 1.1)
        return Outcome({"score": float(number % 2), "cost": (1 + number % 7) * (1 - less) * noise})

    cases = tuple(f"h{n}" for n in range(200))
    matter = Matter(outcome=outcome, train=TRAIN, holdout=cases, objective=CHEAP)
    verdict = hear(Proof(), matter).verdict
    assert verdict.best == promoted, verdict.reason
    assert ("simpler" in verdict.reason) == (promoted and not cheaper)
