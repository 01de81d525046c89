"""The state is a fold: what may follow what, and what each event does."""

from dataclasses import replace

import pytest

from kept.core.budget import Budget, Spend, StopReason
from kept.core.edit import Append
from kept.core.event import (
    Event,
    Proposed,
    RunResumed,
    RunSettings,
    RunStarted,
    RunStopped,
    StepClosed,
    StepOpened,
)
from kept.core.proposal import Note, Proposal, Reply, Skip, Turn
from kept.core.rollout import Purpose
from kept.core.score import Evaluation, Tally
from kept.core.state import FoldError, State, advance, fold
from kept.core.verdict import Verdict, VerdictCode

KEEP = Verdict("keep", "better", best=True)
FOLLOW = Verdict("keep", "followed")
DISCARD = Verdict("discard", "worse")
CRASH = Verdict("crash", "died")
EDIT = Proposal((Append("text", "x"),))


def started(t: float = 0.0) -> RunStarted:
    return RunStarted(
        run_id="run", recipe="test", seed="seed", inputs={}, settings=limited(1), version="0", t=t
    )


def limited(rollouts: int) -> RunSettings:
    return RunSettings(gate="strict", budget=Budget(max_rollouts=rollouts), home="here")


def opened(step: int, incumbent: str = "seed", proposer: str = "a") -> StepOpened:
    return StepOpened(step=step, turn=Turn(proposer), incumbent=incumbent, rollouts_at=0, t=0.0)


def proposed(step: int, reply: Reply = EDIT) -> Proposed:
    return Proposed(step=step, reply=reply, t=0.0)


def closed(
    step: int,
    verdict: Verdict = DISCARD,
    candidate: str | None = None,
    incumbent: str = "seed",
    *evaluations: Evaluation,
) -> StepClosed:
    return StepClosed(
        step=step,
        candidate=candidate,
        incumbent=incumbent,
        reports=(),
        verdict=verdict,
        evaluations=evaluations,
        spend=Spend(rollouts=2, usd=0.5),
        rollouts=(0, 0),
        t=float(step + 1),
    )


def one_step(step: int, verdict: Verdict = DISCARD, candidate: str | None = None) -> list[Event]:
    return [opened(step), proposed(step), closed(step, verdict, candidate)]


def evaluated(candidate: str, loss: float, purpose: Purpose = "decide") -> Evaluation:
    cases = {"case": Tally(1, loss, loss * loss)}
    return Evaluation(candidate, purpose, cases, {0: cases["case"]}, {}, 1, loss)


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([opened(0)], "begins with `run_started`"),
        ([RunStopped(reason=StopReason("error", "x"), t=0.0)], "begins with `run_started`"),
        ([started(), started()], "a second `run_started`"),
        ([started(), opened(1)], "step 1 opened, 0 expected"),
        ([started(), opened(0), opened(0)], "step 0 opened, 1 expected"),
        ([started(), opened(0, "other")], "not on the incumbent"),
        ([started(), proposed(0)], "step 0 is not open"),
        ([started(), opened(0), proposed(1)], "step 1 is not open"),
        ([started(), opened(0), proposed(0), proposed(0)], "proposed twice"),
        ([started(), closed(0)], "step 0 is not open"),
        ([started(), opened(0), opened(1), closed(1)], "step 1 closed before step 0"),
        ([started(), *one_step(0), closed(0)], "step 0 is not open"),
        ([started(), opened(0), closed(0, DISCARD, "c", "other")], "a past incumbent"),
        (
            [started(), opened(0), opened(1), closed(0, KEEP, "c"), closed(1, DISCARD, "d")],
            "a past incumbent",
        ),
    ],
)
def test_an_event_that_cannot_follow_is_refused(events: list[Event], problem: str):
    before = fold(events[:-1])
    with pytest.raises(FoldError, match=problem):
        advance(before, events[-1])


def test_a_new_run_stands_on_its_seed():
    state = fold([started()])
    assert (state.seed, state.incumbent, state.best, state.best_step) == ("seed",) * 3 + (None,)
    assert state.settings.gate == "strict"


