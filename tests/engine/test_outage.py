"""An outage takes no proposal away: what had no answer is offered once more."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.plan import Plan
from kept.core.rollout import Failure, Job
from kept.core.state import State
from kept.engine.stop import LONGEST
from kept.gates.race import Race
from kept.proposers.variants import Variant, Variants
from kept.recipes.race_choice import with_race
from kept.run import Watch, resume, start
from kept.testing import (
    MemoryJournal,
    Pool,
    ScriptedEvaluator,
    ScriptedModel,
    ScriptedProposer,
    small_cases,
)
from kept.testing.run import SEED, sit, small_plan
from tests.engine.cutting import Home1, Moments, cut

POOL = Pool()
AWAY = Failure("network", "infrastructure", "no connection", tried=True)
GOOD, USELESS = POOL.good[0], POOL.useless[0]


def texts(*lines: str) -> Variants:
    """The seed with one of these lines each."""
    (text,) = SEED.texts.values()
    (path,) = SEED.texts
    return Variants(tuple(Variant({path: f"{text}{line}\n"}, line) for line in lines))


def plan_of(runner: ScriptedEvaluator, *lines: str, width: int = 1) -> Plan:
    made = small_plan(runner, texts(*lines))
    return replace(made, width=width, retries=0, budget=Budget(max_iterations=12))


def run(plan: Plan, journal: MemoryJournal | None = None) -> State:
    assert isinstance(plan.runner, ScriptedEvaluator)
    return asyncio.run(sit(plan, journal or MemoryJournal(), plan.runner.clock))


def tried(state: State) -> list[tuple[int, str]]:
    return [(step.turn.number, step.verdict.code) for step in state.history]


@pytest.mark.parametrize("width", [1, 3])
def test_what_was_proposed_while_nothing_answered_is_measured_after_a_resume(width: int):
    """However often it is taken up before anything answers."""
    away = ScriptedEvaluator(quality=POOL.quality, fails=lambda job: AWAY)
    journal = MemoryJournal()
    for _ in range(3):
        stopped = run(plan_of(away, GOOD, USELESS, width=width), journal)
        assert stopped.stopped is not None and stopped.stopped.kind == "error"
        assert stopped.best == stopped.seed
        journal = journal.reopened()
    there = ScriptedEvaluator(quality=POOL.quality)
    state = run(plan_of(there, GOOD, USELESS, width=width), journal)
    assert {number for number, code in tried(state) if code == "judged"} == {0, 1}
    assert state.best == run(plan_of(there, GOOD, USELESS, width=width)).best != state.seed
    assert not state.lost


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("race", [False, True])
def test_a_passing_outage_takes_no_variant_away(width: int, race: bool):
    lines = (GOOD, USELESS, *POOL.useless[1:3])
    first = {Candidate(lost.texts).id for lost in texts(*lines[:2]).variants}
    asked: set[Job] = set()

    def fails(job: Job) -> Failure | None:
        """Away when the first two are first looked at."""
        if job.candidate_id not in first or job.purpose == "promote" or job in asked:
            return None
        asked.add(job)
        return AWAY

    runner = ScriptedEvaluator(quality=POOL.quality, fails=fails)
    plan = plan_of(runner, *lines, width=width)
    state = run(with_race(plan) if race else plan)
    assert {number for number, code in tried(state) if code == "indecisive"} == {0, 1}
    variants = [step for step in state.history if step.turn.proposer == "variants"]
    answered = {s.turn.number for s in variants if s.verdict.code in ("judged", "near miss")}
    assert answered == set(range(len(lines)))
    assert not state.lost


def test_a_variant_that_never_has_an_answer_is_offered_twice_and_the_others_all_the_same():
    (bad,) = texts(GOOD).variants
    id_ = Candidate(bad.texts).id
    runner = ScriptedEvaluator(
        quality=POOL.quality, fails=lambda job: AWAY if job.candidate_id == id_ else None
    )
    state = run(plan_of(runner, GOOD, *POOL.good[1:3]))
    codes = tried(state)
    assert codes[:4] == [(0, "indecisive"), (1, "judged"), (0, "indecisive"), (2, "judged")]
    assert state.stopped is not None and state.stopped.kind == "nothing left to propose"
    assert [one.number for one in state.lost] == [0], "what was never measured is known"


@pytest.mark.parametrize("width", [1, 3])
def test_a_run_with_outages_cut_anywhere_resumes_to_the_same_end(width: int, tmp_path: Path):
    ids = [Candidate(bad.texts).id for bad in texts(GOOD, POOL.useless[2]).variants]

    def plan() -> Plan:
        runner = ScriptedEvaluator(
            quality=POOL.quality, fails=lambda job: AWAY if job.candidate_id in ids else None
        )
        return plan_of(runner, GOOD, USELESS, *POOL.useless[1:4], width=width)

    moments = Moments()
    folder, whole = asyncio.run(start(plan(), Home1(tmp_path / "home", moments), Watch((moments,))))
    assert [code for _, code in tried(whole)].count("indecisive") == 4
    for sizes in moments.sizes:
        part = cut(folder, sizes, tmp_path / "part")
        _, state = asyncio.run(resume(plan(), part))
        assert state.settled() == whole.settled()


def test_an_outage_of_the_model_that_proposes_is_no_crash_and_its_turn_comes_again():
    model = ScriptedModel(lambda request: "an idea")
    model.fail(AWAY)
    runner = ScriptedEvaluator(quality=POOL.quality)
    asking = ScriptedProposer(lines=POOL.lines, model=model)
    plan = replace(small_plan(runner, asking), width=1, budget=Budget(max_iterations=3))
    state = run(plan)
    assert (state.history[0].verdict.outcome, state.history[0].verdict.code) == (
        "skip",
        "proposer failed",
    )
    assert state.crashes == 0
    assert state.brought["scripted"].failed == 0, "it is not held against the proposer"
    assert [step.turn.number for step in state.history] == [0, 1, 0]


def test_a_proposer_that_had_no_answers_is_asked_again_after_a_resume():
    def plan(model: ScriptedModel) -> Plan:
        asking = ScriptedProposer(lines=POOL.lines, model=model)
        made = small_plan(ScriptedEvaluator(quality=POOL.quality), asking)
        return replace(made, width=1, budget=Budget(max_iterations=6))

    away = ScriptedModel(lambda request: "an idea")
    for _ in range(3):
        away.fail(AWAY)
    journal = MemoryJournal()
    stopped = run(plan(away), journal)
    assert stopped.stopped is not None and stopped.stopped.kind == "error"
    assert stopped.brought["scripted"].out
    state = run(plan(ScriptedModel(lambda request: "an idea")), journal.reopened())
    assert not state.brought["scripted"].out
    assert state.next_step == 6


@pytest.mark.parametrize("race", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 64])
def test_a_total_outage_ends_a_run_after_a_minute_or_two_and_loses_nothing(
    race: bool, workers: int
):
    """However many rollouts a gate asks for before its first verdict."""
    tries = 12.0

    def plan(runner: ScriptedEvaluator) -> Plan:
        cases = small_cases(train=60, holdout=100)
        made = replace(plan_of(runner, GOOD, USELESS), cases=cases, workers=workers)
        return with_race(replace(made, gate=Race())) if race else made

    away = ScriptedEvaluator(
        quality=POOL.quality, seconds=lambda job: tries, fails=lambda job: AWAY
    )
    journal = MemoryJournal()
    stopped = run(plan(away), journal)
    assert stopped.stopped is not None and stopped.stopped.kind == "error"
    words = stopped.stopped.message
    # with many workers, the steps themselves are seen to fail before that
    assert words.startswith(("nothing answers: ", "the evaluator does not answer: "))
    assert words.endswith("no connection")
    assert away.clock.monotonic() <= LONGEST + tries
    there = ScriptedEvaluator(quality=POOL.quality)
    state = run(plan(there), journal.reopened())
    assert state.best == run(plan(ScriptedEvaluator(quality=POOL.quality))).best != state.seed
    assert not state.lost


def test_what_answers_now_and_then_is_no_total_outage():
    """Every tenth rollout is answered, and all others are not, for an hour."""
    counted: list[Job] = []

    def fails(job: Job) -> Failure | None:
        counted.append(job)
        return None if len(counted) % 10 == 0 else AWAY

    def seconds(job: Job) -> float:
        return 8.0

    runner = ScriptedEvaluator(quality=POOL.quality, seconds=seconds, fails=fails)
    made = replace(plan_of(runner, GOOD, USELESS), cases=small_cases(train=10, holdout=400))
    state = run(replace(made, workers=1))
    assert runner.clock.monotonic() > 3600
    assert state.stopped is not None and "nothing answers" not in state.stopped.message


def test_one_rollout_that_hangs_for_long_is_no_total_outage():
    slow = ScriptedEvaluator(
        quality=POOL.quality,
        seconds=lambda job: 1000.0 if job.case_id == "holdout-0" else 1.0,
        fails=lambda job: AWAY if job.case_id == "holdout-0" else None,
    )
    state = run(replace(plan_of(slow, GOOD), workers=1, cases=small_cases(train=2, holdout=20)))
    assert state.keeps == 1
