"""Every gate that leaves out what an outage hid says on how many cases it decided."""

import pytest

from kept.core.ports import Gate
from kept.gates.seed_rules import Follow, Selection, Strict
from kept.gates.sigma import Sigma
from kept.testing.fakes import CHALLENGER, INCUMBENT, hear
from tests.gates.tables import CRASH, Cell, Table, judged

OLD: list[Cell] = [0.25] * 10
NEW: list[Cell] = [None, *[0.75] * 9]


@pytest.mark.parametrize("gate", [Strict(), Selection(), Follow()])
@pytest.mark.parametrize("rows", [(OLD, NEW), (NEW, OLD)])
def test_a_verdict_on_fewer_cases_says_on_how_many(gate: Gate, rows: tuple[list[Cell], list[Cell]]):
    assert judged(gate, *rows).reason.endswith(", on 9 of 10 cases")
    assert " cases" not in judged(gate, OLD, [0.75] * 10).reason


def test_sigma_says_it_of_train_and_of_holdout():
    rows = {INCUMBENT: OLD, CHALLENGER: NEW}
    both = hear(Sigma(repeats=1), Table(rows, rows).matter()).verdict
    assert both.reason.endswith(", on 9 of 10 train cases, on 9 of 10 cases")
    whole = {INCUMBENT: OLD, CHALLENGER: [0.75] * 10}
    train = hear(Sigma(repeats=1), Table(whole, rows).matter()).verdict
    assert train.reason.endswith(", on 9 of 10 train cases")


def test_where_a_repeat_is_missing_and_no_case_it_is_told_in_rollouts():
    new = [[None, 0.75], *[[0.75, 0.75]] * 9]
    verdict = hear(Strict(repeats=2), Table({INCUMBENT: OLD, CHALLENGER: new}).matter()).verdict
    assert verdict.reason.endswith(", without 1 of 40 rollouts")


def test_an_incumbent_that_fails_everywhere_takes_no_case_away():
    verdict = judged(Strict(), [CRASH] * 10, NEW)
    assert verdict.reason == "the incumbent fails; the challenger scores 0.75, on 9 of 10 cases"
