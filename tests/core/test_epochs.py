from math import cos, pi

import pytest

from kept.core.budget import Spend, StopReason
from kept.core.event import Proposed, StepClosed, StepOpened
from kept.core.proposal import ProposerFailed, Skip, Turn
from kept.core.rollout import Failure
from kept.core.schedules.epochs import (
    At,
    Curve,
    EpochEnd,
    Epochs,
    batches,
    closed_in,
    edit_cap,
    epoch_order,
)
from kept.core.state import State, advance
from kept.core.turns import Lost, mended
from kept.core.verdict import Verdict, VerdictCode
from kept.testing.suites.sink_schedule import ScheduleSuite, take

OUTAGE = ProposerFailed(Failure("server", "infrastructure", "away"))
IDS = [f"c{n}" for n in range(10)]


@pytest.mark.parametrize(
    ("curve", "caps"),
    [
        ("constant", [8, 8, 8, 8]),
        ("linear", [6, 5, 4, 2]),
        ("cosine", [7, 5, 3, 2]),
        ("autonomous", [None, None, None, None]),
    ],
)
def test_the_edit_cap_follows_its_curve(curve: Curve, caps: list[int | None]):
    assert [edit_cap(curve, 8, 2, step, 4) for step in range(1, 5)] == caps


def test_a_single_step_has_the_greatest_cap():
    assert edit_cap("cosine", 8, 2, 1, 1) == 8 == edit_cap("linear", 8, 2, 1, 1)


def test_the_cosine_is_the_one_of_its_source():
    total = 20
    for step in range(1, total + 1):
        exact = 2 + 0.5 * 6 * (1 + cos(pi * step / total))
        assert edit_cap("cosine", 8, 2, step, total) == max(2, round(exact))


def test_an_epoch_meets_every_case_once_and_each_epoch_in_another_order():
    steps = [batches(IDS, At(1, step), 2, 2, 7) for step in (1, 2, 3)]
    met = [one for step in steps for part in step for one in part]
    assert sorted(met) == sorted(IDS), "without replacement"
    assert [len(part) for step in steps for part in step] == [2, 2, 2, 2, 2]
    assert epoch_order(IDS, 7, 1) != epoch_order(IDS, 7, 2)
    assert epoch_order(IDS, 7, 1) == epoch_order(IDS[::-1], 7, 1), "whatever order they came in"
    assert epoch_order(IDS, 7, 1) != epoch_order(IDS, 8, 1)


def schedule(**more: object) -> Epochs:
    ends = (EpochEnd("slow", 2), EpochEnd("notes", 2, races=False), EpochEnd("back"))
    given: dict[str, object] = {"cases": 10, "epochs": 2, "batch": 4, "ends": ends, **more}
    return Epochs(**given)  # pyright: ignore[reportArgumentType]


class TestConformance(ScheduleSuite):
    def make_schedule(self) -> Epochs:
        return schedule()

    def proposers(self) -> tuple[str, ...]:
        return ("step", "slow", "notes", "back")

    def test_it_ends_with_the_last_epoch(self) -> None:
        last = self.make_schedule().next(self.states()[-1])
        assert isinstance(last, StopReason) and "2 epochs" in last.message

    def test_turns_come_epoch_by_epoch(self) -> None:
        turns = [state.history[-1].turn for state in self.states()[1:]]
        assert [turn.phase for turn in turns] == [
            *("e1/step", "e1/step", "e1/step", "e1/back"),
            *("e2/step", "e2/step", "e2/step", "e2/slow", "e2/notes", "e2/back"),
        ]
        assert [turn.settings["step"] for turn in turns[:4]] == [1, 2, 3, 0]
        assert [turn.races for turn in turns[-3:]] == [True, False, True]

    def test_steps_that_came_to_nothing_do_not_stop_the_curve(self) -> None:
        """In the original only a step that selected edits moved it on."""
        plan, state = schedule(curve="linear", max_edits=8, min_edits=2), self.start()
        caps: list[object] = []
        while isinstance(turn := plan.next(state), Turn):
            caps += [turn.settings["max_edits"]] if turn.proposer == "step" else []
            state = take(state, turn)
        assert caps == [edit_cap("linear", 8, 2, step, 6) for step in range(1, 7)]

    def test_a_turn_that_an_outage_took_is_given_once_more(self) -> None:
        plan, state = self.make_schedule(), self.start()
        first = plan.next(state)
        assert isinstance(first, Turn)
        outage = ProposerFailed(Failure("server", "infrastructure", "away"))
        state = take(state, first, outage)
        assert plan.next(state) == first
        state = take(state, first, outage)
        stop = plan.next(state)
        assert isinstance(stop, StopReason) and stop.kind == "error", "no turn is left behind"


