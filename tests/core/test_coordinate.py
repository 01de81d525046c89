"""The schedule of coordinate descent: phases in turn, until a whole cycle is dry."""

from dataclasses import replace

import pytest

from kept.core.budget import StopReason
from kept.core.proposal import ClosedStep, History, Proposal, Skip, Turn
from kept.core.schedules.coordinate import BASELINE, Coordinate, Phase, cycle_of, end_of, phase_of
from kept.core.schedules.round_robin import MEASURE
from kept.core.score import Evaluation, Tally
from kept.core.state import State
from kept.core.verdict import Verdict, VerdictKind

NUMERIC = Phase("numeric", "numeric", max_trials=4, patience=2)
TEXTUAL = Phase("textual", "critique", 3, 2, axes=("instructions", "tools[name=a].description"))
PLAN = Coordinate((NUMERIC, TEXTUAL), max_cycles=2, perfect=0.0)


def closed(turn: Turn, outcome: VerdictKind, skip: Skip | None = None) -> ClosedStep:
    verdict = Verdict(outcome, "because")
    proposal = None if skip else Proposal(())
    return ClosedStep(0, turn, "old", "new", proposal, (), verdict, skip=skip)


def after(state: State, step: ClosedStep) -> State:
    turns = {**state.turns, step.turn.proposer: state.turns.get(step.turn.proposer, 0) + 1}
    return state._replace(
        history=state.history.add(step), next_step=state.next_step + 1, turns=turns
    )


def go(plan: Coordinate, outcomes: str) -> tuple[list[str], StopReason | None, State]:
    """What is asked for while steps end so: k for a keep, any other letter for a discard."""
    state, asked = State(incumbent="old"), list[str]()
    for letter in outcomes:
        turn = plan.next(state)
        if isinstance(turn, StopReason):
            return asked, turn, state
        axis = turn.settings.get("axis")
        asked.append(f"{turn.phase} {turn.number}" + (f" {axis}" if axis else ""))
        state = after(state, closed(turn, "keep" if letter == "k" else "discard"))
    return asked, None, state


def test_a_run_begins_with_the_seed_measured():
    first = PLAN.next(State())
    assert isinstance(first, Turn)
    assert (first.proposer, first.phase, first.races) == (MEASURE, BASELINE, False)


def test_a_phase_ends_when_its_trials_without_a_keep_are_as_many_as_its_patience():
    asked, _, _ = go(PLAN, ".dkddd")
    assert asked[1:] == [
        "c1/numeric 0",
        "c1/numeric 1",
        "c1/numeric 2",
        "c1/numeric 3",
        "c1/textual 0 instructions",
    ]


def test_a_phase_ends_with_its_last_trial():
    asked, _, _ = go(PLAN, ".kkkkk")
    assert asked[5] == "c1/textual 0 instructions"


def test_texts_take_turns_and_go_on_where_the_last_phase_ended():
    asked, _, _ = go(PLAN, ".dd" + "kkk" + "dd" + "d")
    assert [row for row in asked if "textual" in row] == [
        "c1/textual 0 instructions",
        "c1/textual 1 tools[name=a].description",
        "c1/textual 2 instructions",
        "c2/textual 0 tools[name=a].description",
    ]


def test_a_cycle_without_a_keep_ends_the_run():
    asked, stop, _ = go(PLAN, "." + "dd" + "dd" + "d")
    assert len(asked) == 5
    assert stop is not None
    assert (stop.kind, stop.message) == ("converged", "nothing was kept in the whole of cycle 1")


def test_a_keep_in_either_phase_earns_another_cycle_up_to_the_limit():
    asked, stop, _ = go(PLAN, "." + "dd" + "kdd" + "kdd" + "dd" + "d")
    assert asked[6] == "c2/numeric 0"
    assert stop is not None
    assert (stop.kind, stop.message) == ("iterations", "2 cycles done, the limit")


def test_the_keep_of_an_earlier_cycle_earns_nothing_more():
    long = Coordinate(PLAN.phases, max_cycles=9)
    _, stop, _ = go(long, "." + "kdd" + "dd" + "dd" + "dd" + "d")
    assert stop is not None
    assert stop.message == "nothing was kept in the whole of cycle 2"


def test_a_loss_of_nothing_ends_the_run():
    _, _, state = go(PLAN, ".k")
    whole = Evaluation("old", "decide", {"a": Tally(1, 0.0, 0.0)}, {}, {}, 1, loss=0.0)
    stop = PLAN.next(state._replace(evaluations={"old": (whole,)}))
    assert isinstance(stop, StopReason)
    assert stop.kind == "converged"
    part = replace(whole, missing=1)
    assert isinstance(PLAN.next(state._replace(evaluations={"old": (part,)})), Turn)


def test_a_phase_runs_its_warm_up_whatever_its_patience():
    warm = replace(NUMERIC, least=3)
    steps = [closed(Turn("numeric", "c1/numeric"), "discard")] * 2
    assert end_of(NUMERIC, steps) == "patience"
    assert end_of(warm, steps) == ""
    assert end_of(warm, [*steps, steps[0]]) == "patience"


@pytest.mark.parametrize(
    ("skip", "why"),
    [
        (Skip("no gain to be had", ends="converged"), "converged"),
        (Skip("all points were tried", exhausted=True), "exhausted"),
        (Skip("low confidence"), ""),
    ],
)
def test_a_proposer_may_say_that_the_phase_is_over(skip: Skip, why: str):
    assert end_of(NUMERIC, [closed(Turn("numeric", "c1/numeric"), "skip", skip)]) == why


def test_what_the_run_itself_measures_is_of_no_phase():
    turn = Turn("numeric", "c1/numeric")
    own = closed(Turn("prove", "race"), "skip")
    state = State(
        next_step=3, history=History([closed(turn, "discard"), own]), turns={"numeric": 1}
    )
    following = PLAN.next(state)
    assert isinstance(following, Turn)
    assert (following.phase, following.number) == ("c1/numeric", 1)


def test_labels_name_cycle_and_phase():
    assert (cycle_of("c12/textual"), phase_of("c12/textual")) == (12, "textual")
    assert (cycle_of(BASELINE), phase_of(BASELINE)) == (0, BASELINE)
    assert cycle_of("race") == 0
