"""Rollouts: candidates × cases × repeats on a pool of workers.

Pairs that are known are served from memory; pairs under way are joined, not started twice. A result
is in the journal before anyone hears of it. Work that nobody waits for any more is cancelled, and a
runner that is cancelled must leave nothing running.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence

from kept.core.plan import Plan
from kept.core.ports import Clock, Journal
from kept.core.proposal import Ask
from kept.core.rollout import Failure, Job, Pair, Usage
from kept.core.score import Outcome, Score, usable
from kept.engine.known import Known, answered
from kept.engine.purse import Meter, OutOfBudget, Purse
from kept.engine.scope import JournalScope

BACKOFF = 0.5
"""Seconds before the second try of a rollout; doubles with each further one."""

Listener = Callable[[int, Job, Outcome], None]


class _Order:
    """Someone waiting for a number of pairs."""

    __slots__ = ("future", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Work:
    """One pair to be rolled out."""

    __slots__ = ("job", "orders", "step", "task")

    def __init__(self, job: Job, step: int, order: _Order) -> None:
        self.job = job
        self.step = step
        self.orders = [order]
        self.task: asyncio.Task[None] | None = None


class Evaluator:
    """Answers Asks."""

    def __init__(
        self, plan: Plan, journal: Journal, known: Known, purse: Purse, clock: Clock
    ) -> None:
        self._plan = plan
        self._runner = plan.runner
        self._scorer = plan.scorer
        self._cases = plan.cases.by_id
        self._objective = plan.objective
        self._journal = journal
        self._known = known
        self._purse = purse
        self._clock = clock
        self._queue: list[tuple[int, int, _Work]] = []
        self._works: dict[Job, _Work] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._queued = 0
        self._growing = False
        self._closed = False
        self.meters: dict[int, Meter] = {}
        """What the rollouts that each open step asked for used."""
        self.listener: Listener = _nobody

    async def answer(self, asks: Sequence[Ask], step: int) -> None:
        """Have every pair of these Asks known; raises `OutOfBudget` where they do not fit."""
        # each once: a pair that is named twice is rolled out, and set aside for, once
        wanted = list(dict.fromkeys(job for ask in asks for job in self._unknown(ask)))
        fresh = [job for job in wanted if job not in self._works]
        if not wanted:
            return
        self._purse.reserve(len(fresh))
        order = _Order(len(wanted))
        for job in wanted:
            work = self._works.get(job)
            if work is not None:
                work.orders.append(order)
                continue
            work = self._works[job] = _Work(job, step, order)
            heapq.heappush(self._queue, (step, self._queued, work))
            self._queued += 1
        self._start_workers()
        try:
            await order.future
        except asyncio.CancelledError:
            self._abandon(order)
            raise

    def outcomes(self, ask: Ask) -> list[tuple[Pair, Outcome]]:
        """What came of an Ask, in the order it was asked."""
        row = self._known.of(ask.candidate)
        return [(pair, row[ask.purpose, pair]) for pair in ask.pairs]

    def pause(self) -> None:
        """Start nothing more; what is in flight goes on."""
        self._closed = True

    async def drain(self, seconds: float) -> None:
        """Wait a bounded time for what is in flight; workers end when paused."""
        if self._workers:
            await asyncio.wait(set(self._workers), timeout=seconds)

    async def close(self) -> None:
        """Cancel what is left and wait until it is gone."""
        self._closed = True
        self._queue.clear()
        workers = list(self._workers)
        for task in workers:
            task.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        self._works.clear()

    def _unknown(self, ask: Ask) -> list[Job]:
        row = self._known.of(ask.candidate)
        candidate, purpose = ask.candidate, ask.purpose
        return [
            Job(candidate, pair[0], pair[1], purpose)
            for pair in ask.pairs
            if (known := row.get((purpose, pair))) is None or not answered(known)
        ]

    def _start_workers(self) -> None:
        """Start a worker if there is none, and more as long as those at work have to wait.

        A runner that never waits has its whole queue done by the first worker before a second is
        even started, which spares a task for every rollout.
        """
        if not self._workers:
            self._start_worker()
        if not self._growing and len(self._workers) < self._plan.workers:
            self._growing = True
            asyncio.get_running_loop().call_soon(self._grow)

    def _grow(self) -> None:
        self._growing = False
        if self._queue and not self._closed:
            room = self._plan.workers - len(self._workers)
            for _ in range(min(len(self._queue), room, max(1, len(self._workers)))):
                self._start_worker()
            self._start_workers()

    def _start_worker(self) -> None:
        task = asyncio.get_running_loop().create_task(self._worker())
        self._workers.add(task)
        task.add_done_callback(self._worker_done)

    def _worker_done(self, task: "asyncio.Task[None]") -> None:
        self._workers.discard(task)
        if self._queue and not self._closed:
            self._start_workers()

    async def _worker(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        while self._queue and not self._closed:
            _, _, work = heapq.heappop(self._queue)
            if self._works.get(work.job) is not work:
                continue
            work.task = me
            try:
                await self._roll_out(work)
            except asyncio.CancelledError:
                # cancelled for this pair's sake only: nobody waits for it any more
                if self._closed or work.job in self._works:
                    raise
                me.uncancel()
            except Exception as error:  # noqa: BLE001 # handed on to everyone who waits
                self._fail(work, error)

    async def _roll_out(self, work: _Work) -> None:
        started = self._clock.monotonic()
        tries = 1
        try:
            rolled = await self._attempt(work.job)
            while rolled.failure is not None and rolled.failure.retryable:
                if not self._may_retry(tries):
                    break
                tries += 1
                await self._clock.sleep(BACKOFF * 2 ** (tries - 2))
                rolled = await self._attempt(work.job)
        finally:
            # all at once: what earlier tries cost is counted only when the last one is done
            self._purse.release(0, tries - 1)
        seconds = self._clock.monotonic() - started
        outcome = rolled.outcome(seconds, tries)
        self._finish(work, outcome)
        # what is settled will not be run again; what an outage left open may be, up to the miss
        if rolled.called and answered(outcome):
            self._journal.forget_calls(work.job.scope)

    def _may_retry(self, tries: int) -> bool:
        """Whether another try is allowed, with its worst case set aside if so."""
        if tries > self._plan.retries or self._closed:
            return False
        try:
            self._purse.reserve(0, tries=1)
        except OutOfBudget:
            return False
        return True

    async def _attempt(self, job: Job) -> "_Rolled":
        candidate = self._known.candidate(job.candidate_id)
        case = self._cases[job.case_id]
        scope = JournalScope(self._journal, job)
        rollout = await self._runner.run(job, candidate, case, scope)
        if isinstance(rollout, Failure):
            return _Rolled(rollout, scope, scope.usage)
        score = await self._scorer.score(job, rollout, candidate, case, scope)
        trace = self._journal.put(rollout.trace) if rollout.trace else ""
        # calls made through the scope were counted there; a runner with calls of its own reports
        usage = scope.usage if scope.usage.calls else rollout.usage
        if not isinstance(score, Failure):
            score = self._objective.fault(score.metrics) or usable(score)
        return _Rolled(score, scope, usage, trace)

    def _finish(self, work: _Work, outcome: Outcome) -> None:
        """Journal first; then tell."""
        job, step = work.job, work.step
        self._journal.record(step, job, outcome)
        self._known.add(job, outcome)
        del self._works[job]
        self._purse.release(1)
        self._purse.settle(outcome)
        self._meter(step).add(outcome)
        self.listener(step, job, outcome)
        for order in work.orders:
            order.left -= 1
            if order.left == 0 and not order.future.done():
                order.future.set_result(None)

    def count(self, step: int, outcome: Outcome) -> None:
        """Count a rollout of an earlier sitting towards a step that is still open."""
        self._purse.settle(outcome)
        self._meter(step).add(outcome)

    def _meter(self, step: int) -> Meter:
        meter = self.meters.get(step)
        if meter is None:
            meter = self.meters[step] = Meter()
        return meter

    def _fail(self, work: _Work, error: Exception) -> None:
        self._works.pop(work.job, None)
        self._purse.release(1)
        for order in work.orders:
            if not order.future.done():
                order.future.set_exception(error)

    def _abandon(self, order: _Order) -> None:
        for work in self._works.values():
            if order in work.orders:
                work.orders.remove(order)
        # not at once: a step that is judged anew may want the very same pairs a moment later
        asyncio.get_running_loop().call_soon(self._sweep)

    def _sweep(self) -> None:
        """Cancel the work that nobody waits for."""
        for work in [work for work in self._works.values() if not work.orders]:
            del self._works[work.job]
            self._purse.release(1)
            if work.task is not None:
                work.task.cancel()
                self._meter(work.step).cancelled += 1


class _Rolled:
    """One attempt, done."""

    __slots__ = ("called", "failure", "score", "trace", "usage")

    def __init__(
        self, end: Score | Failure, scope: JournalScope, usage: Usage, trace: str = ""
    ) -> None:
        self.called = scope.called
        self.failure = end if isinstance(end, Failure) else None
        self.score = end if isinstance(end, Score) else None
        self.usage = usage
        self.trace = trace

    def outcome(self, seconds: float, tries: int) -> Outcome:
        if self.score is None:
            return Outcome({}, self.failure, (), self.usage, seconds, tries, self.trace)
        score = self.score
        return Outcome(score.metrics, None, score.findings, self.usage, seconds, tries, self.trace)


def _nobody(step: int, job: Job, outcome: Outcome) -> None:
    """Hear nothing."""