def test_a_keep_moves_the_incumbent_and_the_open_steps_with_it():
    state = fold([started(), opened(0), opened(1), proposed(1), closed(0, KEEP, "c")])
    assert (state.incumbent, state.best, state.best_step, state.keeps) == ("c", "c", 0, 1)
    (later,) = state.open
    assert (later.incumbent, later.rebases, later.reply) == ("c", 1, EDIT)
    assert "c" in state.judged


def test_a_keep_that_is_not_the_best_moves_the_incumbent_only():
    state = fold([started(), opened(0), closed(0, FOLLOW, "c")])
    assert (state.incumbent, state.best, state.best_step) == ("c", "seed", None)


def test_a_discard_moves_nothing():
    state = fold([started(), opened(0), opened(1), closed(0, DISCARD, "c")])
    assert (state.incumbent, state.best, state.keeps, state.dry) == ("seed", "seed", 0, 1)
    assert state.open[0].rebases == 0
    assert "c" in state.judged


@pytest.mark.parametrize(
    ("code", "judged"), [("indecisive", False), ("stale", False), ("unscored", True)]
)
def test_what_could_not_be_told_may_be_proposed_again(code: VerdictCode, judged: bool):
    state = fold([started(), opened(0), closed(0, Verdict("skip", "why", code), "c")])
    assert ("c" in state.judged) == judged


def test_a_keep_ends_a_dry_spell():
    events = [started(), *one_step(0), *one_step(1), *one_step(2, KEEP, "c")]
    assert fold(events[:-3]).dry == 2
    assert fold(events).dry == 0


def test_crashes_and_spend_are_summed_up():
    state = fold([started(), *one_step(0, CRASH), *one_step(1), *one_step(2, CRASH)])
    assert state.crashes == 2
    assert state.spend == Spend(rollouts=6, usd=1.5)


def test_a_note_becomes_memory_when_its_step_closes():
    note = Note("remember")
    events: list[Event] = [started(), opened(0), proposed(0, note), closed(0)]
    assert fold(events[:-1]).memory == ()
    assert fold(events).memory == (note,)


def test_a_proposer_that_has_no_more_is_exhausted_when_its_step_closes():
    events: list[Event] = [started(), opened(0, proposer="b"), proposed(0, Skip("no", True))]
    assert fold(events).exhausted == frozenset()
    assert fold([*events, closed(0)]).exhausted == {"b"}
    again: list[Event] = [started(), opened(0), proposed(0, Skip("not now")), closed(0)]
    assert fold(again).exhausted == frozenset()


def test_turns_are_counted_by_proposer():
    events = [started(), opened(0), opened(1, proposer="b"), opened(2)]
    assert fold(events).turns == {"a": 2, "b": 1}


def test_a_closed_step_remembers_what_it_was_about():
    end = closed(0, DISCARD, "c", "seed", evaluated("c", 0.25), evaluated("seed", 0.5))
    (step,) = fold([started(), opened(0), proposed(0), end]).history
    assert (step.step, step.turn, step.candidate, step.proposal) == (0, Turn("a"), "c", EDIT)
    assert step.loss == 0.25


def test_the_state_keeps_the_tallies_of_seed_incumbent_and_best_and_of_nobody_else():
    first = closed(0, KEEP, "c", "seed", evaluated("seed", 0.5), evaluated("c", 0.25))
    second = closed(1, DISCARD, "d", "c", evaluated("d", 0.9), evaluated("c", 0.25, "screen"))
    third = closed(2, KEEP, "e", "c", evaluated("e", 0.1))
    events = [started(), opened(0), first, opened(1, "c"), second]
    known = fold(events).evaluations
    assert {id_: [e.purpose for e in found] for id_, found in known.items()} == {
        "seed": ["decide"],
        "c": ["decide", "screen"],
    }
    known = fold([*events, opened(2, "c"), third]).evaluations
    assert set(known) == {"seed", "e"}


