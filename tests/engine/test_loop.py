"""Steps side by side: they close in order, stand on the newest incumbent, and stop for a reason."""

import asyncio
import gc
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from kept.core.artifact import Artifact, Candidate, Region, Rules
from kept.core.budget import Budget
from kept.core.case import Case
from kept.core.edit import Append, Edit, Replace, Write
from kept.core.event import Event, Proposed, RunStopped, StepClosed, StepOpened
from kept.core.plan import Plan
from kept.core.proposal import Ask, Brief, Proposal
from kept.core.rollout import Failure, Job, Pair, Usage
from kept.core.score import Outcome
from kept.core.state import State
from kept.core.verdict import Verdict, View
from kept.engine.loop import Loop
from kept.errors import RunError
from kept.evaluators.runners.function import RecordedScorer
from kept.proposers.function import FunctionProposer
from kept.testing import (
    Faults,
    MemoryJournal,
    Pool,
    RecordingSink,
    ScriptedEvaluator,
    ScriptedProposer,
    sit,
    sitting,
    small_plan,
)
from kept.ui.cli._progress import step_line

POOL = Pool()
SEED = "a seed\n"
GOOD, BETTER = (line + "\n" for line in POOL.good[:2])
USELESS, HARMFUL = POOL.useless[0] + "\n", POOL.harmful[0] + "\n"
OUTAGE = Failure("server", "infrastructure", "503")


def candidate(*lines: str) -> str:
    """Id of the seed with these lines added."""
    return Candidate({"text": SEED + "".join(lines)}).id


def editing(*steps: Sequence[Edit]) -> FunctionProposer:
    """A proposer with edits for each step."""

    def propose(brief: Brief) -> Proposal | None:
        return Proposal(tuple(steps[brief.step])) if brief.step < len(steps) else None

    return FunctionProposer(propose)


def adding(*lines: str) -> FunctionProposer:
    """A proposer that adds one line a step."""
    return editing(*([Append("text", line)] for line in lines))


def evaluator(seconds: Callable[[Job], float] = lambda job: 1.0) -> ScriptedEvaluator:
    return ScriptedEvaluator(quality=POOL.quality, seconds=seconds)


def plan_of(proposer: FunctionProposer | ScriptedProposer, runner: ScriptedEvaluator) -> Plan:
    plan = small_plan(runner, proposer)
    return replace(plan, budget=Budget(max_iterations=3), width=3, workers=64)


def run(plan: Plan, journal: MemoryJournal | None = None) -> State:
    assert isinstance(plan.runner, ScriptedEvaluator)
    journal = MemoryJournal() if journal is None else journal
    state = asyncio.run(sit(plan, journal, plan.runner.clock))
    assert plan.runner.flying == 0, "something is still running"
    assert plan.runner.closed >= 1
    return state


def verdicts(state: State) -> list[tuple[str, str]]:
    return [(step.verdict.outcome, step.verdict.code) for step in state.history]


def best(plan: Plan, journal: MemoryJournal) -> str:
    return journal.load(run(plan, journal).best).text


def test_steps_close_in_order_whatever_order_they_finish_in():
    lines = [f"line {n}\n" for n in range(6)]
    ids = {candidate(line): number for number, line in enumerate(lines)}

    def seconds(job: Job) -> float:
        return 20.0 - 3 * ids.get(job.candidate_id, 6)

    journal = MemoryJournal()
    plan = replace(
        plan_of(adding(*lines), evaluator(seconds)), width=6, budget=Budget(max_iterations=6)
    )
    state = run(plan, journal)
    arrived = [ids[r.job.candidate_id] for r in journal.rollouts if r.job.candidate_id in ids]
    assert list(dict.fromkeys(arrived)) == [5, 4, 3, 2, 1, 0]
    closed = [event for event in journal.events if isinstance(event, StepClosed)]
    assert [event.step for event in closed] == [0, 1, 2, 3, 4, 5]
    assert [step.candidate for step in state.history] == list(ids)


