"""Rollouts: candidates × cases × repeats on a pool of workers.

Pairs that are known are served from memory; pairs under way are joined, not started twice. A result
is in the journal before anyone hears of it; results that arrive in the same moment are written
together. Work that nobody waits for any more is cancelled, and a runner that is cancelled must
leave nothing running.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from kept.core.budget import StopReason
from kept.core.containers import make
from kept.core.plan import Plan
from kept.core.ports import Clock, Journal
from kept.core.proposal import Ask
from kept.core.rollout import FREE, Failure, Job, Pair, Purpose
from kept.core.score import Outcome
from kept.engine.budget import Halt, Purse, Room
from kept.engine.replay import Known, answered
from kept.engine.rollout import Attempts, Order, Queue, Work
from kept.engine.stop import TRIALS, Silence
from kept.errors import JournalError, RunError

LAST = 5.0
"""Seconds that cancelled work gets to be gone."""

MOMENT = 0.001
"""Seconds for which a result may wait for others to be written with it."""

BREATH = 0.1
"""Seconds after which others have a turn, however quick the rollouts are."""

BLOCKS = 4
"""Rollouts in a row that must block before they are done one at a time."""

AT_A_TIME = 4
"""Workers that begin in one turn, or a quarter more: their calls leave before others are made."""

BATCH = 64
"""Results that are written together at most."""

Hearer = Callable[[Job, Outcome], None]


class Evaluator:
    """Answers Asks."""

    def __init__(
        self, plan: Plan, journal: Journal, known: Known, purse: Purse, clock: Clock
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._known = known
        self._purse = purse
        self.attempts = Attempts(plan, journal, known, purse, clock)
        self._queue = Queue()
        self._works: dict[Job, Work] = {}
        self._done: list[Work] = []
        """Finished work to write and report in the next batch."""
        self._orders: set[Order] = set()
        self._workers: set[asyncio.Task[None]] = set()
        self._most = plan.workers
        self._untried = 0
        self._silence = Silence()
        self._slow = True
        """True if the last rollout was slow enough to check whether it blocks the event loop."""
        self._breath = 0.0
        """When others were last given a turn."""
        self._blocked = 0
        """Rollouts in a row during which nobody else had a turn."""
        self._growing = False
        self._closed = False
        self._room = Room(purse)
        self.opened = self._room.opened
        self.hearers: Sequence[Hearer] = ()
        """Callbacks for every outcome, once it is written."""

    @property
    def wanted(self) -> set[str]:
        """Candidates that someone waits for."""
        return {id_ for order in self._orders for id_ in order.candidates}

    def try_one_first(self) -> None:
        """Do single rollouts before all others: where nothing works, a few show it."""
        self._untried = TRIALS
        self._most = 1

    async def answer(self, asks: Sequence[Ask], step: int) -> None:
        """Have every pair of these Asks known; raises `OutOfBudget` where they do not fit."""
        purposes: set[Purpose] = {ask.purpose for ask in asks}
        while True:
            wanted, fresh = self._unknown(asks)
            if not wanted:
                return
            if await self._room.reserve(fresh, step, purposes):
                break
            # while waiting, others may have started, or finished, what is wanted here
        if any(ask.purpose not in ("feedback", "probe") for ask in asks):
            self._room.heard_from(step)
        await self._wait(self._order(wanted, step, {ask.candidate for ask in asks}))

    def _order(self, wanted: Mapping[Job, Pair], step: int, candidates: set[str]) -> Order:
        """Join what is under way, and queue the rest."""
        order = Order(len(wanted), step, candidates)
        works, new = self._works, list[Work]()
        for job, pair in wanted.items():
            work = works.get(job)
            if work is not None:
                work.join(order)
            else:
                work = works[job] = Work(job, pair, step, order)
                new.append(work)
        self._queue.put(step, new)
        self._start_workers()
        return order

    async def _wait(self, order: Order) -> None:
        self._orders.add(order)
        try:
            await order.future
        except asyncio.CancelledError:
            self._abandon(order)
            raise
        finally:
            self._orders.discard(order)

    def outcomes(self, ask: Ask) -> list[tuple[Pair, Outcome]]:
        """Outcomes of an Ask, in the order of its pairs."""
        row = self._known.of(ask.candidate, ask.purpose)
        return [(pair, row[pair]) for pair in ask.pairs]

    def pause(self) -> None:
        """Start nothing more; what is in flight goes on."""
        self._closed = self.attempts.closed = True

    async def drain(self, seconds: float) -> None:
        """Wait a bounded time for what is in flight; workers end when paused."""
        if self._workers:
            await asyncio.wait(set(self._workers), timeout=seconds)
        self._write()

    async def close(self) -> None:
        """Cancel what is left and wait until it is gone."""
        self.pause()
        self._queue.clear()
        workers = list(self._workers)
        for task in workers:
            task.cancel()
        if workers:
            # bounded: user code that swallows its cancellation must not keep us
            await asyncio.wait(workers, timeout=LAST)
        self._write()
        self._works.clear()

    def _unknown(self, asks: Sequence[Ask]) -> tuple[dict[Job, Pair], int]:
        """Unknown pairs of the Asks, each once, and the number of them that are not queued yet."""
        found: dict[Job, Pair] = {}
        works, begun = self._works, 0
        for ask in asks:
            candidate, purpose = ask.candidate, ask.purpose
            row = self._known.of(candidate, purpose)
            for pair in ask.pairs:
                known = row.get(pair)
                if known is None or (known.failure is not None and not answered(known)):
                    case, repeat = pair
                    job = make(Job, (candidate, case, repeat, purpose))
                    begun += job in works and job not in found
                    found[job] = pair
        return found, len(found) - begun

    def _start_workers(self) -> None:
        """Start a worker if there is none, and more as long as those at work have to wait.

        A runner that never waits has its whole queue done by the first worker before a second is
        even started, which spares a task for every rollout.
        """
        if not self._workers:
            self._start_worker()
        if not self._growing and len(self._workers) < self._most:
            self._growing = True
            asyncio.get_running_loop().call_soon(self._grow)

    def _grow(self) -> None:
        self._growing = False
        if self._queue and not self._closed:
            there = len(self._workers)
            for _ in range(min(len(self._queue), self._most - there, max(AT_A_TIME, there // 4))):
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
        while (work := self._next()) is not None:
            while me.cancelling():
                # of an earlier pair, whose runner did not mind: this one must not pay for it
                me.uncancel()
            work.task = me
            if self._slow:
                work.yielded = False
                asyncio.get_running_loop().call_soon(work.let_others)
            try:
                outcome = await self.attempts.once(work)
                if outcome.failure is not None and outcome.failure.retryable:
                    outcome = await self.attempts.again(work, outcome)
                if self._finish(work, outcome):
                    # a runner that never waits would keep everyone else, and Ctrl-C, from theirs
                    await asyncio.sleep(0)
            except asyncio.CancelledError:
                if work.swept:
                    self._stopped(work)
                if self._closed:
                    raise
                # for this pair's sake only: nobody waits for it any more, unless nobody asked
                if not work.away and work.outcome is None:
                    self._fail(work, RunError(f"the runner cancelled itself on {work.job.scope}"))
            except Exception as error:  # noqa: BLE001 # handed on to everyone who waits
                self._fail(work, error)
            except BaseException as error:
                # whoever waits must not wait for a worker that is gone
                self._fail(work, RunError(f"the runner raised {type(error).__name__}: {error}"))
                raise

    def _next(self) -> Work | None:
        """Next work for a worker; None if there is none, or there are workers enough."""
        queue = self._queue
        while not self._closed and len(self._workers) <= (self._most or 1):
            work = queue.first.pop() if queue.first else queue.take()
            if work is None or not work.away:
                return work
        return None

    def _mind_blocking(self, work: Work) -> None:
        """Have a runner that never lets anyone else to their turn called by one worker alone.

        With more of them, each turn of the event loop would take as long as all their calls.
        """
        self._blocked = 0 if work.yielded else self._blocked + 1
        self._most = 1 if self._untried or self._blocked >= BLOCKS else self._plan.workers
        if work.yielded:
            self._start_workers()

    def _finish(self, work: Work, outcome: Outcome) -> bool:
        """Have it written with whatever else ends in this moment, as each write has its price.

        What took longer, and let nobody else to their turn meanwhile, is written at once: if the
        next one blocks the event loop too, this one must not wait for it in memory, where a kill
        would lose it. Tells whether others should have a turn now.
        """
        work.outcome = outcome
        (done := self._done).append(work)
        ended, blocked = work.ended, False
        self._slow = slow = ended - work.started >= MOMENT
        if slow:
            blocked = not work.yielded
            if work.yielded is not None:
                self._mind_blocking(work)
        if blocked or self._untried or len(done) >= BATCH or ended - done[0].ended >= MOMENT:
            self._write()
        elif len(done) == 1:
            asyncio.get_running_loop().call_soon(self._write)
        if blocked or ended - self._breath >= BREATH:
            self._breath = ended
            return True
        return False

    def _write(self) -> None:
        """Journal first; then tell."""
        done, self._done = self._done, []
        if done:
            self._write_together(done)

    def _write_together(self, done: Sequence[Work]) -> None:
        rows = [(w.payer, w.job, w.outcome) for w in done if w.outcome is not None]
        try:
            self._journal.record(rows)
        except Exception as error:  # noqa: BLE001 # handed on to everyone who waits
            if len(done) == 1:
                self._fail(done[0], error)
                return
            # one that cannot be written must not take the others with it
            for work in done:
                self._write_together([work])
            return
        self._settle(done, rows)
        for work, (_, job, outcome) in zip(done, rows, strict=True):
            try:
                if self.hearers or work.called:
                    self._tell(work, job, outcome)
            except Exception as error:  # noqa: BLE001 # a hearer's, and handed on likewise
                self._fail(work, error)
            for order in work.orders:
                order.left -= 1
                if order.left == 0 and not order.future.done():
                    order.future.set_result(None)
            if self._untried:
                self._tried(outcome.failure)
            if outcome.failure is not None or self._silence.rollouts:
                self._heed(self._silence.after(work, outcome.failure, self._works.values()))

    def _settle(self, done: Sequence[Work], rows: Sequence[tuple[int, Job, Outcome]]) -> None:
        """Have what was written known, and counted for whoever pays for it."""
        works, given_back = self._works, 0
        whose: tuple[str, Purpose] | None = None
        known: dict[Pair, Outcome] = {}
        for work, (_, job, outcome) in zip(done, rows, strict=True):
            candidate, _, _, purpose = job
            # most often those of the one before
            if whose is None or whose[0] != candidate or whose[1] != purpose:
                whose = candidate, purpose
                known = self._known.of(candidate, purpose)
            known[work.pair] = outcome
            if not work.away:
                work.away = True
                del works[job]
                given_back += 1
        self._room.give_back(given_back)
        self._purse.count(rows)

    def _tried(self, failure: Failure | None) -> None:
        """One of the very first results is in: let the others begin, or spare them."""
        if failure is None or failure.kind != "harness":
            self._untried = 0
            self._most = self._plan.workers
            self._start_workers()
            return
        self._untried -= 1
        if not self._untried:
            self._heed(StopReason("error", f"nothing can be measured: {failure.message}"))

    def _heed(self, over: StopReason | None) -> None:
        if over is not None:
            for work in list(self._works.values()):
                self._fail(work, Halt(over))

    def _tell(self, work: Work, job: Job, outcome: Outcome) -> None:
        for hear in self.hearers:
            hear(job, outcome.copied())
        if work.called:
            self._purse.done(job)
            billed = self.attempts.billed
            if answered(outcome):
                # what is settled will not be run again
                billed.pop(job, None)
                self._journal.forget_calls(job.scope)
            else:
                # what an outage left open may be, up to the miss
                billed[job] = billed.get(job, FREE) + work.scope_usage

    def _fail(self, work: Work, error: Exception) -> None:
        if (scope := work.scope) is not None and scope.called and self._works.get(work.job) is work:
            used = scope.usage if scope.usage.calls > 0 else FREE
            self._purse.cancel(work.payer, work.job, used)
        self._put_away(work)
        for order in work.orders:
            if not order.future.done():
                order.future.set_exception(error)

    def _put_away(self, work: Work) -> None:
        # once: a runner that answers or raises after it was cancelled is put away already
        if not work.away:
            work.away = True
            del self._works[work.job]
            self._room.give_back(1)

    def _abandon(self, order: Order) -> None:
        for work in self._works.values():
            work.leave(order)
        # not at once: a step that is judged anew may want the very same pairs a moment later
        asyncio.get_running_loop().call_soon(self._sweep)

    def _sweep(self) -> None:
        """Cancel the work that nobody waits for."""
        for work in [w for w in self._works.values() if not w.orders and w.outcome is None]:
            self._put_away(work)
            if work.task is not None:
                work.swept = True
                work.task.cancel()

    def _stopped(self, work: Work) -> None:
        """Count what cancelled work used, now that it has ended: a reply may have come since."""
        # of one that was stopped before, it may be that nothing new had come yet
        used = work.scope.usage if work.scope and work.scope.usage.calls > 0 else FREE
        if used is not FREE:
            billed = self.attempts.billed
            billed[work.job] = billed.get(work.job, FREE) + used
        self._purse.cancel(work.step, work.job, used)
        # a disk that is full is told of by the next write that somebody waits for
        with suppress(JournalError):
            self._journal.record_cancelled([(work.step, work.job, used)])
