"""The loop: open steps, have them judged side by side, close them in order.

Up to `width` steps are open at once. Whatever order they finish in, they close in step order, and
step n + width opens exactly when step n closes; so what happens next depends on the journal alone,
and a run that was cut anywhere resumes to the same end. When a step is kept, the steps behind it
are judged again against the new incumbent; so they are when a step first shows that runs of the
same differ.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from kept.core.budget import Spend, StopReason, out_of_time
from kept.core.event import Event, OpenStep, RunStopped, StepClosed, StepOpened
from kept.core.plan import Plan
from kept.core.ports import Clock, Journal, Sink
from kept.core.proposal import Proposal, Turn, proposal_scope
from kept.core.rollout import FREE, Job
from kept.core.schedules.round_robin import budget_stop, too_many_failures
from kept.core.state import GIVEN_UP, State, advance
from kept.core.text import count
from kept.core.verdict import Verdict
from kept.engine.budget import Halt, Purse, past_of
from kept.engine.evaluate import LAST, Evaluator
from kept.engine.judge import Judge, Judged, duplicate
from kept.engine.propose import Proposing
from kept.engine.replay import Known, answered
from kept.engine.stop import Interrupt, dead_end, true_end
from kept.errors import JournalError, KeptError

GRACE = 30.0
"""Seconds that what is in flight gets to finish when a run stops."""

MAIN_PART = 0.85
"""Share of a run's time after which no ordinary step begins, if there is something to do last."""


