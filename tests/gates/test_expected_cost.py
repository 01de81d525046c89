"""What a run of useless proposals comes to, as told before it starts."""

import random
from pathlib import Path

import pytest

import kept
from kept.core.proposal import Brief
from kept.gates.race import PRESETS, Race, proof_passes, raced, screened
from tests.sampling import some_or_all


def test_most_useless_proposals_are_dropped_after_the_first_draws():
    (first, _), (last, _) = Race().screen.steps[:2]
    found = screened(Race().screen.steps[:2], 120)
    assert first < found.draws < (first + last) / 2
    assert 0.1 < found.share < 0.4
    # nothing comes through that does not seem to gain
    assert found.shown > Race().screen.steps[1][1]


def test_a_lower_floor_lets_more_through():
    assert screened(((8, -9.0),), 120).share == 1
    assert screened(((8, 9.0),), 120).share == 0


def test_a_race_that_looks_for_a_larger_gain_sees_sooner_that_there_is_none():
    soon, late = raced(50, 24, 0.48, 0.7), raced(50, 24, 0.24, 0.7)
    assert soon.challenger < late.challenger < 24 * 50
    assert late.incumbent >= late.challenger


def test_a_proof_of_nothing_ends_before_its_last_look_more_often_than_not():
    assert 2 < proof_passes((2, 4, 8, 16), 0.7) < 16
    assert proof_passes((2, 4, 8, 16), 0.5) < proof_passes((2, 4, 8, 16), 0.7)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("train", [0, 12])
def test_what_is_usual_is_far_below_what_is_possible_and_grows_with_the_steps(
    preset: str, train: int
):
    race = PRESETS[preset]
    few, many = (race.usual_asked(train, 20, steps) for steps in (5, 50))
    assert few < many < 50 * race.most_asked(train, 20) / 4


@pytest.mark.slow
@some_or_all
def test_a_run_of_useless_proposals_costs_about_what_was_told(tmp_path: Path, everything: bool):
    chance = random.Random(1)

    def evaluate(candidate: kept.Candidate, case: int) -> float:
        return float(chance.random() < 0.6)

    def propose(brief: Brief) -> str:
        return f"text {brief.turn.number}"

    cases, steps, used = list(range(40)), 20, list[int]()
    for seed in range(6 if everything else 2):
        result = kept.optimize(
            "seed",
            evaluate,
            cases,
            proposers=[propose],
            budget=steps,
            bounds=(0, 1),
            workers=1,
            random_seed=seed,
            home=tmp_path,
        )
        used.append(result.spend.rollouts)
    told = Race().usual_asked(12, 20, steps)
    assert told / 2 < sum(used) / len(used) < told * 2
