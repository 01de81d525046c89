"""Who is next, and when nobody is."""

import pytest

from kept.core.budget import Budget, StopReason
from kept.core.proposal import Turn
from kept.core.schedules.round_robin import RoundRobin, budget_stop, repeats_alike
from kept.core.score import Evaluation, Tally
from kept.core.state import State
from kept.testing.suites.sink_schedule import ScheduleSuite, take


def begun() -> State:
    return ScheduleSuite().start()


def turns(schedule: RoundRobin, state: State, count: int) -> list[tuple[str, int]]:
    taken: list[tuple[str, int]] = []
    for _ in range(count):
        turn = schedule.next(state)
        assert isinstance(turn, Turn)
        taken.append((turn.proposer, turn.number))
        state = take(state, turn)
    return taken


def test_proposers_take_turns_in_the_order_they_were_named():
    taken = turns(RoundRobin(("b", "a")), begun(), 5)
    assert taken == [("b", 0), ("a", 0), ("b", 1), ("a", 1), ("b", 2)]


def test_one_that_has_run_dry_is_left_out():
    state = begun()._replace(exhausted=frozenset({"b"}))
    assert turns(RoundRobin(("b", "a")), state, 2) == [("a", 0), ("a", 1)]


def test_one_that_fell_behind_catches_up():
    state = begun()._replace(turns={"a": 3, "b": 1})
    assert turns(RoundRobin(("a", "b")), state, 3) == [("b", 1), ("b", 2), ("a", 3)]


def test_when_all_have_run_dry_there_is_nothing_left():
    state = begun()._replace(exhausted=frozenset({"a", "b"}))
    stop = RoundRobin(("a", "b")).next(state)
    assert isinstance(stop, StopReason)
    assert stop.kind == "nothing left to propose"


def test_a_budget_stops_at_its_iterations_failures_and_minutes():
    state = begun()._replace(next_step=5, crashes=2)

    def kind(budget: Budget, elapsed: float = 0.0) -> str | None:
        stop = budget_stop(budget, state, elapsed)
        return stop.kind if stop else None

    assert kind(Budget()) is None
    assert kind(Budget(max_iterations=6)) is None
    assert kind(Budget(max_iterations=5)) == "iterations"
    assert kind(Budget(max_failures=3)) is None
    assert kind(Budget(max_failures=2)) == "failures"
    assert kind(Budget(max_minutes=1), 59.0) is None
    assert kind(Budget(max_minutes=1), 60.0) == "minutes"
    assert kind(Budget(max_iterations=0)) == "iterations"


def tallied(*rows: tuple[float, ...]) -> Evaluation:
    cases = {
        f"c{at}": Tally(len(row), sum(row), sum(loss * loss for loss in row))
        for at, row in enumerate(rows)
    }
    return Evaluation("x", "decide", cases, {}, {}, sum(map(len, rows)))


@pytest.mark.parametrize(
    ("rows", "alike"),
    [
        (((1.0,), (0.0,)), None),
        ((), None),
        (((1.0,), (0.5, 0.5)), True),
        (((0.1, 0.1, 0.1), (1e9, 1e9 + 1)), True),
        (((0.5, 0.5), (1.0, 0.0)), False),
        (((1.0, 0.0), (0.5, 0.5), (1.0,)), False),
    ],
)
def test_repeats_are_alike_if_no_case_that_was_asked_twice_differs(
    rows: tuple[tuple[float, ...], ...], alike: bool | None
):
    assert repeats_alike(tallied(*rows)) is alike