def test_a_step_opens_exactly_when_the_step_a_width_before_it_closes():
    journal = MemoryJournal()
    plan = plan_of(ScriptedProposer(lines=POOL.lines), evaluator())
    run(replace(plan, width=3, budget=Budget(max_iterations=10)), journal)
    kinds = [e for e in journal.events if isinstance(e, StepOpened | StepClosed)]
    order = [(event.kind, event.step) for event in kinds]
    for step in range(3, 10):
        at = order.index(("step_opened", step))
        assert order[at - 1] == ("step_closed", step - 3)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_as_many_steps_are_open_as_the_width_says(width: int):
    sink = RecordingSink()
    plan = plan_of(ScriptedProposer(lines=POOL.lines), evaluator())
    plan = replace(plan, width=width, budget=Budget(max_iterations=10))
    asyncio.run(sit(plan, MemoryJournal(), None, [sink]))
    assert max(len(state.open) for state in sink.states) == width


def test_the_end_does_not_depend_on_how_long_anything_takes():
    def end(seconds: Callable[[Job], float]) -> State:
        plan = plan_of(ScriptedProposer(lines=POOL.lines), evaluator(seconds))
        return run(replace(plan, width=4, budget=Budget(max_iterations=12))).settled()

    even = end(lambda job: 1.0)
    assert even.keeps > 1
    for salt in range(5):
        uneven = end(lambda job, salt=salt: 1.0 + hash_of(job, salt) % 17)
        assert uneven == even


@dataclass(frozen=True)
class Endless:
    """A gate that asks the same again and again."""

    name: str = "endless"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        return (Ask(view.challenger.id, (Pair(view.holdout[0], 0),), "decide"),)


def hash_of(job: Job, salt: int) -> int:
    return sum(map(ord, f"{salt} {job.candidate_id} {job.case_id}")) * 7919


def test_after_a_keep_later_edits_are_applied_to_the_new_incumbent():
    journal = MemoryJournal()
    plan = plan_of(adding(GOOD, BETTER), evaluator())
    state = run(replace(plan, width=2, budget=Budget(max_iterations=2)), journal)
    assert verdicts(state) == [("keep", "judged")] * 2
    first, second = state.history
    assert second.incumbent == first.candidate == candidate(GOOD)
    assert second.candidate == state.best == candidate(GOOD, BETTER)
    assert journal.load(state.best).text == SEED + GOOD + BETTER
    rolled = {record.job.candidate_id for record in journal.rollouts}
    assert candidate(BETTER) in rolled, "it was judged against the seed first"
    assert state.spend.moot == 4


def test_rollouts_that_two_steps_shared_to_no_use_are_moot_once():
    plan = plan_of(adding(GOOD, BETTER, BETTER), evaluator())
    journal = MemoryJournal()
    state = run(plan, journal)
    assert [step.verdict.outcome for step in state.history[:2]] == ["keep", "keep"]
    shared = [row for row in journal.rollouts if row.job.candidate_id == candidate(BETTER)]
    assert state.spend.moot == len(shared) == 4


def test_a_discard_leaves_later_steps_as_they_are():
    plan = plan_of(adding(HARMFUL, BETTER), evaluator())
    state = run(replace(plan, width=2, budget=Budget(max_iterations=2)))
    assert state.history[1].candidate == candidate(BETTER)
    assert state.spend.moot == 0


def test_work_that_a_keep_makes_moot_is_cancelled():
    slow = candidate(BETTER)

    def seconds(job: Job) -> float:
        return 100.0 if job.candidate_id == slow else 1.0

    runner = evaluator(seconds)
    plan = plan_of(adding(GOOD, BETTER), runner)
    state = run(replace(plan, width=2, budget=Budget(max_iterations=2)))
    assert Counter(job.candidate_id for job in runner.cancelled) == {slow: 4}
    assert runner.clock.monotonic() < 10
    assert state.spend.cancelled == 4
    assert state.best == candidate(GOOD, BETTER)


