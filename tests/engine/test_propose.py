"""From a brief to a reply: what a proposer is told, may ask, and what becomes of its faults."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from kept.core.budget import Budget, StopReason
from kept.core.edit import Append
from kept.core.event import Proposed, RunStopped, StepClosed, StepOpened
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Clock, Proposer, Scope
from kept.core.proposal import (
    Ask,
    Brief,
    Note,
    Proposal,
    ProposerFailed,
    ProposerReply,
    Skip,
    Turn,
    derive_seed,
)
from kept.core.rollout import Failure, Job, Pair, Purpose, Usage
from kept.core.state import State
from kept.errors import RunError
from kept.proposers.function import FunctionProposer
from kept.recipes.gate_choice import schedule_of
from kept.testing import (
    MemoryJournal,
    Pool,
    ScriptedEvaluator,
    ScriptedModel,
    ScriptedProposer,
    sit,
    small_plan,
)
from kept.testing.journal import CallRecord

POOL = Pool()
AWAY = Failure("server", "infrastructure", "503")
REQUEST = ModelRequest((Message("user", "well?"),))


def plan_of(*proposers: Proposer, steps: int = 1, width: int = 1) -> Plan:
    plan = small_plan(ScriptedEvaluator(quality=POOL.quality, traces=True), *proposers)
    return replace(plan, budget=Budget(max_iterations=steps), width=width)


def run(plan: Plan, journal: MemoryJournal | None = None) -> State:
    return asyncio.run(sit(plan, MemoryJournal() if journal is None else journal))


def log_of(plan: Plan) -> list[Job]:
    assert isinstance(plan.runner, ScriptedEvaluator)
    return plan.runner.log


def verdicts(state: State) -> list[tuple[str, str]]:
    return [(step.verdict.outcome, step.verdict.code) for step in state.history]


def test_an_ask_is_answered_and_the_proposer_called_again_with_the_same_brief():
    briefs: list[Brief] = []

    def propose(brief: Brief) -> ProposerReply:
        briefs.append(brief)
        if not brief.answers:
            pairs = tuple(Pair(case.id, 0) for case in brief.train)
            return Ask(brief.incumbent.id, pairs, "feedback")
        return Skip("seen enough")

    plan = plan_of(FunctionProposer(propose))
    run(plan)
    first, second = briefs
    assert replace(second, answers=()) == first
    (answer,) = second.answers
    assert [outcome.metrics for outcome in answer.outcomes.values()] == [{"score": 0.5}] * 2
    assert [pair.case for pair in answer.outcomes] == ["train-0", "train-1"]
    assert [trace[0].text for trace in answer.traces.values()] == ["train-0: 0.5", "train-1: 0.5"]
    assert [job.purpose for job in log_of(plan)] == ["feedback"] * 2


def test_asks_may_follow_one_another():
    def propose(brief: Brief) -> ProposerReply:
        if len(brief.answers) < 3:
            pair = Pair(brief.train[0].id, len(brief.answers))
            return Ask(brief.incumbent.id, (pair,), "probe")
        return Note(f"{len(brief.answers)} answers")

    plan = plan_of(FunctionProposer(propose))
    assert run(plan).memory == (Note("3 answers"),)
    assert [job.repeat for job in log_of(plan)] == [0, 1, 2]


def test_model_calls_made_before_an_ask_are_replayed_and_paid_once():
    model = ScriptedModel(["an idea"], usage=Usage(calls=1, tokens_in=7, tokens_out=3, usd=0.25))
    proposer = ScriptedProposer(lines=POOL.lines, model=model, feedback=1)
    journal = MemoryJournal()
    state = run(plan_of(proposer), journal)
    assert model.calls == 1
    (step,) = state.history
    assert step.proposal is not None
    assert step.proposal.why == "an idea"
    assert (state.spend.calls, state.spend.tokens_in, state.spend.usd) == (1, 7, 0.25)


def test_equal_requests_get_their_own_replies_in_order():
    model = ScriptedModel(["one", "two", "three"])
    said: list[list[str]] = []

    async def propose(brief: Brief, scope: Scope) -> ProposerReply:
        words: list[str] = []
        for _ in range(2):
            reply = await scope.call(REQUEST, ModelReply, lambda: model.complete(REQUEST))
            assert isinstance(reply, ModelReply)
            words.append(reply.text)
        branch = scope.branch("aside")
        reply = await branch.call(REQUEST, ModelReply, lambda: model.complete(REQUEST))
        assert isinstance(reply, ModelReply)
        said.append([*words, reply.text])
        if not brief.answers:
            return Ask(brief.incumbent.id, (Pair(brief.train[0].id, 0),), "feedback")
        return Skip("done")

    state = run(plan_of(FunctionProposer(propose)))
    assert said == [["one", "two", "three"]] * 2
    assert model.calls == 3
    assert state.spend.calls == 3


def test_a_run_that_was_cut_after_the_model_answered_does_not_ask_it_again():
    model = ScriptedModel(lambda request: "an idea")
    proposer = ScriptedProposer(lines=POOL.lines, model=model, feedback=1)
    whole = MemoryJournal()
    end = run(plan_of(proposer, steps=3), whole)
    calls = model.calls
    for records in range(2, len(whole.records)):
        model.requests.clear()
        cut = whole.reopened(records)
        known = sum(isinstance(record, CallRecord) for record in cut.records)
        assert run(plan_of(proposer, steps=3), cut).settled() == end.settled()
        assert model.calls == calls - known


@pytest.mark.parametrize(
    ("case", "purpose"),
    [
        ("holdout-0", "feedback"),
        ("holdout-0", "probe"),
        ("train-0", "decide"),
        ("train-0", "screen"),
        ("train-0", "test"),
        ("nowhere", "feedback"),
    ],
)
def test_asking_for_what_a_proposer_may_not_see_stops_the_run(case: str, purpose: Purpose):
    def peek(brief: Brief) -> ProposerReply:
        return Ask(brief.incumbent.id, (Pair(brief.train[0].id, 0), Pair(case, 0)), purpose)

    journal = MemoryJournal()
    plan = plan_of(FunctionProposer(peek))
    with pytest.raises(RunError, match="`peek` asked for rollouts it may not see") as caught:
        run(plan, journal)
    assert caught.value.hint is not None
    assert log_of(plan) == []
    last = journal.events[-1]
    assert isinstance(last, RunStopped)
    assert last.reason == StopReason("error", caught.value.message)


def push(brief: Brief) -> ProposerReply:
    return Proposal((Append("text", "better, surely\n"),), ungated=True)


@dataclass(frozen=True)
class Quiet:
    """A schedule whose turns may not race, as those of a run that pools near misses."""

    takes: bool = False

    def next(self, state: State) -> Turn | StopReason:
        return Turn("push", races=False, takes=self.takes)

    def last(self, state: State) -> Turn | None:
        return None


def test_a_proposer_cannot_have_its_text_taken_because_its_turn_does_not_race():
    journal = MemoryJournal()
    plan = replace(plan_of(FunctionProposer(push)), schedule=Quiet())
    with pytest.raises(RunError, match="`push` wants its text taken without a com") as caught:
        run(plan, journal)
    assert caught.value.hint is not None
    assert not any(isinstance(event, Proposed | StepClosed) for event in journal.events)
    # the step is open and has no reply: who mends the proposer can go on

    def mended(brief: Brief) -> ProposerReply:
        return Skip("mended")

    state = run(replace(plan, proposers=(FunctionProposer(mended, name="push"),)), journal)
    assert verdicts(state) == [("skip", "nothing proposed")]


def test_what_a_turn_takes_is_kept_without_a_rollout():
    plan = replace(plan_of(FunctionProposer(push)), schedule=Quiet(takes=True))
    state = run(plan)
    assert verdicts(state) == [("keep", "taken")]
    assert state.incumbent != state.seed and log_of(plan) == []


def test_a_reply_of_an_older_journal_that_no_turn_takes_is_compared():
    """There the turn did not say so; whoever wrote it, the gate decides."""
    written, old = MemoryJournal(), MemoryJournal()
    plan = replace(plan_of(FunctionProposer(push)), schedule=Quiet(takes=True))
    run(plan, written)
    old.save(plan.seed)
    for event in written.events:
        if isinstance(event, StepOpened):
            old.append(replace(event, turn=Turn("push", races=False)))
        elif not isinstance(event, StepClosed | RunStopped):
            old.append(event)
    state = run(plan, old)
    assert state.history[0].verdict.code != "taken" and log_of(plan)


def test_an_exception_in_a_proposer_is_a_crash_with_its_message():
    def broken(brief: Brief) -> str:
        raise KeyError("temperature")

    journal = MemoryJournal()
    state = run(plan_of(FunctionProposer(broken), steps=2), journal)
    assert verdicts(state) == [("crash", "proposer failed")] * 2
    reason = state.history[0].verdict.reason
    assert reason.startswith("the proposer `broken` failed: KeyError: 'temperature' (")
    assert "tests/engine/test_propose.py:" in reason, "where it was raised"
    proposed = [event for event in journal.events if isinstance(event, Proposed)]
    assert all(isinstance(event.reply, ProposerFailed) for event in proposed)


def test_a_proposer_that_cancels_itself_is_a_crash_too():
    async def confused(brief: Brief) -> str:
        raise asyncio.CancelledError

    assert verdicts(run(plan_of(FunctionProposer(confused)))) == [("crash", "proposer failed")]


def test_a_failure_that_a_proposer_returns_is_a_crash_too():
    model = ScriptedModel([])
    state = run(plan_of(ScriptedProposer(lines=POOL.lines, model=model)))
    assert verdicts(state) == [("crash", "proposer failed")]
    assert "the script ends" in state.history[0].verdict.reason


def test_a_model_that_was_away_is_asked_again_by_the_next_step():
    model = ScriptedModel(lambda request: "an idea")
    model.fail(AWAY)
    state = run(plan_of(ScriptedProposer(lines=POOL.lines, model=model), steps=2))
    assert [code for _, code in verdicts(state)] == ["proposer failed", "judged"]


@pytest.mark.parametrize("width", [1, 3])
def test_a_proposer_that_keeps_failing_is_left_out_and_the_other_goes_on(width: int):
    def broken(brief: Brief) -> str:
        raise KeyError("temperature")

    other = ScriptedProposer(lines=POOL.lines)
    plan = plan_of(FunctionProposer(broken), other, steps=14, width=width)
    schedule = schedule_of(plan.proposers, "bandit", 1)
    state = run(replace(plan, schedule=schedule))
    assert state.brought["broken"].failed < 3 + width
    assert state.next_step == 14, "the run goes on with the other"
    assert state.stopped is not None and state.stopped.kind == "iterations"


def test_a_run_ends_when_everybody_keeps_failing():
    def broken(brief: Brief) -> str:
        raise KeyError("temperature")

    def torn(brief: Brief) -> str:
        raise ValueError("torn")

    state = run(plan_of(FunctionProposer(broken), FunctionProposer(torn), steps=20))
    assert dict(state.turns) == {"broken": 3, "torn": 3}
    assert state.stopped is not None
    assert (state.stopped.kind, "ValueError: torn" in state.stopped.message) == ("error", True)


@pytest.mark.parametrize("answer", [7, ["a"], object(), b"bytes"])
def test_a_reply_that_is_none_is_a_crash_that_shows_it(answer: object):
    def strange(brief: Brief) -> object:
        return answer

    state = run(plan_of(FunctionProposer(strange)))
    assert verdicts(state) == [("crash", "proposer failed")]
    assert "not a text" in state.history[0].verdict.reason


def test_none_is_nothing_to_propose():
    def nothing(brief: Brief) -> None:
        return None

    assert verdicts(run(plan_of(FunctionProposer(nothing)))) == [("skip", "nothing proposed")]


def test_every_step_has_a_seed_of_its_own_and_the_same_one_in_every_run():
    def seeds(random_seed: int) -> list[int]:
        seen: list[int] = []

        def look(brief: Brief) -> None:
            seen.append(brief.seed)

        run(replace(plan_of(FunctionProposer(look), steps=5), random_seed=random_seed))
        return seen

    assert seeds(0) == seeds(0) == [derive_seed(0, "main", step) for step in range(5)]
    assert len(set(seeds(0))) == 5
    assert not set(seeds(0)) & set(seeds(1))


def briefs_of(propose: Callable[[Brief], object], steps: int, width: int) -> list[Brief]:
    seen: list[Brief] = []

    def look(brief: Brief) -> object:
        seen.append(brief)
        return propose(brief)

    run(plan_of(FunctionProposer(look), steps=steps, width=width))
    return sorted(seen, key=lambda brief: brief.step)


def test_a_brief_tells_what_earlier_steps_came_to():
    lines = (POOL.useless[0], POOL.good[0], POOL.harmful[0])
    briefs = briefs_of(lambda brief: brief.incumbent.text + lines[brief.step] + "\n", 3, 1)
    outcomes = [[step.verdict.outcome for step in brief.history] for brief in briefs]
    assert outcomes == [[], ["discard"], ["discard", "keep"]]
    assert briefs[2].incumbent.text.endswith(POOL.good[0] + "\n")
    assert [brief.turn.number for brief in briefs] == [0, 1, 2]


def test_a_serial_proposer_sees_the_proposals_that_are_still_being_judged():
    briefs = briefs_of(lambda brief: f"text {brief.step}", 6, 3)
    texts = [[getattr(p.edits[0], "text", "") for p in brief.open] for brief in briefs]
    assert texts[:3] == [[], ["text 0"], ["text 0", "text 1"]]
    assert texts[5] == ["text 3", "text 4"]


def test_a_proposer_that_is_not_serial_sees_none():
    seen: list[int] = []

    class Looker:
        name = "looker"
        serial = False

        async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
            seen.append(len(brief.open))
            return Proposal(())

    run(plan_of(Looker(), steps=6, width=3))
    assert seen == [0] * 6


def test_notes_reach_later_briefs():
    def take(brief: Brief) -> Note:
        return Note(f"note {brief.step}", "topic")

    briefs = briefs_of(take, 3, 1)
    assert [[note.text for note in brief.memory] for brief in briefs] == [
        [],
        ["note 0"],
        ["note 0", "note 1"],
    ]


@dataclass
class Crowd:
    """Counts how many of its proposals are being made at once."""

    serial: bool
    name: str = "crowd"
    flying: int = 0
    peak: int = 0

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        self.flying += 1
        self.peak = max(self.peak, self.flying)
        for _ in range(5):
            await asyncio.sleep(0)
        self.flying -= 1
        return Proposal((Append("text", f"{brief.step}\n"),))


@pytest.mark.parametrize(("serial", "peak"), [(False, 4), (True, 1)])
def test_as_many_proposals_are_made_at_once_as_the_width_says_unless_they_must_see_each_other(
    serial: bool, peak: int
):
    crowd = Crowd(serial)
    run(plan_of(crowd, steps=10, width=4))
    assert crowd.peak == peak


def test_what_elders_proposed_is_told_after_a_narrow_resume_too():
    """However slow one of them is: while it is waited for, the one before it may be forgotten."""
    told: dict[int, int] = {}

    @dataclass(frozen=True)
    class Slow:
        clock: Clock
        slow: tuple[int, ...]
        name: str = "slow"
        serial: bool = True

        async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
            told[brief.step] = len(brief.open)
            if brief.step in self.slow:
                await self.clock.sleep(1000)
            return Proposal((Append("text", f"line {brief.step}\n"),))

    def sitting(journal: MemoryJournal, width: int, slow: tuple[int, ...]) -> None:
        evaluator = ScriptedEvaluator(quality=lambda candidate, case: 0.5)
        plan = small_plan(evaluator, Slow(evaluator.clock, slow))
        plan = replace(plan, width=width, budget=Budget(max_iterations=10))
        asyncio.run(sit(plan, journal, evaluator.clock))

    whole = MemoryJournal()
    sitting(whole, width=10, slow=(7,))
    first, told = told, {}
    closed = (isinstance(one, StepClosed) and one.step == 6 for one in whole.records)
    cut = whole.reopened(next(at for at, last in enumerate(closed, 1) if last))
    assert not any(isinstance(one, Proposed) and one.step > 6 for one in cut.records)
    sitting(cut, width=1, slow=(8,))
    assert told == {step: first[step] for step in (7, 8, 9)}