class Loop:
    """One sitting of a run."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal,
        state: State,
        clock: Clock,
        sinks: Sequence[Sink] = (),
        opened: Mapping[int, State] | None = None,
    ) -> None:
        self.state = state
        self.interrupt = Interrupt()
        self._plan = plan
        self._journal = journal
        self._clock = clock
        self._sinks = sinks
        self._opened: dict[int, State] = dict(opened or {})
        """The state each open step was opened in: what its brief is made of."""
        self._known = Known(journal)
        self._purse = Purse(plan, state.spend, self._elapsed)
        self._evaluator = Evaluator(plan, journal, self._known, self._purse, clock)
        self._judge = Judge(plan, self._known, self._evaluator, clock)
        self._proposing = Proposing(plan, journal, self._known, self._evaluator, clock)
        self._proposing.till = self._evaluator.attempts.till
        self._proposing.stopping = lambda: self.interrupt.asked
        self._tasks: dict[int, asyncio.Task[Judged]] = {}
        self._began = clock.monotonic()
        self._moot: dict[str, int] = {}
        """Rollouts of candidates that were counted as done to no use."""
        self._ending: StopReason | None = None
        """Reason why only the end of the run may still begin."""

    async def run(self) -> State:
        """Go on until there is a reason to stop."""
        reason = StopReason("error", "the run was cancelled")
        try:
            self._take_up()
            while True:
                stop = self._open_steps()
                if not self.state.open:
                    assert stop is not None
                    reason = stop
                    break
                ended = await self._first_verdict()
                if isinstance(ended, Judged):
                    self._close(ended)
                    dead = dead_end(self.state, ended.verdict)
                    ended = dead or too_many_failures(self._plan.budget, self.state)
                if ended is not None and not self._may_finish(ended):
                    reason = ended
                    break
            reason = true_end(self.state, reason)
        except Exception as error:
            # a bug of ours or of a runner is not mended by calling it something else
            what = error.message if isinstance(error, KeptError) else repr(error)
            reason = StopReason("error", what)
            raise
        finally:
            try:
                await self._wind_down(reason)
            finally:
                # also where something cannot be closed: how the run ended is known all the same
                if not self.state.open:
                    self._book_lost(self.state.next_step - 1, lambda job: False)
                late = self._purse.take_late()
                self._tell(RunStopped(reason=reason, t=self._clock.time(), spend=late))
                self._journal.sync()
        return self.state

    def _take_up(self) -> None:
        """Go on where an earlier sitting left off; nothing to do for a new run."""
        state = self.state
        self._known.save(self._plan.seed)
        # not by a Protocol, which sees no method that a sink hands on for another
        hearers = (getattr(sink, "on_rollout", None) for sink in self._sinks)
        self._evaluator.hearers = [hear for hear in hearers if hear is not None]
        self._proposing.remember(state, self._opened)
        if not state.history and self._plan.tries_one:
            self._evaluator.try_one_first()
        if state.next_step == 0:
            self._known.elsewhere |= self._take_up_rollouts(state)
            return
        self._evaluator.opened(len(state.history))
        self._ending = state.given_up
        self._purse.first_open = len(state.history)
        till = self._evaluator.attempts.till
        till.dearest = state.dearest
        elsewhere = {state.seed, *(step.candidate for step in state.history if step.candidate)}
        if state.open or self._journal.rollouts_size > state.written:
            elsewhere |= self._take_up_rollouts(state)
        self._known.elsewhere |= elsewhere
        for step in state.open:
            self._start(step.step)

    def _take_up_rollouts(self, state: State) -> set[str]:
        """Take up what open steps have done so far; candidates that have outcomes.

        A step that the journal has lost is opened again, hears its replies, and pays for them.
        """
        steps = state.open
        waiting = {step.step for step in steps}
        start = steps[0].rollouts_at if steps else state.written
        counted, elsewhere = set[Job](), set[str]()
        for step, job, usage in self._journal.cancelled(start):
            counted.add(job)
            if step in waiting or step >= state.next_step:
                self._purse.meter(step).cancel(usage)
        self._take_up_late(state)
        tail = self._journal.tail(start)
        self._evaluator.attempts.till.learn(self._journal.unpriced())
        for step, job, outcome in tail:
            elsewhere.add(job.candidate_id)
            counted.add(job)
            if answered(outcome):
                self._journal.forget_calls(job.scope)
            if step in waiting or step >= state.next_step:
                self._purse.meter(step).add((outcome,))
        silent = [proposal_scope(step.step) for step in steps if step.reply is None]
        past = past_of(self._journal.paid(), counted, silent)
        self._evaluator.attempts.billed, self._purse.past = past
        for waiting_step in steps:
            self._purse.pay(waiting_step.spend)
        return elsewhere

    def _take_up_late(self, state: State) -> None:
        """Count rollouts of closed steps that were stopped later, and that no stop has counted."""
        late = self._journal.cancelled(state.written)
        of_closed = [row for row in late if row[0] < len(state.history)]
        for step, job, usage in of_closed[state.late.cancelled :]:
            self._purse.cancel(step, job, usage)

    def _book_lost(self, step: int, wanted: Callable[[Job], bool]) -> None:
        """Have a step pay for rollouts that a kill cut off, and that nobody wants any more."""
        billed = self._evaluator.attempts.billed
        # a disk that is full is told of by what is written next
        with suppress(JournalError):
            for job, used in self._purse.take_lost(self._plan.cases.by_id, wanted).items():
                self._journal.record_cancelled([(step, job, used)])
                self._purse.cancel(step, job, used)
                billed[job] = billed.get(job, FREE) + used

    def _open_steps(self) -> StopReason | None:
        """Open steps up to the width; the reason when no more may open."""
        while len(self.state.open) < self._plan.width:
            turn = self._next_turn()
            if isinstance(turn, StopReason):
                return turn
            number = self.state.next_step
            self._tell(
                StepOpened(
                    step=number,
                    turn=turn,
                    incumbent=self.state.incumbent,
                    rollouts_at=self._journal.rollouts_size,
                    t=self._clock.time(),
                )
            )
            self._opened[number] = self.state
            self._start(number)
        return None

    def _next_turn(self) -> Turn | StopReason:
        """Next turn of the schedule; once nothing more may begin, its turns for the end."""
        budget, elapsed = self._plan.budget, self._elapsed()
        stop = self._ending or budget_stop(budget, self.state, elapsed)
        turn = stop or self._plan.schedule.next(self.state)
        if not isinstance(turn, StopReason):
            # where nothing is left to propose, more rollouts would not help
            turn = self._purse.used_up() or self._late(elapsed) or turn
        if isinstance(turn, StopReason) and not self.state.open and turn.kind != "error":
            in_time = out_of_time(budget, elapsed) is None
            return (self._plan.schedule.last(self.state) if in_time else None) or turn
        return turn

    def _late(self, elapsed: float) -> StopReason | None:
        """Reason to begin no ordinary step, to leave time for the end of the run."""
        minutes = self._plan.budget.max_minutes
        if minutes is None or not self._plan.reserve or elapsed < minutes * 60 * MAIN_PART:
            return None
        return StopReason("minutes", f"of {count(minutes, 'minute')}, what is left is for the end")

    def _may_finish(self, reason: StopReason) -> bool:
        """Give up what can no longer be paid, if there is something to do at the end."""
        if reason.kind not in ("rollouts", "usd", "failures", "nothing left to propose"):
            return False
        if self._plan.schedule.last(self.state) is None:
            return False
        self._ending = self._ending or reason
        if reason.kind not in ("rollouts", "usd"):
            return True  # what is open can still be paid
        for step in self.state.open:
            self._tasks[step.step].cancel()
            verdict = Verdict("skip", f"{GIVEN_UP}{reason.message}", code="unaffordable")
            self._close(Judged(None, (), verdict), given_up=reason)
        return True

    def _start(self, number: int) -> None:
        self._purse.proving = self._step(number).turn.proves
        self._tasks[number] = asyncio.get_running_loop().create_task(self._work(number))

    async def _work(self, number: int) -> Judged:
        """One step, from its brief to its verdict."""
        if self._step(number).reply is None:
            told = await self._proposing.ask(number, self._opened[number])
            if self._tasks.get(number) is not asyncio.current_task():
                # the step was closed meanwhile, and the proposer did not mind being cancelled
                raise asyncio.CancelledError
            self._purse.pay(told.spend, number)
            self._tell(told)
            self._proposing.heard(number, told.reply)
        return await self._judge.judge(self._step(number), self._opened[number], self.state)

    async def _first_verdict(self) -> Judged | StopReason:
        """Verdict of the oldest open step, or the reason to stop before there is one."""
        task = self._tasks[self.state.open[0].step]
        if not task.done():
            await self.interrupt.race(task, self._time_left())
        if self.interrupt.asked:
            return StopReason("interrupted", "stopped on request")
        if not task.done():
            late = out_of_time(self._plan.budget, self._elapsed())
            assert late is not None, "only an interrupt or the clock ends the wait"
            return late
        try:
            return task.result()
        except Halt as error:
            return error.reason

    def _close(self, judged: Judged, given_up: StopReason | None = None) -> None:
        """Write the verdict of the oldest open step, and let the others feel it."""
        step = self.state.open[0]
        verdict, evaluations = judged.verdict, judged.evaluations
        new = isinstance(step.reply, Proposal) and not step.reply.merges
        if new and judged.candidate is not None and judged.candidate in self.state.judged:
            verdict, evaluations = duplicate(), ()
        if self._purse.past:
            alive = self._alive()
            # what a proposer looks at is known only once it asks
            asks = ("feedback", "probe")
            self._book_lost(step.step, lambda job: job.candidate_id in alive or job.purpose in asks)
        held, agreed = self.state.evaluations, not self.state.ledger.varies
        self._tell(
            StepClosed(
                step=step.step,
                candidate=judged.candidate,
                incumbent=step.incumbent,
                reports=judged.reports,
                verdict=verdict,
                # the incumbent's tallies are written once, not with each of its challengers
                evaluations=tuple(e for e in evaluations if e not in held.get(e.candidate, ())),
                spend=self._settle(step, judged.candidate),
                rollouts=(step.rollouts_at, self._journal.rollouts_size),
                given_up=given_up,
                dearest=self._evaluator.attempts.till.dearest,
                times=judged.times,
                t=self._clock.time(),
            )
        )
        self._journal.sync()
        del self._tasks[step.step], self._opened[step.step]
        self._evaluator.opened(step.step + 1)
        self._proposing.forget(step.step)
        if self.state.incumbent != step.incumbent or (agreed and self.state.ledger.varies):
            for later in self.state.open:
                # the ground has moved, or one run no longer decides: it is judged anew
                if later.reply is not None:
                    self._tasks[later.step].cancel()
                    self._start(later.step)
        if step.step % self._plan.width == 0:
            self._forget()

    def _settle(self, step: OpenStep, candidate: str | None) -> Spend:
        """Spend of a step, with its wasted part."""
        tried = set(self._judge.attempts.pop(step.step, ())) - {candidate, self.state.incumbent}
        moot = 0
        for id_ in tried:
            # two steps may have tried the same: what one wrote off, the other does not again
            done = self._known.count(id_)
            moot += done - self._moot.get(id_, 0)
            self._moot[id_] = done
        return self._purse.close(step.step, moot) + step.spend

    def _forget(self) -> None:
        """Let go of candidates that are out of play."""
        alive = self._alive()
        self._known.keep_only(alive)
        self._judge.forget(alive)

    def _alive(self) -> set[str]:
        """Candidates that are in play."""
        state = self.state
        alive = {state.seed, state.incumbent, state.best, *state.bars, *self._evaluator.wanted}
        for step in state.open:
            alive.add(self._opened[step.step].incumbent)
            alive.update(self._judge.attempts.get(step.step, ()))
        return alive

    async def _wind_down(self, reason: StopReason) -> None:
        """Let what is in flight finish, within bounds; cancel the rest; leave nothing running."""
        self._evaluator.pause()
        if reason.kind != "error":
            drains = (self._proposing.drain(GRACE), self._evaluator.drain(GRACE))
            await self.interrupt.race_now(asyncio.gather(*drains))
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            # bounded, as for the workers; what was cut off is asked again by the next sitting
            await asyncio.wait(self._tasks.values(), timeout=LAST)
        await self._evaluator.close()
        try:
            await self._plan.runner.close()
        finally:
            await self._plan.scorer.close()

    def _step(self, number: int) -> OpenStep:
        steps = self.state.open
        return steps[number - steps[0].step]  # they close in order, so none is missing between

    def _time_left(self) -> float | None:
        minutes = self._plan.budget.max_minutes
        return None if minutes is None else max(0.0, minutes * 60 - self._elapsed())

    def _elapsed(self) -> float:
        return self.state.elapsed + self._clock.monotonic() - self._began

    def _tell(self, event: Event) -> None:
        state = advance(self.state, event)  # first: what cannot follow must not be written
        self._journal.append(event)
        self.state = state
        for sink in self._sinks:
            sink.on_event(event, self.state)