def test_what_was_cancelled_before_a_kill_is_on_the_bill_of_the_next_sitting():
    slow = candidate(BETTER)

    def plan() -> Plan:
        runner = evaluator(lambda job: 100.0 if job.candidate_id == slow else 1.0)
        made = plan_of(adding(GOOD, BETTER), runner)
        return replace(made, width=2, budget=Budget(max_iterations=2))

    journal = MemoryJournal()
    whole = run(plan(), journal)
    assert whole.spend.cancelled == 4
    ends = [n for n, r in enumerate(journal.records) if isinstance(r, StepClosed)]
    again = run(plan(), journal.reopened(ends[1]))
    assert again.settled() == whole.settled()
    assert again.spend.cancelled == 4


def test_an_edit_whose_target_an_earlier_keep_took_away_is_stale():
    first = [Replace("text", "a seed", "x"), Append("text", GOOD)]
    second = [Replace("text", "a seed", "y"), Append("text", BETTER)]
    plan = plan_of(editing(first, second), evaluator())
    state = run(replace(plan, width=2, budget=Budget(max_iterations=2)))
    assert verdicts(state) == [("keep", "judged"), ("skip", "stale")]
    assert "no longer apply" in state.history[1].verdict.reason


def test_a_change_that_an_earlier_step_made_is_stale():
    plan = plan_of(editing([Write("text", GOOD)], [Write("text", GOOD)]), evaluator())
    state = run(replace(plan, width=2, budget=Budget(max_iterations=2)))
    assert verdicts(state) == [("keep", "judged"), ("skip", "stale")]


def test_a_candidate_that_was_judged_is_not_judged_again():
    runner = evaluator()
    plan = replace(plan_of(adding(USELESS, USELESS, USELESS), runner), width=1)
    state = run(plan)
    assert verdicts(state) == [("discard", "judged"), ("skip", "duplicate"), ("skip", "duplicate")]
    assert Counter(runner.log).most_common(1)[0][1] == 1


def test_the_same_candidate_side_by_side_is_rolled_out_once():
    runner = evaluator()
    state = run(plan_of(adding(USELESS, USELESS, USELESS), runner))
    assert verdicts(state) == [("discard", "judged"), ("skip", "duplicate"), ("skip", "duplicate")]
    assert len(runner.log) == 8


def test_the_seed_is_no_candidate():
    plan = plan_of(
        editing([Write("text", SEED)], [], [Replace("text", "nowhere", "x")]), evaluator()
    )
    state = run(plan)
    assert verdicts(state) == [("skip", "no edits")] * 3
    assert "the text already reads so" in state.history[0].verdict.reason
    assert "target missing" in state.history[2].verdict.reason


def test_edits_that_undo_each_other_change_nothing():
    plan = plan_of(
        editing([Replace("text", "seed", "x"), Replace("text", "x", "seed")]), evaluator()
    )
    assert verdicts(run(plan))[0] == ("skip", "no change")


def test_a_proposal_over_the_limits_is_discarded_without_a_rollout():
    runner = evaluator()
    lines = Append("text", "1\n2\n3\n")
    plan = plan_of(editing([lines], [Write("b", "x"), Append("text", "y")]), runner)
    rules = Rules({"text": Artifact("text")}, ("*",), max_files=1, max_changed_lines=2)
    state = run(replace(plan, rules=rules, budget=Budget(max_iterations=2)))
    assert verdicts(state) == [("discard", "over limit")] * 2
    assert state.history[0].verdict.reason == "changes 3 lines, 2 allowed"
    assert state.history[1].verdict.reason == "changes 2 files, 1 allowed"
    assert runner.log == []


HELD = "a seed\n<!-- keep -->\nas it is\n<!-- /keep -->\n"


