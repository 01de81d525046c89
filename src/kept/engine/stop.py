"""Clock, stop requests, outage detection, and stop conditions beyond the budget.

The first stop request is polite; the second stops at once. A fake clock is in `kept.testing`.

An outage is reported after a minute or two, however many rollouts are pending. A race asks for
hundreds of rollouts before its first verdict, and each is retried for about 15 seconds. Waiting
for verdicts would mean waiting for all of them.

A run also stops when candidates or proposers keep failing, or when no proposer has anything new.
"""

import asyncio
import signal
from collections.abc import Iterable
from itertools import islice
from time import monotonic, time
from typing import Any

from kept.core.budget import StopReason
from kept.core.objective import unusable
from kept.core.proposal import USELESS, ClosedStep
from kept.core.rollout import Failure
from kept.core.schedules.round_robin import OF_THE_RUN
from kept.core.score import Evaluation
from kept.core.state import State
from kept.core.text import count
from kept.core.turns import MOST_FAILED, NOTHING, of_epoch_end
from kept.core.verdict import NOTHING_NEW, UNMEASURED, Verdict
from kept.engine.rollout import Work
from kept.gates._common import MIN_COVERAGE


class SystemClock:
    """Implements `kept.core.ports.Clock`."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time()

    # read twice for every rollout, so it is the function itself
    monotonic = staticmethod(monotonic)
    """Seconds that never run backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Signals that stop a run or a server in good order.

    SIGHUP, which a closing terminal sends, is left alone under `nohup` and where a program that
    embeds Kept handles it.
    """
    hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    return (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hangup else []))


class Interrupt:
    """Called by a signal handler, heeded by the loop. Made inside a running event loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._polite: asyncio.Future[None] = loop.create_future()
        self._now: asyncio.Future[None] = loop.create_future()

    def __call__(self) -> None:
        """Ask to stop; a second call insists."""
        if not self._polite.done():
            self._polite.set_result(None)
        elif not self._now.done():
            self._now.set_result(None)

    @property
    def asked(self) -> bool:
        """True once a stop was requested."""
        return self._polite.done()

    async def race(self, work: "asyncio.Future[Any]", seconds: float | None = None) -> None:
        """Until the work is done, someone asks to stop, or time is up."""
        # not `asyncio.wait`: it takes several times as long, and a run waits once for every step
        running = asyncio.get_running_loop()
        woken: asyncio.Future[None] = running.create_future()

        def wake(_: object = None) -> None:
            if not woken.done():
                woken.set_result(None)

        both = (work, self._polite)
        for one in both:
            one.add_done_callback(wake)
        timer = None if seconds is None else running.call_later(seconds, wake)
        try:
            await woken
        finally:
            for one in both:
                one.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()

    async def race_now(self, work: "asyncio.Future[Any]") -> None:
        """Until the work is done or someone insists; then the work is cancelled."""
        await asyncio.wait((work, self._now), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


TRIALS = 2
"""Rollouts that must show a broken measure, one after the other, before all others are spared."""

NOTHING_ANSWERS = "nothing answers"
"""Start of the message of an outage."""

LONGEST = 90.0
"""Seconds without any answer after which there will be none."""

FEWEST = 3
"""Rollouts that had none by then: a single slow one says nothing."""


class Silence:
    """Outage detector: duration and number of rollouts in a row without an answer."""

    def __init__(self) -> None:
        self.rollouts = 0
        """That had none since the last one that had."""
        self._since = 0.0

    def after(
        self, work: Work, failure: Failure | None, others: Iterable[Work] = ()
    ) -> StopReason | None:
        """Reason to stop the run after this finished rollout; None while it may go on.

        Among the others, one that began before the first that failed may yet have its answer.
        """
        if failure is None or failure.blame == "candidate":
            self.rollouts = 0
            return None
        self._since = min(self._since, work.started) if self.rollouts else work.started
        self.rollouts += 1
        seconds = work.ended - self._since
        if self.rollouts < FEWEST or seconds < LONGEST:
            return None
        if any(0 < one.started < self._since and one.outcome is None for one in others):
            return None
        tried = f"{count(self.rollouts, 'rollout')} in {seconds:.0f} s, and not one had an answer"
        return StopReason("error", f"{NOTHING_ANSWERS}: {tried}; the last: {failure.message}")


IDLE = 100
"""Steps in a row without anything new that mean there will be nothing."""

OUTAGE = 3
"""Steps in a row that mean that nothing else will come: undecided or crashed ones."""

OF_NO_USE = "nothing was proposed, so nothing was judged"
"""Start of the message when no reply could be used."""


def dead_end(state: State, verdict: Verdict) -> StopReason | None:
    """Reason to stop after this verdict, because going on makes no sense; else None."""
    seed = state.evaluations.get(state.seed, ())
    tried = _measured(state, OUTAGE) if verdict.code == "indecisive" else []
    if tried and all(step.verdict.code == "indecisive" for step in tried):
        never_ran = len(tried) == 1 and any(e.coverage < MIN_COVERAGE for e in seed)
        if len(tried) == OUTAGE or never_ran:
            words = verdict.private or verdict.reason
            how = (
                "does not answer" if unusable(words) is None else "gives no score that can be used"
            )
            return StopReason("error", f"the evaluator {how}: {words}")
    partly = no_bounds(state)
    if partly is not None:
        return StopReason(
            "error",
            f"{partly.unscored} of {partly.asked} rollouts of the seed failed, and "
            f"`{state.settings.metric}` has no bounds to count them by: {partly.first_failure}",
        )
    idle = state.history.last(IDLE) if verdict.code in NOTHING_NEW else ()
    if len(idle) == IDLE and all(step.verdict.code in NOTHING_NEW for step in idle):
        message = f"{IDLE} steps in a row proposed nothing new: {idle[-1].verdict.reason}"
        return StopReason("nothing left to propose", message)
    if verdict.code == "proposer failed":
        able = state.turns.keys() - state.exhausted - {*OF_THE_RUN}
        if able and all(state.brought.get(name, NOTHING).out for name in able):
            return StopReason("error", f"{MOST_FAILED} times in a row, {verdict.reason}")
    broken = next((e for e in seed if e.failed == e.asked), None)
    if broken is not None and _crash(verdict) and _only_crashed(state):
        # when neither the seed nor anything else runs, it is hardly the candidates' doing
        message = f"neither the seed nor any candidate runs: {broken.first_failure}"
        return StopReason("error", message)
    return None


def _crash(verdict: Verdict) -> bool:
    """True if a candidate was rolled out and failed everywhere."""
    return verdict.outcome == "crash" and verdict.code == "judged"


def _only_crashed(state: State) -> bool:
    """True if enough candidates were rolled out, and all of them crashed.

    Steps that rolled out nothing, as that of a duplicate, are neither for nor against it.
    """
    crashed = 0
    for step in state.history:
        if step.verdict.code not in UNMEASURED:
            if not _crash(step.verdict):
                return False
            crashed += 1
    return crashed >= OUTAGE


def _measured(state: State, most: int) -> list[ClosedStep]:
    """The last steps that rolled something out, the newest first.

    Others, as that of a proposer without an idea, say nothing of the measure. Asked at every step,
    so it must not look at all of them.
    """
    newest = reversed(state.history)
    return list(islice((s for s in newest if s.verdict.code not in UNMEASURED), most))


def no_bounds(state: State) -> Evaluation | None:
    """Evaluation of a seed that fails on some cases, where a failure has no value; else None.

    No gate can compare anything with that, so every further step would be undecided, too.
    """
    if state.incumbent != state.seed:
        return None
    # of those that a proof asks for, too; not of a sealed test, which comes when all is decided
    known = (e for e in state.evaluations.get(state.seed, ()) if e.purpose != "test")
    partly = (e for e in known if e.unscored and e.failed + e.missing < e.asked)
    return next(partly, None)


def true_end(state: State, reason: StopReason) -> StopReason:
    """The reason to stop, unless it hides that there never was anything to compare with.

    A seed may fail: candidates may mend it. Where none did, no figure of the run means anything.
    """
    if reason.resumable or state.keeps or state.best != state.seed:
        return reason
    if any(step.verdict.code == "better" for step in state.history):
        return reason
    useless = _useless(state)
    if useless is not None:
        return StopReason("error", f"{OF_NO_USE} ({reason.message}): {useless}")
    last = state.history.last(1)
    if last and all(step.verdict.code == "proposer failed" for step in state.history):
        words = f"nothing was proposed ({reason.message}): {last[0].verdict.reason}"
        return StopReason("error", words)
    known = _of_seed(state)
    if not known or any(e.loss is not None and e.failed < e.asked for e in known):
        return reason
    why = next((e.first_failure for e in known if e.first_failure), "no answer")
    message = f"the seed fails, and nothing was kept ({reason.message}): {why}"
    return StopReason("error", message)


def _useless(state: State) -> str | None:
    """Count and reason of unusable replies, if nothing else happened; else None.

    What an epoch ends with has nothing to do then, and says nothing for or against it.
    """
    steps = [step for step in state.history if not of_epoch_end(step.turn)]
    useless = [step for step in steps if _whose(step)]
    failed = sum(step.verdict.code == "proposer failed" for step in steps)
    if not useless or len(useless) + failed < len(steps):
        return None
    last = useless[-1]
    times = f"in {len(useless)} of {count(len(steps), 'turn')} no reply of the {_whose(last)}"
    return f"{times} could be used; the last: {last.verdict.reason}"


def _whose(step: ClosedStep) -> str:
    """Whose replies were of no use; empty where it was not for that."""
    return str(step.skip.about.get(USELESS, "")) if step.skip is not None else ""


def _of_seed(state: State) -> list[Evaluation]:
    """Evaluations of the seed that gates compare with."""
    known = state.evaluations.get(state.seed, ())
    compared = ("screen", "decide", "measure")
    found = [evaluation for evaluation in known if evaluation.purpose in compared]
    # of a run that is a final from its first step there is nothing else
    return found or [evaluation for evaluation in known if evaluation.purpose == "promote"]