def test_what_follows_every_step_races_in_none():
    suite = TestConformance()
    plan = schedule(after=("flush",))
    first = plan.next(suite.start())
    assert isinstance(first, Turn) and first.races
    second = plan.next(take(suite.start(), first))
    assert isinstance(second, Turn) and (second.proposer, second.races) == ("flush", False)
    assert second.takes, "what is flushed is not compared"


def test_steps_of_an_epoch_may_be_open_together_and_nothing_else_may():
    suite, plan = TestConformance(), schedule()
    state = suite.start()

    def opened(turn: object) -> State:
        assert isinstance(turn, Turn)
        event = StepOpened(
            step=state.next_step, turn=turn, incumbent=state.incumbent, rollouts_at=0, t=0.0
        )
        return advance(state, event)

    state = opened(plan.next(state))
    second = plan.next(state)
    assert isinstance(second, Turn) and second.settings["step"] == 2
    state = opened(second)
    state = opened(plan.next(state))
    waits = plan.next(state)
    assert isinstance(waits, StopReason), "what the epoch ends with waits for its steps"
    flushing = schedule(after=("flush",))
    state = suite.start()
    state = opened(flushing.next(state))
    assert isinstance(flushing.next(state), StopReason), "and so does what follows a step"


class _Together:
    """Steps that are open at the same time."""

    def __init__(self, plan: Epochs) -> None:
        self.plan, self.state = plan, TestConformance().start()

    def open(self) -> Turn:
        turn = self.plan.next(self.state)
        assert isinstance(turn, Turn)
        n, incumbent = self.state.next_step, self.state.incumbent
        event = StepOpened(step=n, turn=turn, incumbent=incumbent, rollouts_at=0, t=0.0)
        self.state = advance(self.state, event)
        return turn

    def close(self, step: int, reply: Skip | ProposerFailed) -> None:
        code: VerdictCode = "nothing proposed" if isinstance(reply, Skip) else "proposer failed"
        proposed = Proposed(step=step, reply=reply, t=0.0)
        shut = StepClosed(
            step=step,
            candidate=None,
            incumbent=self.state.incumbent,
            reports=(),
            verdict=Verdict("skip", "nothing" if isinstance(reply, Skip) else "away", code=code),
            evaluations=(),
            spend=Spend(),
            rollouts=(0, 0),
            t=0.0,
        )
        self.state = advance(advance(self.state, proposed), shut)


def test_a_lost_turn_is_given_again_though_later_ones_were_open_beside_it():
    run = _Together(schedule())
    first, second, third = run.open(), run.open(), run.open()
    run.close(0, OUTAGE)
    run.close(1, OUTAGE)
    assert run.open() == first, "the oldest, while the third is still open"
    run.close(2, Skip("nothing"))
    assert run.open() == second
    assert isinstance(run.plan.next(run.state), StopReason), "the epoch ends when both are done"
    run.close(3, Skip("nothing"))
    run.close(4, Skip("nothing"))
    assert third.settings["step"] == 3
    following = run.plan.next(run.state)
    assert isinstance(following, Turn) and following.phase == "e1/back", "and no step comes twice"


def test_a_turn_that_is_lost_twice_stops_the_run():
    """It was abandoned, and the next step had its turn in the same outage."""
    run = _Together(schedule())
    first = run.open()
    run.open()
    run.close(0, OUTAGE)
    assert run.open() == first
    run.close(1, Skip("nothing"))
    run.close(2, OUTAGE)
    stop = run.plan.next(run.state)
    assert isinstance(stop, StopReason) and stop.kind == "error"
    assert "away" in stop.message, "and says what is"


def test_a_turn_of_an_earlier_epoch_is_given_again_after_the_outage():
    """Only those of the last epoch were, and the training was called finished."""
    run = _Together(schedule(ends=()))
    run.open()
    run.close(0, Skip("nothing"))
    second = run.open()
    run.close(1, OUTAGE)
    run.state = run.state._replace(lost=())  # as it was when an outage was not waited for
    third = run.open()
    run.close(2, Skip("nothing"))
    later = run.open()
    assert later.phase == "e2/step"
    run.close(3, OUTAGE)
    lost = (Lost(second.proposer, second.number), *run.state.lost)
    run.state = run.state._replace(lost=mended(lost))
    assert run.open() == second
    run.close(4, Skip("nothing"))
    assert run.open() == later
    run.close(5, Skip("nothing"))
    last = run.open()
    assert (last.phase, last.settings["step"]) == ("e2/step", 2)
    assert third.settings["step"] == 3
    first_epoch = closed_in(run.state.history, 1)
    assert [step.step for step in first_epoch] == [0, 1, 2, 4]
    assert [step.step for step in closed_in(run.state.history, 2)] == [3, 5]