def test_newer_tallies_of_the_same_purpose_replace_older_ones():
    first = closed(0, DISCARD, "c", "seed", evaluated("seed", 0.5))
    second = closed(1, DISCARD, "d", "seed", evaluated("seed", 0.4))
    state = fold([started(), opened(0), first, opened(1), second])
    assert [e.loss for e in state.evaluations["seed"]] == [0.4]


def test_time_is_summed_over_the_sittings():
    stop = StopReason("interrupted", "on request")
    events: list[Event] = [started(100.0), RunStopped(reason=stop, t=160.0)]
    assert (fold(events).elapsed, fold(events).stopped) == (60.0, stop)
    events += [RunResumed(version="0", t=1000.0), RunStopped(reason=stop, t=1030.0)]
    assert fold(events).elapsed == 90.0


def test_a_killed_sitting_counts_up_to_its_last_event():
    events: list[Event] = [started(0.0), opened(0), replace(closed(0), t=50.0)]
    resumed = fold([*events, RunResumed(version="0", t=1000.0)])
    assert (resumed.elapsed, resumed.stopped) == (50.0, None)


def test_a_clock_that_was_set_back_takes_no_time_away():
    stop = RunStopped(reason=StopReason("error", "x"), t=40.0)
    assert fold([started(100.0), stop]).elapsed == 0.0


def test_a_resume_may_bring_newer_settings_and_keeps_the_home_of_the_run():
    newer = replace(limited(2), home="")
    state = fold([started(), RunResumed(version="1", settings=newer, facts={"a": 1}, t=0.0)])
    assert state.settings == limited(2)
    assert state.started is not None and state.started.facts == {"a": 1}
    assert fold([started(), RunResumed(version="1", t=0.0)]).settings == limited(1)


def test_folding_goes_on_from_a_state_as_from_the_start():
    events = [started(), *one_step(0, KEEP, "c"), opened(1, "c"), proposed(1)]
    for cut in range(len(events) + 1):
        assert fold(events[cut:], fold(events[:cut])) == fold(events)


def test_an_older_state_does_not_see_what_happened_after_it():
    events = [started(), *one_step(0), *one_step(1)]
    states = [State()]
    for event in events:
        states.append(advance(states[-1], event))
    for cut, state in enumerate(states):
        assert state == fold(events[:cut])
        assert list(state.history) == list(fold(events[:cut]).history)


def test_two_sittings_of_the_same_run_settle_on_the_same_state():
    straight = fold([started(), *one_step(0, KEEP, "c")])
    resumed = fold(
        [started(5.0), opened(0), RunResumed(version="1", t=9.0), *one_step(0, KEEP, "c")[1:]]
    )
    assert straight != resumed
    assert straight.settled() == resumed.settled()


BETTER = Verdict("keep", "better")
SIMPLER = Verdict("keep", "simpler", numbers={"margin": 0.05})
PROMOTED = Verdict("skip", "proven", "promoted", best=True)


def after(*verdicts: tuple[Verdict, str]) -> State:
    """The state after so many steps, one after the other, each with its candidate."""
    state = advance(State(), started())
    for step, (verdict, candidate) in enumerate(verdicts):
        now = state.incumbent
        events = (opened(step, now), proposed(step), closed(step, verdict, candidate, now))
        state = fold(events, state)
    return state


def test_a_simplification_must_not_fall_behind_the_last_that_was_better():
    assert after((SIMPLER, "a"), (SIMPLER, "b")).bars == (), "the best alone"
    assert after((BETTER, "a")).bars == ("a",)
    assert after((BETTER, "a"), (BETTER, "b")).bars == ("b",), "it is better than a"
    assert after((BETTER, "a"), (SIMPLER, "b"), (SIMPLER, "c")).bars == ("a",)
    # d is better than c, which may have been worse than a
    assert after((BETTER, "a"), (SIMPLER, "c"), (BETTER, "d")).bars == ("a", "d")
    assert after((BETTER, "a"), (PROMOTED, "a")).bars == ()


