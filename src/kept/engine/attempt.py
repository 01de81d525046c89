"""One rollout: run, score, and try again where that is allowed and may help."""

from collections.abc import Mapping
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.objective import OwnMeasure
from kept.core.plan import Plan
from kept.core.ports import Clock, Journal
from kept.core.quick import make
from kept.core.rollout import FREE, Failure, Job, Usage
from kept.core.score import Outcome, Score, usable
from kept.engine.known import Known
from kept.engine.purse import OutOfBudget, Purse
from kept.engine.scope import JournalScope
from kept.engine.till import OwnTill, Till
from kept.engine.work import Work

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
        """Where the money for calls comes from: also for those of proposers."""
        self.billed: dict[Job, Usage] = {}
        """Of rollouts that were stopped in flight, what they are charged with already: their calls
        are not made again when they are."""
        self.closed = False
        """Whether nothing is tried again."""

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
        """Whether another try is allowed, with its worst case set aside if so."""
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
        """Where the money for its calls comes from, if for each; those of old are now its own."""
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
        """What the objective asks of Kept's own measures, as far as it is known.

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
