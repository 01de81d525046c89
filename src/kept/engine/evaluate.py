"""Rollouts: candidates × cases × repeats on a pool of workers.

Pairs that are known are served from memory; pairs under way are joined, not started twice. A result
is in the journal before anyone hears of it. Work that nobody waits for any more is cancelled, and a
runner that is cancelled must leave nothing running.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Sequence

from kept.core.plan import Plan
from kept.core.ports import Clock, Journal
from kept.core.proposal import Ask
from kept.core.rollout import FREE, Failure, Job, Pair, Rollout, Usage
from kept.core.score import Outcome, Score, usable
from kept.engine.known import Known, answered
from kept.engine.purse import OutOfBudget, Purse
from kept.engine.scope import JournalScope
from kept.errors import RunError

LAST = 5.0
"""Seconds that cancelled work gets to be gone."""

BACKOFF = 0.5
"""Seconds before the second try of a rollout; doubles with each further one."""

Listener = Callable[[int, Job, Outcome], None]


class _Order:
    """Someone waiting for a number of pairs."""

    __slots__ = ("future", "left", "step")

    def __init__(self, left: int, step: int) -> None:
        self.left = left
        self.step = step
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Work:
    """One pair to be rolled out."""

    __slots__ = (
        "called",
        "job",
        "orders",
        "rollout",
        "scope_usage",
        "started",
        "step",
        "task",
        "tries",
        "usage",
    )

    def __init__(self, job: Job, step: int, order: _Order) -> None:
        self.job = job
        self.step = step
        self.orders = [order]
        self.task: asyncio.Task[None] | None = None
        self.started = 0.0
        self.tries = 1
        self.called = False
        """Whether calls were made through its scope."""
        self.rollout: Rollout | None = None
        self.usage: Usage = FREE
        self.scope_usage: Usage = FREE


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
        self._released = asyncio.Event()
        self.wanted: Counter[str] = Counter()
        """Candidates that someone waits for."""
        self.listener: Listener = _nobody

    async def answer(self, asks: Sequence[Ask], step: int) -> None:
        """Have every pair of these Asks known; raises `OutOfBudget` where they do not fit."""
        # each once: a pair that is named twice is rolled out, and set aside for, once
        wanted = list(dict.fromkeys(job for ask in asks for job in self._unknown(ask)))
        fresh = [job for job in wanted if job not in self._works]
        if not wanted:
            return
        await self._reserve(len(fresh))
        # while waiting, others may have started, or finished, what is wanted here
        wanted = list(dict.fromkeys(job for ask in asks for job in self._unknown(ask)))
        started = [job for job in fresh if job in self._works or job not in wanted]
        if started:
            self._purse.release(len(started))
        if not wanted:
            return
        order = _Order(len(wanted), step)
        for job in wanted:
            work = self._works.get(job)
            if work is not None:
                work.orders.append(order)
                continue
            work = self._works[job] = _Work(job, step, order)
            heapq.heappush(self._queue, (step, self._queued, work))
            self._queued += 1
        self._start_workers()
        self.wanted.update(ask.candidate for ask in asks)
        try:
            await order.future
        except asyncio.CancelledError:
            self._abandon(order)
            raise
        finally:
            self.wanted.subtract(ask.candidate for ask in asks)

    async def _reserve(self, rollouts: int) -> None:
        """Set aside for so many rollouts; where they do not fit now, wait for what others hold.

        Only when nobody holds anything is it certain that they do not fit at all.
        """
        while True:
            try:
                self._purse.reserve(rollouts)
            except OutOfBudget as error:
                if error.reason.kind == "minutes" or not self._purse.held:
                    raise
                self._released.clear()
                await self._released.wait()
            else:
                return

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
        if workers:
            # bounded: user code that swallows its cancellation must not keep us
            await asyncio.wait(workers, timeout=LAST)
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
                # Unless it is closing time, it was for this pair's sake only: nobody waits for it.
                if not me.cancelling():
                    self._fail(work, RunError(f"the runner cancelled itself on {work.job.scope}"))
                elif self._closed or work.job in self._works:
                    raise
                else:
                    me.uncancel()
            except Exception as error:  # noqa: BLE001 # handed on to everyone who waits
                self._fail(work, error)
            except BaseException as error:
                # whoever waits must not wait for a worker that is gone
                self._fail(work, RunError(f"the runner raised {type(error).__name__}: {error}"))
                raise

    async def _roll_out(self, work: _Work) -> None:
        work.started = self._clock.monotonic()
        outcome = await self._attempt(work)
        if outcome.failure is not None and outcome.failure.retryable:
            outcome = await self._retry(work, outcome)
        self._finish(work, outcome)
        # what is settled will not be run again; what an outage left open may be, up to the miss
        if work.called and answered(outcome):
            self._journal.forget_calls(work.job.scope)

    async def _retry(self, work: _Work, outcome: Outcome) -> Outcome:
        """Try again, as long as that is allowed and may help."""
        try:
            while outcome.failure is not None and outcome.failure.retryable:
                if not self._may_retry(work.tries):
                    break
                work.tries += 1
                await self._clock.sleep(BACKOFF * 2 ** (work.tries - 2))
                outcome = await self._attempt(work)
        finally:
            # all at once: what earlier tries cost is counted only when the last one is done
            self._purse.release(0, work.tries - 1)
        return outcome

    def _may_retry(self, tries: int) -> bool:
        """Whether another try is allowed, with its worst case set aside if so."""
        if tries > self._plan.retries or self._closed:
            return False
        try:
            self._purse.reserve(0, tries=1)
        except OutOfBudget:
            return False
        return True

    async def _attempt(self, work: _Work) -> Outcome:
        job = work.job
        candidate = self._known.candidate(job.candidate_id)
        case = self._cases[job.case_id]
        scope = JournalScope(self._journal, job)
        rollout = work.rollout
        if rollout is None:
            rollout = await self._runner.run(job, candidate, case, scope)
            if rollout.usage is not FREE:
                work.usage += rollout.usage
            if isinstance(rollout, Failure):
                return self._outcome(work, scope, rollout)
            # kept, so that a scorer that has to try again does not have it run again
            work.rollout = rollout
        score = await self._scorer.score(job, rollout, candidate, case, scope)
        if not isinstance(score, Failure):
            score = self._objective.fault(score.metrics) or usable(score)
        return self._outcome(work, scope, score)

    def _outcome(self, work: _Work, scope: JournalScope, end: Score | Failure) -> Outcome:
        items = work.rollout.trace if work.rollout is not None else ()
        trace = self._journal.put(items) if items else ""
        # calls made through the scope are counted there, also those of earlier tries, which it
        # replays; what a runner reports of calls of its own comes on top, try by try
        usage = work.usage
        if scope.called:
            work.called = True
            work.scope_usage = max(work.scope_usage, scope.usage, key=lambda u: (u.calls, u.usd))
            usage = usage + work.scope_usage
        if self._plan.worst_usd and not usage.usd:
            # nothing told what it cost, so it is charged with what it may cost at most
            usage = usage + Usage(usd=self._plan.worst_usd * work.tries)
        seconds = self._clock.monotonic() - work.started
        if isinstance(end, Failure):
            return Outcome({}, end, (), usage, seconds, work.tries, trace)
        return Outcome(end.metrics, None, end.findings, usage, seconds, work.tries, trace)

    def _finish(self, work: _Work, outcome: Outcome) -> None:
        """Journal first; then tell."""
        job, step = work.job, work.step
        if work.orders and all(order.step != step for order in work.orders):
            # the step that asked first is closed; one that joined it pays
            step = work.orders[0].step
        self._journal.record(step, job, outcome)
        self._known.add(job, outcome)
        self._put_away(work)
        self._purse.meter(step).add(outcome)
        self.listener(step, job, outcome)
        for order in work.orders:
            order.left -= 1
            if order.left == 0 and not order.future.done():
                order.future.set_result(None)

    def _fail(self, work: _Work, error: Exception) -> None:
        self._put_away(work)
        for order in work.orders:
            if not order.future.done():
                order.future.set_exception(error)

    def _put_away(self, work: _Work) -> None:
        # once: a runner that answers or raises after it was cancelled is put away already
        if self._works.get(work.job) is work:
            del self._works[work.job]
            self._purse.release(1)
            self._released.set()

    def _abandon(self, order: _Order) -> None:
        for work in self._works.values():
            if order in work.orders:
                work.orders.remove(order)
        # not at once: a step that is judged anew may want the very same pairs a moment later
        asyncio.get_running_loop().call_soon(self._sweep)

    def _sweep(self) -> None:
        """Cancel the work that nobody waits for."""
        for work in [work for work in self._works.values() if not work.orders]:
            self._put_away(work)
            if work.task is not None:
                work.task.cancel()
                self._purse.meter(work.step).cancelled += 1


def _nobody(step: int, job: Job, outcome: Outcome) -> None:
    """Hear nothing."""
