"""Rollout queue, and execution of one rollout: run, score, and retry where allowed."""

import asyncio
import heapq
from collections.abc import Mapping
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.containers import make
from kept.core.objective import OwnMeasure
from kept.core.plan import Plan
from kept.core.ports import Clock, Journal
from kept.core.rollout import FREE, Failure, Job, Pair, Rollout, TraceItem, Usage
from kept.core.score import Outcome, Score, usable
from kept.engine.budget import OutOfBudget, OwnTill, Purse, Till
from kept.engine.replay import JournalScope, Known


class Order:
    """Someone waiting for a number of pairs."""

    __slots__ = ("candidates", "future", "left", "step")

    def __init__(self, left: int, step: int, candidates: set[str]) -> None:
        self.left = left
        self.step = step
        self.candidates = candidates
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Work:
    """One pair to be rolled out."""

    # what is the same for all of them at first stands here, not in every one: there are so many
    task: asyncio.Task[None] | None = None
    started = 0.0
    tried = 0.0
    """When the last try began, where it was not the first."""
    ended = 0.0
    tries = 1
    scope: JournalScope | None = None
    """Of the try that is under way."""
    called = False
    """True if calls were made through its scopes."""
    rollout: Rollout | None = None
    details: tuple[TraceItem, ...] = ()
    """Details of its score."""
    usage: Usage = FREE
    scope_usage: Usage = FREE
    ran: Usage = FREE
    """Of the runner's calls, once it has returned: a scorer that tries again replays none."""
    yielded: bool | None = None
    """True if the event loop ran other tasks meanwhile; None if that was not checked."""
    outcome: Outcome | None = None
    """Set when it is done, a moment before it is written and told."""
    swept = False
    """True if it was cancelled because its caller had gone."""
    away = False
    """True once delivered, failed or cancelled."""

    def __init__(self, job: Job, pair: Pair, step: int, order: Order) -> None:
        self.job = job
        self.pair = pair
        self.step = self.payer = step
        """The step that asked first, and the one that pays: the same, or another that remains."""
        self.orders = [order]

    def let_others(self) -> None:
        """Others have a turn."""
        self.yielded = True

    def join(self, order: Order) -> None:
        """Someone else waits for it, too."""
        self.orders.append(order)
        self._find_payer()

    def leave(self, order: Order) -> None:
        """Someone waits for it no more, if ever they did."""
        if order in self.orders:
            self.orders.remove(order)
            self._find_payer()

    def _find_payer(self) -> None:
        steps = [order.step for order in self.orders]
        self.payer = self.step if not steps or self.step in steps else steps[0]


