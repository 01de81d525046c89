"""The tasks of the quality bench are what they say, and Kept can be run on them."""

import pytest

from bench.quality.arms.kept import act
from bench.quality.order import Order
from bench.quality.tasks import BY_NAME, CASES, SEED, TASKS, TRAIN, Trial

SEEN = list(range(TRAIN))


def rules(trial: Trial, count: int = 60) -> list[str]:
    return [trial.rule(number, SEEN)[0] for number in range(count)]


def worth(trial: Trial, *added: str) -> float:
    return trial.truth(SEED + "".join(added)) - trial.truth(SEED)


@pytest.mark.parametrize("name", [task.name for task in TASKS])
def test_every_arm_meets_the_same_cases_and_the_same_stream(name: str):
    one, two = Trial(BY_NAME[name], 3), Trial(BY_NAME[name], 3)
    two.roll_out(SEED, 0)
    assert rules(one) == rules(two)
    text = SEED + "".join(rules(one, 5))
    assert one.odds(text) == two.odds(text)
    assert one.truth(text) == two.truth(text)
    assert Trial(BY_NAME[name], 4).odds(SEED) != one.odds(SEED)


def test_shares_of_better_and_worse_rules_are_about_what_the_task_says():
    trial = Trial(BY_NAME["noisy"], 0)
    found = [worth(trial, rule) for rule in rules(trial, 200)]
    assert 0.15 < sum(one > 0.01 for one in found) / 200 < 0.35
    assert 0.25 < sum(one < -0.01 for one in found) / 200 < 0.45


def test_no_rule_of_the_null_task_helps():
    trial = Trial(BY_NAME["null"], 0)
    assert max(worth(trial, rule) for rule in rules(trial)) <= 0.005


def test_rivals_undo_each_other():
    trial = Trial(BY_NAME["rivals"], 1)
    good = [rule for rule in rules(trial) if worth(trial, rule) > 0.05]
    pairs = [worth(trial, good[0], other) for other in good[1:]]
    assert min(pairs) == pytest.approx(0.0, abs=1e-9)
    assert max(pairs) == pytest.approx(worth(trial, good[0]))


def test_a_clean_task_says_the_same_each_time_and_a_noisy_one_does_not():
    clean, noisy = Trial(BY_NAME["clean"], 0), Trial(BY_NAME["noisy"], 0)
    assert len({clean.roll_out(SEED, 1) for _ in range(20)}) == 1
    assert {noisy.roll_out(SEED, 1) for _ in range(60)} == {0.0, 1.0}


def test_kept_gains_on_the_clean_task_within_its_rollouts():
    trial = Trial(BY_NAME["clean"], 0)
    end = act(trial, Order("clean", 1000, 0, 1, "race"))
    assert trial.draws <= 1000
    assert worth(trial, end.text.removeprefix(SEED)) > 0.05
    assert len(trial.odds(SEED)) == CASES