def test_a_proposal_that_touches_what_is_protected_is_discarded_without_a_rollout():
    runner = evaluator()
    touched = HELD.replace("as it is", "as it was")
    steps = (
        [Write("text", touched + GOOD)],
        [Replace("text", "as it is", "as it was")],
        # whole files are meant together
        [Write("text", touched), Write("other", "also\n")],
        [Replace("text", "as it is", "as it was"), Append("text", GOOD)],
    )
    region = Region("<!-- keep -->", "<!-- /keep -->")
    rules = Rules({"text": Artifact("text", (region,)), "other": Artifact("other")})
    seed = Candidate({"text": HELD, "other": "other\n"})
    plan = replace(plan_of(editing(*steps), runner), rules=rules, seed=seed, width=1)
    state = run(replace(plan, budget=Budget(max_iterations=3)))
    assert verdicts(state) == [("discard", "protected")] * 3
    reason = "protected in text: inside `<!-- keep -->` … `<!-- /keep -->`"
    assert {step.verdict.reason for step in state.history} == {reason}
    assert runner.log == []


def test_of_single_edits_those_that_touch_nothing_protected_are_judged():
    region = Region("<!-- keep -->", "<!-- /keep -->")
    step = [Replace("text", "as it is", "as it was"), Append("text", GOOD)]
    plan = replace(
        plan_of(editing(step), evaluator()),
        rules=Rules({"text": Artifact("text", (region,))}),
        seed=Candidate({"text": HELD}),
    )
    state = run(plan)
    assert verdicts(state)[0] == ("keep", "judged")
    assert state.incumbent == Candidate({"text": HELD + GOOD}).id
    assert [report.fate for report in state.history[0].reports] == ["protected", "applied"]


def test_a_proposal_that_is_applied_in_part_says_so():
    edits = (Append("text", GOOD), Append("scripts/score.py", "return 1\n"))
    state = run(plan_of(editing(edits), evaluator()))
    verdict = state.history[0].verdict
    words = "1 of 2 edits applied: `scripts/score.py` is outside the artifacts; "
    assert verdict.reason.startswith(words)
    assert words in step_line(state.history[0])


def test_what_is_protected_stays_so_through_a_rebase():
    region = Region("<!-- keep -->", "<!-- /keep -->")
    steps = ([Append("text", GOOD)], [Write("text", BETTER)], [Replace("text", "as it", "as")])
    plan = replace(
        plan_of(editing(*steps), evaluator()),
        rules=Rules({"text": Artifact("text", (region,))}),
        seed=Candidate({"text": HELD}),
        width=3,
        budget=Budget(max_iterations=3),
    )
    state = run(plan)
    assert verdicts(state) == [("keep", "judged"), *[("discard", "protected")] * 2]
    # both were proposed for the seed, and judged on what the first left
    assert {step.incumbent for step in state.history[1:]} == {state.history[0].candidate}


def crashing(*lines: str) -> ScriptedEvaluator:
    """Candidates with one of these lines measure nothing."""

    def quality(candidate: Candidate, case: Case) -> float:
        bad = any(line in candidate.text for line in lines)
        return math.nan if bad else POOL.quality(candidate, case)

    return ScriptedEvaluator(quality=quality)


class Clinging(ScriptedEvaluator):
    """A runner that cannot be closed."""

    async def close(self) -> None:
        raise OSError("it will not let go")


class Closing(RecordedScorer):
    """A scorer that remembers whether it was closed."""

    closed = False

    async def close(self) -> None:
        self.closed = True


def test_how_a_run_ended_is_written_also_where_its_runner_cannot_be_closed():
    scorer = Closing()
    plan = plan_of(adding(GOOD), Clinging(quality=POOL.quality))
    journal = MemoryJournal()
    with pytest.raises(OSError, match="it will not let go"):
        asyncio.run(sit(replace(plan, scorer=scorer), journal))
    last = journal.events[-1]
    assert isinstance(last, RunStopped)
    assert last.reason.kind == "iterations"
    assert scorer.closed


def test_a_run_stops_after_too_many_crashes():
    lines = [f"bad {n}\n" for n in range(10)]
    plan = replace(plan_of(adding(*lines), crashing("bad")), width=1)
    state = run(replace(plan, budget=Budget(max_iterations=10, max_failures=3)))
    assert verdicts(state) == [("crash", "judged")] * 3
    assert state.stopped is not None
    assert state.stopped.kind == "failures"


