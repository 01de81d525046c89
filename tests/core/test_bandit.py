"""Turns by what proposers have brought."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kept.core.edit import Append
from kept.core.event import Proposed, StepClosed, StepOpened
from kept.core.objective import Objective
from kept.core.proposal import MERGE, Proposal, Turn
from kept.core.rollout import Pair, Usage
from kept.core.schedules.bandit import FIRST, FLOOR, Bandit, shares
from kept.core.schedules.round_robin import RoundRobin
from kept.core.score import Evaluation, Outcome, summarize
from kept.core.state import State, advance
from kept.core.turns import DISCOUNT, MOST_FAILED, NOTHING, Brought
from kept.core.verdict import Verdict
from kept.testing.suites.sink_schedule import ScheduleSuite, take

EDIT = Proposal((Append("text", "more\n"),))
FAILED = Verdict("crash", "the proposer failed", code="proposer failed")
DULL = Verdict("discard", "no better", numbers={"gain": -0.1})


def begun() -> State:
    return ScheduleSuite().start()


def drawn(schedule: Bandit, state: State) -> Turn:
    turn = schedule.next(state)
    assert isinstance(turn, Turn)
    return turn


def close(
    state: State, turn: Turn, verdict: Verdict, reply: Proposal = EDIT, rollouts: int = 10
) -> State:
    """The state after a step that came to this."""
    step = state.next_step
    shown = Evaluation(f"c{step}", "screen", {}, {}, {}, rollouts, usd=0.0)
    opened = StepOpened(step=step, turn=turn, incumbent=state.incumbent, rollouts_at=0, t=0.0)
    closed = StepClosed(
        step=step,
        candidate=f"c{step}",
        incumbent=state.incumbent,
        reports=(),
        verdict=verdict,
        evaluations=(shown,),
        spend=replace(state.spend, rollouts=rollouts),
        rollouts=(0, 0),
        t=0.0,
    )
    for event in (opened, Proposed(step=step, reply=reply, t=0.0), closed):
        state = advance(state, event)
    return state


def keep(gain: float) -> Verdict:
    return Verdict("keep", "better", numbers={"gain": gain})


def near(gain: float) -> Verdict:
    return Verdict("discard", "near", code="near miss", numbers={"screen_gain": gain})


def play(worth: dict[str, Verdict], turns: int, costs: Sequence[int] = (10, 10)) -> State:
    """A run in which each proposer always comes to the same, for the same rollouts."""
    schedule, state = Bandit(tuple(worth), seed=5), begun()
    price = dict(zip(worth, costs, strict=True))
    for _ in range(turns):
        turn = drawn(schedule, state)
        state = close(state, turn, worth[turn.proposer], rollouts=price[turn.proposer])
    return state


def test_every_proposer_has_its_first_turns_before_any_counts():
    schedule, state, seen = Bandit(("b", "a")), begun(), list[str]()
    for _ in range(2 * FIRST):
        turn = drawn(schedule, state)
        assert not turn.shares, "nothing was drawn yet"
        seen.append(turn.proposer)
        state = close(state, turn, keep(1.0) if turn.proposer == "a" else DULL)
    assert seen == ["b", "a"] * FIRST
    assert drawn(schedule, state).shares.keys() == {"a", "b"}


def test_who_gains_more_has_more_turns_and_the_other_keeps_the_floor():
    state = play({"good": keep(0.2), "bad": DULL}, 100)
    assert state.turns["good"] > 70
    last = state.history[-1].turn.shares
    assert last == pytest.approx({"good": 1 - FLOOR, "bad": FLOOR}, abs=0.01)
    assert state.turns["bad"] >= 100 * FLOOR / 2


def test_of_two_that_gain_alike_the_dearer_has_fewer_turns():
    state = play({"cheap": keep(0.1), "dear": keep(0.1)}, 100, costs=(10, 40))
    assert state.turns["cheap"] > 1.5 * state.turns["dear"]


def test_money_is_the_cost_where_there_is_any():
    cheap = Brought(turns=5, wins=3, gain=0.3, rollouts=100, usd=0.1)
    dear = cheap._replace(rollouts=10, usd=1.0)
    found = shares({"cheap": cheap, "dear": dear})
    assert found["cheap"] > 0.7
    free = shares({"cheap": cheap._replace(usd=0.0), "dear": dear._replace(usd=0.0)})
    assert free["cheap"] < 0.3, "without money, rollouts are the cost"


@pytest.mark.parametrize("count", [2, 3, 8])
def test_shares_are_one_together_and_nobody_is_without(count: int):
    brought = {f"p{n}": Brought(turns=9, wins=n, gain=float(n), rollouts=90) for n in range(count)}
    found = shares(brought)
    assert sum(found.values()) == pytest.approx(1.0, abs=0.01)
    assert min(found.values()) >= min(FLOOR, 1 / (2 * count)) - 0.001
    assert list(found.values()) == sorted(found.values()), "the more it brought, the more it has"


def test_nothing_brought_by_anybody_leaves_equal_shares_at_equal_cost():
    row = Brought(turns=4, rollouts=40)
    assert shares({"a": row, "b": row}) == {"a": 0.5, "b": 0.5}
    assert shares({"a": NOTHING, "b": NOTHING}) == {"a": 0.5, "b": 0.5}


def test_texts_of_people_and_simpler_texts_have_an_equal_part_as_they_come():
    schedule, state = Bandit(("good", "mine", "bad", "prune"), 3, frozenset({"mine"})), begun()
    simpler = replace(EDIT, simplifies=True)
    for _ in range(80):
        turn = drawn(schedule, state)
        assert turn.shares.keys() <= {"good", "bad"}
        verdict = keep(0.2) if turn.proposer == "good" else DULL
        state = close(state, turn, verdict, simpler if turn.proposer == "prune" else EDIT)
    assert (state.turns["mine"], state.turns["prune"]) == (20, 20)
    assert state.turns["good"] > 2 * state.turns["bad"]


def test_with_one_more_besides_texts_of_people_all_go_in_turn():
    schedule, state = Bandit(("mine", "edit"), 3, frozenset({"mine"})), begun()
    for at in range(9):
        turn = drawn(schedule, state)
        assert (turn.proposer, dict(turn.shares)) == (("mine", "edit")[at % 2], {})
        state = close(state, turn, DULL)


def test_one_that_has_run_dry_is_left_out_and_the_last_has_all_turns():
    state = play({"good": keep(0.2), "bad": DULL}, 20)
    dry = state._replace(exhausted=frozenset({"good"}))
    for _ in range(10):
        turn = drawn(Bandit(("good", "bad"), 5), dry)
        assert (turn.proposer, dict(turn.shares)) == ("bad", {})
        dry = take(dry, turn)


def test_turns_that_failed_cost_what_a_turn_costs_and_brought_nothing():
    fine = Brought(turns=6, wins=2, gain=0.4, rollouts=60)
    dull = Brought(turns=6, wins=1, gain=0.2, rollouts=60)
    before = shares({"fine": fine, "dull": dull})
    failed = fine._replace(turns=14, failed=8)
    after = shares({"fine": failed, "dull": dull})
    assert before["fine"] > 0.6
    assert after["fine"] < 0.5
    # as if they had been run and come to nothing
    told = shares({"fine": fine._replace(turns=14, rollouts=140), "dull": dull})
    assert after["fine"] == pytest.approx(told["fine"], abs=0.01)


@pytest.mark.parametrize("schedule", [Bandit(("a", "b"), 5), RoundRobin(("a", "b"))])
def test_who_fails_three_times_in_a_row_has_no_more_turns(schedule: Bandit | RoundRobin):
    state = begun()
    for at in range(20):
        turn = schedule.next(state)
        assert isinstance(turn, Turn)
        fine = turn.proposer == "b" or at < 2
        state = close(state, turn, DULL if fine else FAILED)
    assert (state.turns["a"], state.brought["a"].failed) == (1 + MOST_FAILED, MOST_FAILED)
    assert state.brought["a"].out and not state.brought["b"].out


def test_one_that_failed_twice_and_then_proposed_is_asked_on():
    state = begun()
    for verdict in (FAILED, FAILED, DULL, FAILED, FAILED):
        state = close(state, Turn("a"), verdict)
    assert (state.brought["a"].failed, state.brought["a"].in_a_row) == (4, 2)
    assert not state.brought["a"].out


def test_where_all_have_failed_too_often_all_are_asked_again():
    """As after an outage: a resume has somebody to ask."""
    state = begun()
    for name in ("a", "b") * MOST_FAILED:
        state = close(state, Turn(name), FAILED)
    assert drawn(Bandit(("a", "b")), state).proposer in ("a", "b")
    state = close(state, Turn("a"), DULL)
    assert drawn(Bandit(("a", "b")), state).proposer == "a"


def test_another_seed_draws_otherwise_and_the_same_one_alike():
    worth = {"good": keep(0.1), "bad": near(0.1)}
    state = play(worth, 12)

    def names(seed: int) -> list[str]:
        found, past = list[str](), state
        for _ in range(30):
            turn = drawn(Bandit(tuple(worth), seed), past)
            found.append(turn.proposer)
            past = close(past, turn, worth[turn.proposer])
        return found

    assert names(1) == names(1)
    assert names(1) != names(2)


def test_what_is_open_counts_as_a_turn_and_for_nothing_else():
    state = play({"good": keep(0.2), "bad": DULL}, 10)
    schedule = Bandit(("good", "bad"), 5)
    turn = drawn(schedule, state)
    waits = advance(
        state,
        StepOpened(step=10, turn=turn, incumbent=state.incumbent, rollouts_at=0, t=0.0),
    )
    told = advance(waits, Proposed(step=10, reply=EDIT, t=0.0))
    assert drawn(schedule, told) == drawn(schedule, waits), "a reply is no result"
    assert waits.brought == state.brought
    assert drawn(schedule, waits).number == waits.turns[drawn(schedule, waits).proposer]


def test_what_is_kept_together_is_credited_to_those_it_came_from():
    state = begun()
    for name, worth in (("a", 0.3), ("b", 0.1), ("a", 0.2)):
        state = close(state, Turn(name), near(worth))
    assert state.brought["a"].gain == pytest.approx(DISCOUNT * 0.5)
    together = Proposal(EDIT.edits, merges=(0, 1))
    state = close(state, Turn(MERGE), keep(0.8), together)
    a, b = state.brought["a"], state.brought["b"]
    # three quarters of what was kept, and one near miss that still waits
    assert (a.gain, a.keeps, a.near, a.wins) == (pytest.approx(0.6 + 0.1), 1, 2, 2)
    assert (b.gain, b.keeps, b.near, b.wins) == (pytest.approx(0.2), 1, 1, 1)
    assert state.brought[MERGE].gain == 0.0


def test_near_misses_that_come_to_nothing_count_for_nothing():
    state = close(begun(), Turn("a"), near(0.3))
    lost = Verdict("discard", "not better", numbers={"gain": -0.1})
    state = close(state, Turn(MERGE), lost, Proposal(EDIT.edits, merges=(0,)))
    assert state.pool == ()
    assert (state.brought["a"].gain, state.brought["a"].wins) == (0.0, 0)
    assert state.brought["a"].near == 1


@pytest.mark.parametrize("repeats", [1, 2])
def test_what_rollouts_cost_is_summed_up_with_what_they_measured(repeats: int):
    paid = Outcome({"score": 1.0}, usage=Usage(calls=1, usd=0.25))
    pairs = [Pair(f"c{n}", repeat) for repeat in range(repeats) for n in range(3)]
    found = summarize("c", "screen", [(pair, paid) for pair in pairs], Objective())
    assert (found.usd, found.asked) == (0.75 * repeats, 3 * repeats)
    free = [(pair, Outcome({"score": 1.0})) for pair in pairs]
    assert summarize("c", "screen", free, Objective()).usd == 0.0


def test_the_cost_is_of_the_own_candidate_and_of_the_calls_behind_it():
    shown = {
        "mine": Evaluation("c", "screen", {}, {}, {}, 7, usd=0.5),
        "other": Evaluation("seed", "screen", {}, {}, {}, 90, usd=9.0),
    }
    state = begun()
    opened = StepOpened(step=0, turn=Turn("a"), incumbent="seed", rollouts_at=0, t=0.0)
    spend = replace(state.spend, usd=0.25, proposing_usd=0.25)
    closed = StepClosed(
        step=0,
        candidate="c",
        incumbent="seed",
        reports=(),
        verdict=DULL,
        evaluations=tuple(shown.values()),
        spend=replace(spend, rollouts=97, usd=9.75),
        rollouts=(0, 0),
        t=0.0,
    )
    for event in (opened, Proposed(step=0, reply=EDIT, spend=spend, t=0.0), closed):
        state = advance(state, event)
    assert (state.brought["a"].rollouts, state.brought["a"].usd) == (7, 0.75)
