"""Rollouts: bounded, shared, never repeated, retried only where it helps, paid for in advance."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from kept.core.artifact import Candidate
from kept.core.budget import Budget, Spend
from kept.core.case import Case
from kept.core.llm import ModelReply
from kept.core.objective import TieBreaker
from kept.core.plan import Plan
from kept.core.ports import Scope
from kept.core.proposal import Ask
from kept.core.rollout import Failure, Job, Pair, Purpose, Rollout, Usage
from kept.core.score import Outcome
from kept.engine.budget import OutOfBudget, Purse
from kept.engine.evaluate import Evaluator
from kept.engine.replay import Known
from kept.engine.rollout import BACKOFF
from kept.errors import RunError
from kept.testing import FakeClock, MemoryJournal, ScriptedEvaluator, small_cases, small_plan

SEED = small_plan(ScriptedEvaluator(quality=lambda candidate, case: 0.5)).seed
OUTAGE = Failure("server", "infrastructure", "503")
CRASH = Failure("crash", "candidate", "it crashed")
BROKEN = Failure("harness", "infrastructure", "no such metric")


def half(candidate: Candidate, case: Case) -> float:
    return 0.5


@dataclass
class Desk:
    """An evaluator with everything around it; made inside an event loop."""

    runner: ScriptedEvaluator
    plan: Plan
    journal: MemoryJournal = field(default_factory=MemoryJournal)

    def __post_init__(self) -> None:
        self.known = Known(self.journal)
        self.known.save(SEED)
        self.purse = Purse(self.plan, Spend(), lambda: 0.0)
        clock = self.runner.clock
        self.evaluator = Evaluator(self.plan, self.journal, self.known, self.purse, clock)

    async def answer(self, *asks: Ask, step: int = 0) -> None:
        await self.evaluator.answer(asks, step)

    def outcome(self, case: str = "holdout-0", repeat: int = 0) -> Outcome:
        return dict(self.evaluator.outcomes(ask(pairs=(Pair(case, repeat),))))[Pair(case, repeat)]


def ask(
    cases: int = 4, repeats: int = 1, purpose: Purpose = "decide", pairs: tuple[Pair, ...] = ()
) -> Ask:
    every = tuple(Pair(f"holdout-{n}", r) for r in range(repeats) for n in range(cases))
    return Ask(SEED.id, pairs or every, purpose)


def at_a_desk(
    use: Callable[[Desk], Awaitable[None]],
    runner: ScriptedEvaluator | None = None,
    **plan: object,
) -> Desk:
    """Use a desk, close it, and have it back for a look."""

    async def whole() -> Desk:
        made = runner or ScriptedEvaluator(quality=half, seconds=lambda job: 1.0)
        cases = small_cases(train=2, holdout=64)
        desk = Desk(made, replace(small_plan(made), cases=cases, **plan))  # pyright: ignore[reportArgumentType] # by name
        await use(desk)
        await desk.evaluator.close()
        assert made.flying == 0, "something is still running"
        return desk

    return asyncio.run(whole())


@pytest.mark.parametrize(("workers", "seconds"), [(1, 12.0), (3, 4.0), (5, 3.0), (64, 1.0)])
def test_as_many_rollouts_as_there_are_workers_run_at_once(workers: int, seconds: float):
    desk = at_a_desk(lambda desk: desk.answer(ask(12)), workers=workers)
    assert desk.runner.peak == min(workers, 12)
    assert desk.runner.clock.monotonic() == seconds
    assert len(desk.runner.log) == 12


def test_asks_side_by_side_share_the_workers():
    async def both(desk: Desk) -> None:
        await asyncio.gather(
            desk.answer(ask(8, purpose="decide"), step=0),
            desk.answer(ask(8, purpose="screen"), step=1),
        )

    desk = at_a_desk(both, workers=4)
    assert desk.runner.peak == 4
    assert desk.runner.clock.monotonic() == 4.0


def test_earlier_steps_go_first():
    async def both(desk: Desk) -> None:
        late = asyncio.create_task(desk.answer(ask(4, purpose="screen"), step=7))
        await desk.runner.clock.sleep(0.5)
        await desk.answer(ask(4, purpose="decide"), step=1)
        await late

    desk = at_a_desk(both, workers=1)
    order = [job.purpose for job in desk.runner.log]
    assert order == ["screen", *["decide"] * 4, *["screen"] * 3]


def test_a_pair_that_is_under_way_is_joined():
    async def both(desk: Desk) -> None:
        await asyncio.gather(desk.answer(ask(4)), desk.answer(ask(6), step=1), desk.answer(ask(4)))

    desk = at_a_desk(both, workers=2)
    assert Counter(desk.runner.log).most_common(1)[0][1] == 1
    assert len(desk.runner.log) == 6


def test_a_pair_that_is_known_is_never_run_again():
    async def twice(desk: Desk) -> None:
        await desk.answer(ask(4))
        await desk.answer(ask(4))
        await desk.answer(ask(5))

    assert len(at_a_desk(twice).runner.log) == 5


def test_a_pair_that_an_ask_names_twice_is_run_and_set_aside_once():
    async def twice(desk: Desk) -> None:
        pair = Pair("holdout-0", 0)
        await desk.answer(ask(pairs=(pair, pair)), ask(pairs=(pair,)))
        await desk.answer(ask(pairs=(Pair("holdout-1", 0),)))

    desk = at_a_desk(twice, budget=Budget(max_rollouts=2))
    assert len(desk.runner.log) == 2


def test_what_an_earlier_process_rolled_out_is_not_run_again():
    journal = MemoryJournal()

    async def first(desk: Desk) -> None:
        desk.journal = journal
        desk.__post_init__()
        await desk.answer(ask(4))

    async def second(desk: Desk) -> None:
        desk.journal = journal.reopened()
        desk.__post_init__()
        desk.known.elsewhere.add(SEED.id)
        await desk.answer(ask(6))
        assert len(desk.evaluator.outcomes(ask(6))) == 6

    assert len(at_a_desk(first).runner.log) == 4
    assert len(at_a_desk(second).runner.log) == 2


def test_purposes_never_share_rollouts():
    purposes: tuple[Purpose, ...] = ("feedback", "probe", "screen", "decide", "promote", "test")

    async def all_of_them(desk: Desk) -> None:
        for purpose in purposes:
            await desk.answer(ask(3, purpose=purpose))

    desk = at_a_desk(
        all_of_them, ScriptedEvaluator(quality=half, noise="pass/fail"), objective=small().objective
    )
    assert len(desk.runner.log) == 3 * len(purposes)
    rows = [
        tuple(o.metrics["score"] for _, o in desk.evaluator.outcomes(ask(3, purpose=purpose)))
        for purpose in purposes
    ]
    assert len(set(rows)) > 1


def small() -> Plan:
    return small_plan(ScriptedEvaluator(quality=half))


def test_outcomes_come_in_the_order_asked_whatever_order_they_arrive_in():
    slow_first = ScriptedEvaluator(
        quality=lambda candidate, case: float(str(case.data)) / 64,
        seconds=lambda job: 10.0 - int(job.case_id[-1]),
    )
    desk = at_a_desk(lambda desk: desk.answer(ask(6)), slow_first, workers=6)
    arrived = [record.job.case_id for record in desk.journal.rollouts]
    assert arrived == [f"holdout-{n}" for n in reversed(range(6))]
    assert [pair.case for pair, _ in desk.evaluator.outcomes(ask(6))] == arrived[::-1]


def test_a_result_is_in_the_journal_before_anybody_hears_of_it():
    heard: list[tuple[Job, int]] = []

    async def listening(desk: Desk) -> None:
        def listen(job: Job, outcome: Outcome) -> None:
            heard.append((job, sum(record.job == job for record in desk.journal.rollouts)))

        desk.evaluator.hearers = [listen]
        await desk.answer(ask(4))

    at_a_desk(listening)
    assert len(heard) == 4
    assert all(written == 1 for _, written in heard)


def failing(how: Failure, times: int) -> ScriptedEvaluator:
    """An evaluator whose every job fails so often before it works."""
    made = ScriptedEvaluator(quality=half, clock=FakeClock())
    made.fails = lambda job: how if made.tries[job] <= times else None
    return made


def test_an_outage_is_tried_again_after_a_growing_wait():
    runner = failing(OUTAGE, 2)
    desk = at_a_desk(lambda desk: desk.answer(ask(1)), runner, retries=3)
    outcome = desk.outcome()
    assert (outcome.failure, outcome.tries) == (None, 3)
    assert outcome.seconds == BACKOFF + 2 * BACKOFF
    assert isinstance(runner.clock, FakeClock)
    assert runner.clock.naps == [BACKOFF, 2 * BACKOFF]
    assert desk.purse.spent.rollouts == 1
    assert desk.purse.spent.retries == 2


def test_an_outage_that_does_not_pass_is_missing_and_asked_for_again():
    runner = failing(OUTAGE, 3)
    desk = at_a_desk(lambda desk: desk.answer(ask(1)), runner, retries=2)
    assert (desk.outcome().failure, desk.outcome().tries) == (OUTAGE, 3)

    async def again(desk: Desk) -> None:
        await desk.answer(ask(1))
        await desk.answer(ask(1))

    desk = at_a_desk(again, failing(OUTAGE, 3), retries=2)
    assert desk.outcome().failure is None
    assert len(desk.runner.log) == 4
    assert len(desk.journal.rollouts) == 2


@pytest.mark.parametrize("failure", [CRASH, BROKEN], ids=lambda failure: failure.kind)
def test_what_another_try_cannot_mend_is_not_tried_again(failure: Failure):
    desk = at_a_desk(lambda desk: desk.answer(ask(3)), failing(failure, 99), retries=5)
    assert len(desk.runner.log) == 3
    assert desk.outcome().failure == failure
    assert isinstance(desk.runner.clock, FakeClock)
    assert desk.runner.clock.naps == []


def test_a_failure_of_the_candidate_settles_its_pair():
    async def twice(desk: Desk) -> None:
        await desk.answer(ask(3))
        await desk.answer(ask(3))

    assert len(at_a_desk(twice, failing(CRASH, 99)).runner.log) == 3


def test_a_measure_that_is_no_number_is_the_candidates_failure_and_a_side_measure_is_left_out():
    desk = at_a_desk(
        lambda desk: desk.answer(ask(1)),
        ScriptedEvaluator(quality=lambda candidate, case: math.nan),
    )
    failure = desk.outcome().failure
    assert failure is not None
    assert (failure.kind, failure.blame) == ("parse", "candidate")

    def strange(candidate: Candidate, case: Case) -> Mapping[str, float]:
        return {"ratio": math.inf, "tokens": 3.0}

    desk = at_a_desk(
        lambda desk: desk.answer(ask(1)), ScriptedEvaluator(quality=half, also=strange)
    )
    outcome = desk.outcome()
    assert outcome.metrics == {"score": 0.5, "tokens": 3.0}
    assert [finding.text for finding in outcome.findings] == ["`ratio` is inf, left out"]


def test_work_that_nobody_waits_for_is_cancelled_and_the_rest_is_not():
    async def abandon(desk: Desk) -> None:
        mine = asyncio.create_task(desk.answer(ask(4), step=1))
        shared = asyncio.create_task(desk.answer(ask(2), step=2))
        await desk.runner.clock.sleep(0.5)
        mine.cancel()
        await asyncio.gather(mine, return_exceptions=True)
        await shared

    desk = at_a_desk(abandon, workers=3)
    done = {record.job.case_id for record in desk.journal.rollouts}
    assert done == {"holdout-0", "holdout-1"}
    assert [job.case_id for job in desk.runner.cancelled] == ["holdout-2"]
    assert len(desk.runner.log) == 3, "what was queued was not started"
    assert desk.purse.meters[1].cancelled == 1


@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_cancelled_may_be_asked_for_again(at_once: bool):
    async def again(desk: Desk) -> None:
        task = asyncio.create_task(desk.answer(ask(4)))
        await desk.runner.clock.sleep(0.5)
        task.cancel()
        if not at_once:
            await asyncio.gather(task, return_exceptions=True)
        await desk.answer(ask(4), step=1)

    desk = at_a_desk(again, workers=2)
    assert len(desk.journal.rollouts) == 4
    # someone who asks before it is gone keeps it alive
    assert len(desk.runner.cancelled) == (0 if at_once else 2)
    assert len(desk.runner.log) == 4 + len(desk.runner.cancelled)


def test_closing_cancels_what_hangs():
    async def hang(desk: Desk) -> None:
        task = asyncio.create_task(desk.answer(ask(4)))
        await asyncio.sleep(0.01)
        await desk.evaluator.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    desk = at_a_desk(hang, ScriptedEvaluator(quality=half, hangs=lambda job: True), workers=2)
    assert len(desk.runner.cancelled) == 2
    assert desk.journal.rollouts == []


def test_a_paused_evaluator_finishes_what_is_in_flight_and_starts_nothing():
    async def pause(desk: Desk) -> None:
        task = asyncio.create_task(desk.answer(ask(10)))
        await desk.runner.clock.sleep(0.5)
        desk.evaluator.pause()
        await desk.evaluator.drain(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    desk = at_a_desk(pause, workers=3)
    assert len(desk.journal.rollouts) == len(desk.runner.log) == 3


def test_an_ask_that_does_not_fit_is_refused_whole_and_costs_nothing():
    async def too_much(desk: Desk) -> None:
        await desk.answer(ask(3))
        with pytest.raises(OutOfBudget) as caught:
            await desk.answer(ask(12))
        assert caught.value.reason.kind == "rollouts"
        await desk.answer(ask(10))

    desk = at_a_desk(too_much, budget=Budget(max_rollouts=10))
    assert len(desk.runner.log) == 10


def paid(usd: float) -> ScriptedEvaluator:
    return ScriptedEvaluator(
        quality=half, usage=Usage(calls=1, usd=usd), seconds=lambda job: 1.0 + job.repeat % 7
    )


async def until_refused(desk: Desk, size: int) -> int:
    """Ask for more, side by side, until the budget says no; how many Asks were answered."""

    async def one(number: int) -> bool:
        pairs = tuple(Pair(f"holdout-{n}", number) for n in range(size))
        try:
            await desk.answer(ask(pairs=pairs), step=number)
        except OutOfBudget:
            return False
        return True

    answered = await asyncio.gather(*(one(number) for number in range(40)))
    # what was set aside for dear rollouts that came cheap may be asked for again
    for number in range(40, 300 // size + 40):
        if not await one(number):
            break
        answered.append(True)
    return sum(answered)


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("limit", [1, 63, 64, 65, 200])
def test_with_many_in_flight_the_rollouts_never_exceed_their_limit(size: int, limit: int):
    async def spend(desk: Desk) -> None:
        assert await until_refused(desk, size) == limit // size

    desk = at_a_desk(spend, paid(0.0), workers=64, budget=Budget(max_rollouts=limit))
    assert len(desk.runner.log) == limit // size * size


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("real", [0.01, 0.007, 0.0])
def test_with_many_in_flight_the_money_never_exceeds_its_limit(size: int, real: float):
    most = 0.0

    async def spend(desk: Desk) -> None:
        nonlocal most

        def listen(job: Job, outcome: Outcome) -> None:
            nonlocal most
            # at any moment: what is spent, and the worst of what is under way
            most = max(most, desk.purse.spent.usd + 0.01 * (desk.runner.flying))

        desk.evaluator.hearers = [listen]
        await until_refused(desk, size)

    desk = at_a_desk(spend, paid(real), workers=64, budget=Budget(max_usd=1.0), worst_usd=0.01)
    assert most <= 1.0 + 1e-9
    assert desk.purse.spent.usd <= 1.0 + 1e-9
    if real == 0.01:
        assert desk.purse.spent.usd > 1.0 - 0.01 * size


def test_tries_after_an_outage_are_no_rollouts_of_their_own():
    desk = at_a_desk(
        lambda desk: desk.answer(ask(4)), failing(OUTAGE, 1), budget=Budget(max_rollouts=4)
    )
    assert [outcome.failure for _, outcome in desk.evaluator.outcomes(ask(4))] == [None] * 4


@pytest.mark.parametrize(("cents", "tries"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_try_that_the_money_does_not_allow_is_not_made(cents: int, tries: int):
    desk = at_a_desk(
        lambda desk: desk.answer(ask(1)),
        failing(OUTAGE, 99),
        budget=Budget(max_usd=cents / 100),
        worst_usd=0.01,
    )
    assert len(desk.runner.log) == tries


def test_an_exception_of_a_runner_reaches_everyone_who_waits():
    def broken(candidate: Candidate, case: Case) -> float:
        raise RuntimeError("a runner must not raise")

    async def both(desk: Desk) -> None:
        tasks = [asyncio.create_task(desk.answer(ask(2))) for _ in range(2)]
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(end) for end in ends] == ["a runner must not raise"] * 2

    at_a_desk(both, ScriptedEvaluator(quality=broken))


def test_a_runner_that_cancels_itself_leaves_nobody_waiting():
    class Confused(ScriptedEvaluator):
        async def run(
            self, job: Job, candidate: Candidate, case: Case, scope: Scope
        ) -> Rollout | Failure:
            raise asyncio.CancelledError

    async def wait(desk: Desk) -> None:
        with pytest.raises(RunError, match="cancelled itself"):
            await asyncio.wait_for(desk.answer(ask(3)), 5)

    at_a_desk(wait, Confused(quality=half))


@pytest.mark.parametrize("scene", ["raises", "answers"])
def test_a_runner_that_makes_a_scene_when_cancelled_does_not_upset_the_purse(scene: str):
    class Difficult(ScriptedEvaluator):
        async def run(
            self, job: Job, candidate: Candidate, case: Case, scope: Scope
        ) -> Rollout | Failure:
            try:
                return await super().run(job, candidate, case, scope)
            except asyncio.CancelledError:
                if scene == "raises":
                    raise ProcessLookupError from None
                return Rollout(metrics={"score": 1.0})

    async def abandon(desk: Desk) -> None:
        task = asyncio.create_task(desk.answer(ask(4)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.01)
        assert (desk.purse.held, desk.purse._tries) == (0, 0)

    made = Difficult(quality=half, hangs=lambda job: True)
    desk = at_a_desk(abandon, made, budget=Budget(max_rollouts=4), workers=2)
    # an answer that came after all was paid for, and counts
    assert desk.purse.spent.rollouts == (2 if scene == "answers" else 0)


def test_what_is_left_of_a_budget_goes_to_the_elder_step_however_late_it_asks():
    async def race(desk: Desk) -> None:
        younger = asyncio.create_task(desk.answer(ask(4, purpose="screen"), step=1))
        await desk.runner.clock.sleep(5)
        await desk.answer(ask(4), step=0)
        desk.evaluator.opened(1)
        with pytest.raises(OutOfBudget):
            await younger

    desk = at_a_desk(race, budget=Budget(max_rollouts=6))
    assert {job.purpose for job in desk.runner.log} == {"decide"}


def test_a_younger_step_waits_for_no_elder_while_there_is_room_for_both():
    async def race(desk: Desk) -> None:
        await desk.answer(ask(4, purpose="screen"), step=1)
        await desk.answer(ask(4), step=0)

    assert len(at_a_desk(race, budget=Budget(max_rollouts=8)).runner.log) == 8


def test_an_elder_that_closes_without_asking_gives_its_room_back():
    async def race(desk: Desk) -> None:
        younger = asyncio.create_task(desk.answer(ask(4), step=1))
        await asyncio.sleep(0.01)
        assert desk.runner.log == []
        desk.evaluator.opened(1)
        await younger

    assert len(at_a_desk(race, budget=Budget(max_rollouts=4)).runner.log) == 4


class Counting(MemoryJournal):
    """A journal that counts its writes, and cannot write one of the cases."""

    def __init__(self, unwritable: str = "") -> None:
        super().__init__()
        self.writes: list[int] = []
        self.unwritable = unwritable

    def record(self, rows: Sequence[tuple[int, Job, Outcome]]) -> None:
        if any(job.case_id == self.unwritable for _, job, _ in rows):
            raise RunError("this cannot be written down")
        self.writes.append(len(rows))
        super().record(rows)


def counted(journal: Counting, use: Callable[[Desk], Awaitable[None]], seconds: float) -> None:
    async def whole() -> None:
        runner = ScriptedEvaluator(quality=half, seconds=lambda job: seconds)
        plan = replace(small_plan(runner), cases=small_cases(train=2, holdout=64), workers=8)
        desk = Desk(runner, plan, journal)
        await use(desk)
        await desk.evaluator.close()

    asyncio.run(whole())


def test_results_of_one_moment_are_written_together():
    journal = Counting()
    counted(journal, lambda desk: desk.answer(ask(64)), 1.0)
    assert journal.writes == [8] * 8


def test_a_result_that_cannot_be_written_takes_no_other_with_it():
    async def use(desk: Desk) -> None:
        with pytest.raises(RunError, match="cannot be written"):
            await desk.answer(ask(8))

    journal = Counting("holdout-3")
    counted(journal, use, 1.0)
    written = {record.job.case_id for record in journal.rollouts}
    assert written == {f"holdout-{n}" for n in range(8)} - {"holdout-3"}


def test_calls_of_a_rollout_that_was_cancelled_are_on_the_bill():
    class Calling(ScriptedEvaluator):
        async def run(
            self, job: Job, candidate: Candidate, case: Case, scope: Scope
        ) -> Rollout | Failure:
            async def reply() -> ModelReply:
                return ModelReply("hm", Usage(calls=1, usd=0.25))

            await scope.call({"prompt": case.id}, ModelReply, reply)
            return await super().run(job, candidate, case, scope)

    async def abandon(desk: Desk) -> None:
        task = asyncio.create_task(desk.answer(ask(2)))
        await desk.runner.clock.sleep(0.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0)

    desk = at_a_desk(abandon, Calling(quality=half, seconds=lambda job: 1.0))
    assert (desk.purse.spent.cancelled, desk.purse.spent.usd) == (2, 0.5)
    used = Usage(calls=1, usd=0.25)
    told = [(step, usage) for step, _, usage in desk.journal.cancelled(0)]
    assert told == [(0, used)] * 2, "a kill would lose it"


def test_calls_of_a_rollout_that_was_cancelled_and_made_again_are_billed_once():
    made: list[str] = []

    class Calling(ScriptedEvaluator):
        async def run(
            self, job: Job, candidate: Candidate, case: Case, scope: Scope
        ) -> Rollout | Failure:
            async def reply() -> ModelReply:
                made.append(case.id)
                return ModelReply("hm", Usage(calls=1, usd=0.25))

            await scope.call({"prompt": case.id}, ModelReply, reply)
            found = await super().run(job, candidate, case, scope)
            await scope.call({"prompt": f"{case.id}, then"}, ModelReply, reply)
            return found

    async def change_ones_mind(desk: Desk) -> None:
        for seconds in (0.5, 0.5, None):
            task = asyncio.create_task(desk.answer(ask(2)))
            if seconds is not None:
                await desk.runner.clock.sleep(seconds)
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)

    desk = at_a_desk(change_ones_mind, Calling(quality=half, seconds=lambda job: 1.0))
    assert len(made) == 4, "two for each rollout"
    assert (desk.purse.spent.cancelled, desk.purse.spent.rollouts) == (4, 2)
    assert desk.purse.spent.usd == 4 * 0.25
    assert desk.purse.spent.calls == 4


def test_pairs_that_were_joined_and_failed_meanwhile_are_paid_for():
    async def use(desk: Desk) -> None:
        first = asyncio.create_task(desk.answer(ask(4), step=0))
        await asyncio.sleep(0)
        second = asyncio.create_task(desk.answer(ask(8), step=1))
        await asyncio.gather(first, second, return_exceptions=True)

    desk = at_a_desk(use, failing(OUTAGE, 1), retries=0, budget=Budget(max_rollouts=9), workers=4)
    assert desk.purse.held == 0
    assert desk.purse.spent.rollouts <= 9


class Outage(ScriptedEvaluator):
    """Makes a dear call, fails, and when it is asked again makes a cheap one besides."""

    begun = 0

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        async def reply(usd: float) -> ModelReply:
            return ModelReply("hm", Usage(calls=1, tokens_in=10, usd=usd), seconds=2.0)

        await scope.call({"prompt": case.id}, ModelReply, lambda: reply(0.25))
        self.begun += 1
        if self.begun == 1:
            return Failure("server", "infrastructure", "503 at the second call")
        found = await super().run(job, candidate, case, scope)
        await scope.call({"prompt": f"{case.id}, then"}, ModelReply, lambda: reply(0.01))
        return found


def test_what_kept_measures_itself_is_that_of_the_whole_rollout():
    """Also what an outage had it pay before, and how long a reply took that is not asked again."""
    runner = Outage(quality=half)
    names = tuple(TieBreaker(name) for name in ("usd", "tokens", "seconds"))
    objective = replace(small_plan(runner).objective, tie_breakers=names)

    async def twice(desk: Desk) -> None:
        await desk.answer(ask(1))
        await desk.answer(ask(1))

    found = at_a_desk(twice, runner, retries=0, objective=objective).outcome().metrics
    assert found["usd"] == pytest.approx(0.26)
    assert found["tokens"] == 20
    assert found["seconds"] >= 2.0