def test_a_run_whose_evaluator_never_answers_stops_after_the_first_step():
    runner = ScriptedEvaluator(quality=POOL.quality, fails=lambda job: OUTAGE)
    state = run(replace(plan_of(adding(GOOD), runner), width=1, budget=Budget(max_iterations=9)))
    assert verdicts(state) == [("skip", "indecisive")]
    assert state.stopped is not None
    assert state.stopped.kind == "error"
    assert "does not answer" in state.stopped.message
    assert "503" in state.stopped.message


def test_two_rollouts_show_that_the_measure_is_broken():
    broken = Failure("harness", "infrastructure", "the scorer printed no JSON")
    runner = ScriptedEvaluator(quality=POOL.quality, fails=lambda job: broken)
    plan = replace(plan_of(adding(GOOD, GOOD * 2), runner), width=4, workers=8)
    state = run(replace(plan, budget=Budget(max_iterations=9)))
    assert len(runner.log) == 2
    assert state.stopped is not None
    assert state.stopped.kind == "error"
    assert "printed no JSON" in state.stopped.message


def test_the_first_rollout_is_alone_and_the_others_are_not():
    def seconds(job: Job) -> float:
        return 1.0

    runner = ScriptedEvaluator(quality=POOL.quality, seconds=seconds)
    plan = replace(plan_of(adding(GOOD), runner), width=1, workers=64)
    cases = len(plan.cases.holdout)
    run(replace(plan, budget=Budget(max_iterations=1)))
    assert len(runner.log) == 2 * cases
    assert runner.clock.monotonic() == 2.0, "one, and then all the others at once"


def test_what_an_outage_left_undecided_may_be_proposed_again():
    def plan(away: bool) -> Plan:
        runner = evaluator()
        if away:
            gone = {(candidate(GOOD), "holdout-2"), (candidate(GOOD), "holdout-3")}
            runner.fails = lambda job: OUTAGE if job[:2] in gone else None
        made = plan_of(adding(USELESS, GOOD, GOOD, GOOD, GOOD), runner)
        return replace(made, width=1, budget=Budget(max_iterations=5))

    journal = MemoryJournal()
    stopped = run(plan(away=True), journal)
    assert verdicts(stopped) == [("discard", "judged"), *[("skip", "indecisive")] * 3]
    assert stopped.stopped is not None
    assert stopped.stopped.kind == "error"
    rest = plan(away=False)
    resumed = run(rest, journal.reopened())
    assert verdicts(resumed)[-1] == ("keep", "judged")
    assert resumed.best == candidate(GOOD)
    assert isinstance(rest.runner, ScriptedEvaluator)
    assert len(rest.runner.log) == 2, "the two cases that had answers were run again"


def test_a_run_stops_when_its_proposers_have_run_dry():
    few = ScriptedProposer(lines=(POOL.good[0],))
    state = run(replace(plan_of(few, evaluator()), width=1, budget=Budget()))
    assert state.stopped is not None
    assert state.stopped.kind == "nothing left to propose"
    assert state.exhausted == {"scripted"}


def test_a_run_stops_when_its_minutes_are_used_and_resumes_with_more():
    def plan(minutes: float) -> Plan:
        made = plan_of(ScriptedProposer(lines=POOL.lines), evaluator(lambda job: 30.0))
        return replace(made, budget=Budget(max_iterations=8, max_minutes=minutes), width=1)

    journal = MemoryJournal()
    stopped = run(plan(2.0), journal)
    assert stopped.stopped is not None
    assert stopped.stopped.kind == "minutes"
    assert 1 <= len(stopped.history) < 8
    whole = run(plan(99.0))
    assert run(plan(99.0), journal.reopened()).settled() == whole.settled()


def budgeted(budget: Budget, width: int) -> tuple[Plan, ScriptedEvaluator]:
    runner = ScriptedEvaluator(
        quality=POOL.quality,
        seconds=lambda job: 1.0 + hash_of(job, 0) % 5,
        usage=Usage(calls=1, usd=0.01),
    )
    plan = plan_of(ScriptedProposer(lines=POOL.lines), runner)
    return replace(plan, budget=budget, width=width, worst_usd=0.01), runner