class Queue:
    """Work that waits for a worker: that of elder steps first, then in the order it came."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, int, list[Work]]] = []
        self._count = 0
        self.first: list[Work] = []
        """The batch whose turn it is, the next one last."""

    def put(self, step: int, works: list[Work]) -> None:
        """Add what one Order brought."""
        works.reverse()  # taken from the end
        heapq.heappush(self._batches, (step, self._count, works))
        self._count += 1
        self.first = self._batches[0][2]

    def take(self) -> Work | None:
        """The next one."""
        while not self.first and self._batches:
            heapq.heappop(self._batches)
            self.first = self._batches[0][2] if self._batches else []
        return self.first.pop() if self.first else None

    def clear(self) -> None:
        """Drop all of it."""
        self._batches.clear()
        self.first = []

    def __len__(self) -> int:
        return sum(len(works) for _, _, works in self._batches)

    def __bool__(self) -> bool:
        return bool(self.first) or any(works for _, _, works in self._batches)


BACKOFF = 0.5
"""Seconds before the second try of a rollout; doubles with each further one."""


class Attempts:
    """Has work done, and tells how it ended."""

    def __init__(
        self, plan: Plan, journal: Journal, known: Known, purse: Purse, clock: Clock
    ) -> None:
        self._retries = plan.retries
        self._worst_usd = plan.worst_usd
        self._runner = plan.runner
        self._scorer = plan.scorer
        self._cases = plan.cases.by_id
        self._objective = plan.objective
        self._own = plan.objective.own
        self._journal = journal
        self._known = known
        self._purse = purse
        self._clock = clock
        self._last: Candidate | None = None
        self._by_call = purse.by_call
        self.till = Till(purse)
        """Admits paid calls, also those of proposers."""
        self.billed: dict[Job, Usage] = {}
        """Of rollouts that were stopped in flight, what they are charged with already: their calls
        are not made again when they are."""
        self.closed = False
        """True once nothing is retried."""

    async def again(self, work: Work, outcome: Outcome) -> Outcome:
        """Try again what ended like this, as long as that is allowed and may help."""
        try:
            while outcome.failure is not None and outcome.failure.retryable:
                if not self._may_retry(work.tries):
                    break
                work.tries += 1
                await self._clock.sleep(BACKOFF * 2 ** (work.tries - 2))
                outcome = await self.once(work)
        finally:
            # all at once: what earlier tries cost is counted only when the last one is done
            self._purse.release(0, work.tries - 1)
        return outcome

    def _may_retry(self, tries: int) -> bool:
        """True if another try is allowed; its worst case is then reserved."""
        if tries > self._retries or self.closed:
            return False
        try:
            self._purse.reserve(0, tries=1)
        except OutOfBudget:
            return False
        return True

    async def once(self, work: Work) -> Outcome:
        """One try of a rollout."""
        if work.tries == 1:
            work.started = self._clock.monotonic()
        elif self._own:
            work.tried = self._clock.monotonic()
        job = work.job
        id_, case_id, _, _ = job
        # most often that of the rollout before
        candidate = self._last
        if candidate is None or candidate.id != id_:
            candidate = self._last = self._known.candidate(id_)
        case = self._cases[case_id]
        pays = self._pays(job) if self._by_call or self._purse.past else None
        work.scope = scope = JournalScope(self._journal, job, pays)
        rollout = work.rollout
        if rollout is None:
            if self.billed and job in self.billed:
                scope.usage = FREE - self.billed[job]
            rollout = await self._runner.run(job, candidate, case, scope)
            if rollout.usage is not FREE:
                work.usage += rollout.usage
            if isinstance(rollout, Failure):
                return self._outcome(work, scope, rollout)
            # kept, so that a scorer that has to try again does not have it run again
            work.rollout = rollout
            if scope.called:
                work.ran, work.called = scope.usage, True
        else:
            scope.usage, scope.called = work.ran, work.called
        score = await self._scorer.score(job, rollout, candidate, case, scope)
        if not isinstance(score, Failure):
            work.details = score.details
            if score.failure is None:
                fault = self._objective.fault(score.metrics)
                # of a single measure that is all there is to say
                score = fault or (score if len(score.metrics) == 1 else usable(score))
                return self._outcome(work, scope, score)
            score = score.failure
        if score.blame == "infrastructure":
            score = replace(score, scoring=True)
        return self._outcome(work, scope, score)

    def _pays(self, job: Job) -> OwnTill | None:
        """Admission of its calls, if each is paid; takes over the usage of an earlier session."""
        own = self.till.of(job)
        return own if self._by_call else None

    def _outcome(self, work: Work, scope: JournalScope, end: Score | Failure) -> Outcome:
        rollout, usage, tries = work.rollout, work.usage, work.tries
        told = rollout.trace + work.details if rollout is not None else ()
        trace = self._journal.put(told) if told else ""
        # calls made through the scope are counted there, also those of earlier tries, which it
        # replays; what a runner reports of calls of its own comes on top, try by try
        if scope.called:
            work.called = True
            work.scope_usage = max(work.scope_usage, scope.usage, key=lambda u: (u.calls, u.usd))
            usage = usage + work.scope_usage
        if self._worst_usd and not usage.usd:
            # nothing told what it cost, so it is charged with what it may cost at most
            usage = usage + Usage(usd=self._worst_usd * tries)
        work.ended = ended = self._clock.monotonic()
        seconds = ended - work.started
        if isinstance(end, Failure):
            return Outcome({}, end, (), usage, seconds, tries, trace)
        metrics, findings, _, _ = end
        if self._own:
            # what a scorer emits by such a name is what is meant
            metrics = {**self._measured(work, scope, usage), **metrics}
        return make(Outcome, (metrics, None, findings, usage, seconds, tries, trace))

    def _measured(self, work: Work, scope: JournalScope, usage: Usage) -> Mapping[str, float]:
        """Kept's own measures that the objective uses, as far as they are known.

        Of the whole rollout: also of calls that are charged for already, and of replies that came
        in an earlier sitting. The time is that of the last try.
        """
        whole = usage + self.billed.get(work.job, FREE)
        found: dict[OwnMeasure, float] = {
            "usd": whole.usd,
            "seconds": work.ended - (work.tried or work.started) + scope.replayed,
            "tokens": float(whole.tokens_in + whole.tokens_out),
        }
        # what nobody counted, or no price is known of, did not cost nothing
        return {name: found[name] for name in self._own if found[name]}