def test_simplifications_are_counted_on_a_line_of_their_own():
    tested = Verdict("discard", "worse", numbers={"margin": 0.05})
    state = after((tested, "a"), (SIMPLER, "b"), (DISCARD, "c"), (BETTER, "d"))
    assert (state.ledger.cuts, state.ledger.cuts_kept) == (2, (2,))
    assert state.ledger.keeps == (4,), "the only one that was kept as better"
    assert state.ledger.tenure == 2


def alone(step: int) -> StepOpened:
    return replace(opened(step), turn=Turn("a", alone=True))


def raced(step: int, verdict: Verdict = DISCARD, *purposes: Purpose) -> list[Event]:
    """A step whose candidate was looked at for these purposes, before the next began."""
    looked = [evaluated("new", 0.5, purpose) for purpose in purposes]
    return [alone(step), proposed(step), closed(step, verdict, "new", "seed", *looked)]


def test_only_what_was_looked_at_on_deciding_cases_has_used_its_level():
    events = [started(), *raced(0, DISCARD, "screen", "decide")]
    assert fold(events).ledger.tests == 1
    dropped = [event for step in range(1, 6) for event in raced(step, DISCARD, "screen")]
    assert fold([*events, *dropped]).ledger.tests == 1, "a screen reads no deciding case"
    kept = fold([*events, *dropped, *raced(6, KEEP, "screen", "decide")])
    assert (kept.ledger.tests, kept.ledger.keeps) == (2, (2,))


def test_a_level_is_not_given_back_when_a_later_step_has_the_next_one():
    events = [started(), alone(0), alone(1), proposed(0)]
    dropped = closed(0, DISCARD, "new", "seed", evaluated("new", 0.5, "screen"))
    state = fold([*events, dropped])
    assert state.ledger.tests == 2
    assert state.open[0].ledger.tests == 1, "the second, and nobody else has that"


def test_a_step_that_was_given_up_keeps_its_level_where_its_race_may_have_looked():
    """It closes without a candidate and without tallies, whatever was read before."""
    unpaid = closed(0, Verdict("skip", "given up: all used", "unaffordable"))
    assert unpaid.candidate is None and not unpaid.evaluations
    more = RunResumed(settings=limited(2), version="0", t=9.0)
    state = fold([started(), alone(0), proposed(0), unpaid, more, alone(1)])
    assert state.open[0].ledger.tests == 1, "the first level is not used twice"
    unasked = fold([started(), alone(0), unpaid, more, alone(1)])
    assert unasked.open[0].ledger.tests == 0, "without a proposal there was nothing to race"


def test_that_repeats_differ_is_told_to_every_open_step_at_once():
    differs = Verdict("discard", "not better", numbers={"varies": 1.0})
    events = [started(), opened(0), opened(1), opened(2), proposed(0)]
    state = fold([*events, closed(0, differs, "a")])
    assert state.ledger.varies
    assert [step.ledger.varies for step in state.open] == [True, True]
    assert [step.ledger.tests for step in state.open] == [1, 2], "each keeps its level"
    assert [step.rebases for step in state.open] == [0, 0]


UNPAID = Verdict("skip", "given up: no call fits", "unaffordable")


def gave_up(event: StepClosed, *later: Event) -> State:
    return fold([started(), opened(0), event, *later])


def test_what_ran_out_when_a_step_was_given_up_is_known_until_there_is_more():
    reason = StopReason("usd", "no call fits")
    event = replace(closed(0, UNPAID), given_up=reason)
    assert gave_up(event).given_up == reason
    assert gave_up(event, *one_step(1)).given_up == reason, "the end goes on"
    same = RunResumed(settings=limited(1), version="0", t=9.0)
    assert gave_up(event, same).given_up == reason
    assert gave_up(event, replace(same, settings=limited(2))).given_up is None


def test_a_journal_that_told_by_a_number_what_ran_out_says_the_same():
    by_number = replace(UNPAID, numbers={"out_of_usd": 1.0})
    assert gave_up(closed(0, by_number)).given_up == StopReason("usd", "no call fits")
    assert gave_up(closed(0, UNPAID)).given_up == StopReason("rollouts", "no call fits")
