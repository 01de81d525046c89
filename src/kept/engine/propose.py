"""From a brief to a reply: calling a proposer, answering what it asks, telling what came of it."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.budget import StopReason
from kept.core.event import Proposed
from kept.core.llm import CASE, EXPECTED
from kept.core.near_misses import on_top
from kept.core.plan import Plan
from kept.core.ports import Clock, Journal, Proposer
from kept.core.proposal import (
    Answer,
    Ask,
    Brief,
    Parent,
    Proposal,
    ProposerFailed,
    ProposerReply,
    Reply,
    derive_seed,
    proposal_scope,
)
from kept.core.rollout import Failure, TraceItem
from kept.core.state import State
from kept.engine.budget import Halt, Till, spend_on
from kept.engine.evaluate import Evaluator
from kept.engine.replay import JournalScope, Known
from kept.errors import KeptError, RunError


class Proposing:
    """Makes briefs and has them answered."""

    def __init__(
        self, plan: Plan, journal: Journal, known: Known, evaluator: Evaluator, clock: Clock
    ) -> None:
        self.till: Till | None = None
        """Admits paid calls; None if money is not limited."""
        self.stopping: Callable[[], bool] = bool
        """Returns True once the run was asked to stop; by default it never is."""
        self._plan = plan
        self._journal = journal
        self._known = known
        self._evaluator = evaluator
        self._clock = clock
        self._replies: dict[int, Reply] = {}
        self._first_open = 0
        self._widest = plan.width
        self._told: dict[int, asyncio.Event] = {}
        self._flying = 0
        self._idle = asyncio.Event()

    def remember(self, state: State, opened: Mapping[int, State]) -> None:
        """Take up replies of earlier sittings that later steps may still want to see."""
        # however wide an earlier sitting was, an open step looks back to its oldest elder at most
        seen = [elder.step for then in opened.values() for elder in then.open]
        for closed in state.history[min(seen, default=len(state.history)) :]:
            if closed.proposal is not None:
                self._replies[closed.step] = closed.proposal
        self._first_open = len(state.history)
        self._widest = max(self._widest, len(state.open))
        for step in state.open:
            if step.reply is not None:
                self.heard(step.step, step.reply)

    def heard(self, number: int, reply: Reply) -> None:
        """A step's reply is in the journal: those behind it may look at it, its calls are done."""
        self._journal.forget_calls(f"propose/{number}")
        self._replies[number] = reply
        if number in self._told:
            self._told[number].set()

    def forget(self, closed: int) -> None:
        """A step closed; nobody opened from now on looks back to it."""
        self._first_open = closed + 1
        self._told.pop(closed, None)
        self._replies.pop(closed - 2 * self._widest - 1, None)

    async def drain(self, seconds: float) -> None:
        """Wait a bounded time for proposers that are at work."""
        if self._flying:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)

    async def ask(self, number: int, opened: State) -> Proposed:
        """Have a proposer answer the brief of a step that was opened in this state."""
        step = opened.open[-1]
        proposer = self._plan.proposer(step.turn.proposer)
        open_proposals = await self._elders(opened.open[0].step, number) if proposer.serial else ()
        brief = Brief(
            step=number,
            turn=step.turn,
            seed=derive_seed(self._plan.random_seed, step.turn.phase, number),
            incumbent=self._known.candidate(opened.incumbent),
            history=opened.history,
            open=open_proposals,
            train=self._plan.cases.train,
            memory=opened.memory,
            rules=self._plan.rules,
            objective=self._plan.objective,
            pool=opened.pool,
            guidance=self._plan.guidance,
            labels=self._plan.labels,
        )
        if step.turn.parent is None:
            return await self._converse(proposer, brief)
        parent = Parent(opened.history[step.turn.parent], brief.incumbent)
        assert parent.step.candidate is not None, "a near miss has a candidate"
        near = self._known.candidate(parent.step.candidate)
        told = await self._converse(proposer, replace(brief, incumbent=near, parent=parent))
        if not isinstance(told.reply, Proposal):
            return told
        return replace(told, reply=on_top(parent.step, told.reply))

    async def _elders(self, first: int, number: int) -> list[Proposal]:
        """Proposals of earlier steps, from the first that was open with this one."""
        replies, found = self._replies, list[Proposal]()
        for elder in range(first, number):
            if elder not in replies and elder >= self._first_open:
                await self._event(elder).wait()
            # at once: while a later one is waited for, it may be forgotten
            if isinstance(reply := replies.get(elder), Proposal):
                found.append(reply)
        return found

    async def _converse(self, proposer: Proposer, brief: Brief) -> Proposed:
        """Call, answer what is asked, call again: until there is a reply."""
        path = proposal_scope(brief.step)
        while True:
            pays = self.till.of(brief.step) if self.till is not None else None
            scope = JournalScope(self._journal, path, pays=pays)
            reply = await self._call(proposer, brief, scope)
            if not isinstance(reply, Ask):
                break
            if (made := reply.made) is not None:
                # anew, for its texts may be another's by now, or be changed later
                reply = replace(reply, made=Candidate({**made.texts}, {**made.blobs}))
            self._check(reply, proposer)
            if any(answer.ask == reply for answer in brief.answers):
                reply = Failure("harness", "infrastructure", "it asked for the same thing twice")
                break
            if reply.made is not None:
                self._known.save(reply.made)
            await self._evaluator.answer([reply], brief.step)
            brief = replace(brief, answers=(*brief.answers, self._answer(reply)))
        if isinstance(reply, Proposal) and reply.ungated and not brief.turn.takes:
            # before it is written: the step stays open for a proposer that was mended
            raise RunError(
                f"the proposer `{proposer.name}` wants its text taken without a comparison",
                hint="leave out `ungated`: in this turn the gate decides what is kept",
            )
        spend = spend_on(scope.usage)
        if isinstance(reply, Failure):
            if reply.kind == "harness" and reply.tried:
                # a wrong key, say: the step stays open, and a resume goes on with it once mended
                words = f"the proposer `{proposer.name}` cannot work: {reply.message}"
                raise Halt(StopReason("error", words))
            reply = ProposerFailed(reply)
        return Proposed(step=brief.step, reply=reply, spend=spend, t=self._clock.time())

    async def _call(self, proposer: Proposer, brief: Brief, scope: JournalScope) -> ProposerReply:
        self._flying += 1
        try:
            return await proposer.propose(brief, scope)
        except (KeptError, Halt):
            raise
        except asyncio.CancelledError as error:
            me = asyncio.current_task()
            if me is None or me.cancelling() or self.stopping():
                # what a stop cut off is nobody's crash: the step stays open for the next sitting
                raise
            return _crash(error)
        except Exception as error:  # noqa: BLE001 # the port wrapper: a proposer's bug is a value
            return _crash(error)
        finally:
            self._flying -= 1
            if not self._flying:
                self._idle.set()

    def _check(self, ask: Ask, proposer: Proposer) -> None:
        """A proposer never sees the cases that decide."""
        train = {case.id for case in self._plan.cases.train}
        if ask.purpose not in ("feedback", "probe") or any(p.case not in train for p in ask.pairs):
            raise RunError(
                f"the proposer `{proposer.name}` asked for rollouts it may not see",
                hint="a proposer may ask for `feedback` and `probe` rollouts of train cases only",
            )
        if ask.made is not None and (ask.made.id != ask.candidate or ask.purpose != "probe"):
            raise RunError(
                f"the proposer `{proposer.name}` made a candidate of its own for `{ask.purpose}`",
                hint="what a proposer makes to look at is named by its own id, and for `probe`",
            )

    def _answer(self, ask: Ask) -> Answer:
        outcomes = {p: o.copied() for p, o in self._evaluator.outcomes(ask)}
        traces = {p: self._journal.trace(o.trace) for p, o in outcomes.items() if o.trace}
        return Answer(ask, outcomes, {p: _without_gold(trace) for p, trace in traces.items()})

    def _event(self, number: int) -> asyncio.Event:
        told = self._told.get(number)
        if told is None:
            told = self._told[number] = asyncio.Event()
        return told


def _without_gold(trace: tuple[TraceItem, ...]) -> tuple[TraceItem, ...]:
    """Trace without expected outputs; those who may see them get them with the case."""
    if not any(item.role in (CASE, EXPECTED) for item in trace):
        return trace
    return tuple(item for item in trace if item.role not in (CASE, EXPECTED))


def _crash(error: BaseException) -> Failure:
    return Failure("crash", "infrastructure", f"{type(error).__name__}: {error}")