@pytest.mark.parametrize("width", [1, 4, 16])
@pytest.mark.parametrize("limit", [3, 8, 23, 50])
def test_a_run_keeps_to_its_rollouts_and_its_money_and_resumes_with_more(width: int, limit: int):
    whole, runner = budgeted(Budget(max_iterations=12), width)
    end = run(whole)
    for small in (Budget(12, max_rollouts=limit), Budget(12, max_usd=limit / 100)):
        journal = MemoryJournal()
        plan, first = budgeted(small, width)
        stopped = run(plan, journal)
        assert stopped.stopped is not None
        kinds = {"rollouts", "usd"} if len(first.log) < len(runner.log) else {"iterations"}
        assert stopped.stopped.kind in kinds
        assert len(first.log) <= limit
        assert stopped.spend.rollouts <= limit
        assert stopped.spend.usd <= limit / 100 + 1e-9
        rest, second = budgeted(Budget(max_iterations=12), width)
        assert run(rest, journal.reopened()).settled() == end.settled()
        done = [record.job for record in journal.rollouts]
        assert not set(done) & set(second.log), "a pair that had its answer was run again"


class Interrupting(RecordingSink):
    """Asks to stop when so many rollouts are done, so many times."""

    def __init__(self, after: int, times: int = 1) -> None:
        super().__init__()
        self.after = after
        self.times = times
        self.loop: Loop | None = None

    def on_rollout(self, job: Job, outcome: Outcome) -> None:
        super().on_rollout(job, outcome)
        if len(self.rollouts) == self.after and self.loop is not None:
            for _ in range(self.times):
                self.loop.interrupt()


def interrupted(plan: Plan, journal: MemoryJournal, sink: Interrupting) -> State:
    assert isinstance(plan.runner, ScriptedEvaluator)
    clock = plan.runner.clock

    async def whole() -> State:
        loop = sitting(plan, journal, clock, [sink])
        sink.loop = loop
        state = await loop.run()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"still running: {left}"
        return state

    return asyncio.run(whole())


@pytest.mark.parametrize("after", [1, 5, 9, 17])
@pytest.mark.parametrize("width", [1, 3])
def test_a_polite_request_lets_what_is_in_flight_finish(after: int, width: int):
    def plan() -> Plan:
        made = plan_of(ScriptedProposer(lines=POOL.lines), evaluator())
        return replace(made, workers=2, width=width, budget=Budget(max_iterations=6))

    journal = MemoryJournal()
    first = plan()
    state = interrupted(first, journal, Interrupting(after))
    assert isinstance(first.runner, ScriptedEvaluator)
    assert state.stopped is not None
    assert state.stopped.kind == "interrupted"
    assert state.stopped.resumable
    # each of the two workers may have begun one more before it heard
    assert len(journal.rollouts) <= after + 4
    # what a keep had made moot was cancelled before anybody asked to stop
    assert len(journal.rollouts) == len(first.runner.log) - len(first.runner.cancelled)
    second = plan()
    assert run(second, journal.reopened()).settled() == run(plan()).settled()
    assert isinstance(second.runner, ScriptedEvaluator)
    assert not {record.job for record in journal.rollouts} & set(second.runner.log)


def test_a_proposer_that_heeds_a_request_to_stop_has_not_failed():
    journal, sink = MemoryJournal(), Interrupting(after=0)

    async def heeding(brief: Brief) -> str:
        assert sink.loop is not None
        sink.loop.interrupt()
        raise asyncio.CancelledError

    state = interrupted(plan_of(FunctionProposer(heeding), evaluator()), journal, sink)
    assert state.stopped is not None and state.stopped.kind == "interrupted"
    assert not any(isinstance(event, Proposed) for event in journal.events)
    assert state.open and not state.history, "the next sitting goes on with it"


def test_insisting_cancels_what_hangs():
    runner = ScriptedEvaluator(
        quality=POOL.quality, hangs=lambda job: job.case_id == "holdout-3", seconds=lambda job: 1.0
    )
    plan = plan_of(adding(GOOD), runner)
    journal = MemoryJournal()
    state = interrupted(plan, journal, Interrupting(after=3, times=2))
    assert state.stopped is not None
    assert state.stopped.kind == "interrupted"
    assert {job.case_id for job in runner.cancelled} == {"holdout-3"}
    assert runner.flying == 0
    last = journal.events[-1]
    assert isinstance(last, RunStopped)
    resumed = run(plan_of(adding(GOOD), evaluator()), journal.reopened())
    assert resumed.best == candidate(GOOD)


def test_a_gate_that_never_comes_to_a_verdict_stops_the_run():
    journal = MemoryJournal()
    plan = replace(plan_of(adding(GOOD), evaluator()), gate=Endless())
    with pytest.raises(RunError, match="`endless` asked for nothing new"):
        run(plan, journal)
    last = journal.events[-1]
    assert isinstance(last, RunStopped)
    assert last.reason.kind == "error"


def test_a_runner_that_raises_stops_the_run_and_the_journal_says_why():
    def broken(candidate: Candidate, case: Case) -> float:
        raise RuntimeError("a runner must not raise")

    journal = MemoryJournal()
    runner = ScriptedEvaluator(quality=broken)
    with pytest.raises(RuntimeError, match="must not raise"):
        run(plan_of(adding(GOOD), runner), journal)
    last = journal.events[-1]
    assert isinstance(last, RunStopped)
    assert "must not raise" in last.reason.message
    assert runner.flying == 0


def test_a_run_that_is_cancelled_winds_down_and_says_so():
    async def whole() -> tuple[ScriptedEvaluator, MemoryJournal]:
        runner = ScriptedEvaluator(quality=POOL.quality, hangs=lambda job: True)
        journal = MemoryJournal()
        task = asyncio.create_task(sit(plan_of(adding(GOOD), runner), journal))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return runner, journal

    runner, journal = asyncio.run(whole())
    assert runner.flying == 0
    last = journal.events[-1]
    assert isinstance(last, RunStopped)
    assert last.reason.message == "the run was cancelled"


def test_nothing_is_left_for_the_event_loop_to_complain_about():
    complaints: list[object] = []

    async def whole(plan: Plan) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: complaints.append(what))
        state = await sit(plan, MemoryJournal())
        assert verdicts(state) == [("keep", "judged")]
        gc.collect()

    # the second step finds no money left, and is judged anew when the first is kept
    plan = plan_of(adding(GOOD, BETTER), evaluator())
    plan = replace(plan, width=2, budget=Budget(max_iterations=2, max_rollouts=10))
    asyncio.run(whole(plan))
    assert complaints == []


def test_sinks_hear_of_every_event_and_rollout_as_it_is_journalled():
    sink, journal = RecordingSink(), MemoryJournal()
    plan = plan_of(ScriptedProposer(lines=POOL.lines), evaluator())
    faults = Faults(outages=0.1, tries=1, crashes=0.1)
    runner = ScriptedEvaluator(quality=POOL.quality, faults=faults)
    asyncio.run(sit(replace(plan, runner=runner), journal, runner.clock, [sink]))
    heard: list[Event] = sink.events
    assert heard == journal.events
    assert sink.rollouts == [(record.job, record.outcome) for record in journal.rollouts]


def test_the_lowest_loss_of_any_incumbent_is_remembered():
    state = run(
        replace(
            plan_of(adding(GOOD, GOOD * 2, "bad\n"), ScriptedEvaluator(quality=POOL.quality)),
            width=1,
            budget=Budget(max_iterations=3),
        )
    )
    assert state.keeps
    decided = [step.loss for step in state.history if step.verdict.outcome == "keep"]
    assert state.least == min(loss for loss in decided if loss is not None)


def test_a_proposer_that_only_repeats_itself_ends_the_run():
    plan = plan_of(adding(*[GOOD] * 500), ScriptedEvaluator(quality=lambda c, case: 0.5))
    state = run(replace(plan, width=1, budget=Budget(max_rollouts=1000)))
    assert state.stopped is not None
    assert state.stopped.kind == "nothing left to propose"
    assert len(state.history) <= 110
