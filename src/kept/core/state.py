"""The state of a run: a fold over its journal, with no other home.

Live run, resume, report and page all call `advance`. The state is small: it never holds rollouts.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, assert_never

from kept.core import turns as lost_turns
from kept.core.alpha import Ledger
from kept.core.budget import NO_CALL, NOTHING, Dearest, Spend, StopReason
from kept.core.containers import Seen
from kept.core.event import (
    Event,
    OpenStep,
    Proposed,
    RunResumed,
    RunSettings,
    RunStarted,
    RunStopped,
    StepClosed,
    StepOpened,
    closed_step,
    resumed,
    screened,
)
from kept.core.near_misses import AHEAD, finalists, judged_whole, settled
from kept.core.proposal import (
    MERGE,
    Claim,
    History,
    NearMiss,
    Note,
    Pool,
    Proposal,
    Prove,
    Skip,
    joined,
    raced,
)
from kept.core.score import Evaluation
from kept.core.turns import Brought, all_asked_again, with_step

MOST_BARS = 2
"""Of those kept as better since the best moved; each costs draws of its own."""

GIVEN_UP = "given up: "
"""How the reason of a step begins that can no longer be paid."""

_NONE: Mapping[str, Any] = {}
_UNSET = RunSettings()


class FoldError(ValueError):
    """An event that cannot follow the ones before it."""


class State(NamedTuple):
    """Where a run stands; a tuple, because a new one is made with every event."""

    started: RunStarted | None = None
    incumbent: str = ""
    best: str = ""
    best_step: int | None = None
    """None while the seed is the best."""
    next_step: int = 0
    open: tuple[OpenStep, ...] = ()
    """In step order."""
    history: History = History()
    """Closed steps."""
    judged: Seen = Seen()
    """Ids of the candidates that have had a verdict."""
    turns: Mapping[str, int] = _NONE
    """Steps opened by proposer."""
    brought: Mapping[str, Brought] = _NONE
    """By proposer, in closed steps."""
    exhausted: frozenset[str] = frozenset()
    """Proposers that have no more to give."""
    lost: tuple[lost_turns.Lost, ...] = ()
    """Turns that an outage kept from their answer."""
    repeated: Mapping[str, int] = _NONE
    """Of the steps opened by a proposer, those that had an earlier one's turn again."""
    keeps: int = 0
    crashes: int = 0
    dry: int = 0
    """Steps closed since the last keep."""
    memory: tuple[Note, ...] = ()
    least: float | None = None
    """The lowest loss that an incumbent had on the deciding cases."""
    ledger: Ledger = Ledger()
    bars: tuple[str, ...] = ()
    """Kept as better since the best moved, and not bettered since: none of it is given up for a
    simpler text."""
    pool: Pool = ()
    given_up: StopReason | None = None
    """Why only what was set aside for the end may still be spent; None while more may be."""
    tried: str = ""
    """The incumbent that a promotion was last asked for."""
    claimed: str = ""
    """The best that was last measured on the sealed test."""
    spend: Spend = NOTHING
    """Of closed steps."""
    late: Spend = NOTHING
    """Of it, what was counted at stops since the last verdict."""
    dearest: Dearest = NO_CALL
    elapsed: float = 0.0
    """Wall time of past sittings; a killed one counts up to its last event."""
    sitting: tuple[float, float] | None = None
    """When the present sitting began and when it was last heard of."""
    evaluations: Mapping[str, tuple[Evaluation, ...]] = _NONE
    """Latest tallies of the seed, the incumbent and the best."""
    stopped: StopReason | None = None
    written: int = 0
    """Bytes of the rollout file that were there at the last verdict."""

    @property
    def seed(self) -> str:
        """Id of the candidate the run started from."""
        return self.started.seed if self.started else ""

    @property
    def settings(self) -> RunSettings:
        """Settings of the run, as its last start or resume has them."""
        return self.started.settings if self.started else _UNSET

    def settled(self) -> "State":
        """The state without what may differ between two sittings of the same run."""
        cleared = self._replace(spend=NOTHING, late=NOTHING, dearest=NO_CALL)
        return cleared._replace(elapsed=0.0, sitting=None, started=None, written=0)


def advance(state: State, event: Event) -> State:
    """The state after one more event."""
    if state.started is None and not isinstance(event, RunStarted):
        raise FoldError(f"a journal begins with `run_started`, not `{event.kind}`")
    match event:
        case RunStarted():
            if state.started is not None:
                raise FoldError("a second `run_started`")
            sitting = (event.t, event.t)
            seed = event.seed
            return state._replace(started=event, incumbent=seed, best=seed, sitting=sitting)
        case RunResumed():
            return _resumed(state, event)
        case RunStopped():
            began = state.sitting[0] if state.sitting else event.t
            elapsed = state.elapsed + max(0.0, event.t - began)
            state = state._replace(spend=state.spend + event.spend, late=state.late + event.spend)
            return state._replace(stopped=event.reason, elapsed=elapsed, sitting=None)
        case StepOpened():
            return _opened(state, event)
        case Proposed():
            return _proposed(state, event)
        case StepClosed():
            return _closed(state, event)
        case _:
            assert_never(event)


def _resumed(state: State, event: RunResumed) -> State:
    started = state.started
    assert started is not None, "the first event is `run_started`"
    now = resumed(started, event)
    more = now.settings.budget != started.settings.budget
    if more and state.history and state.history[-1].verdict.code == "unaffordable":
        state = _reopened(state)
    if state.stopped is not None and state.stopped.kind == "error":
        # somebody had a look at it: what did not answer then may do so now
        told, brought = lost_turns.mended(state.lost), all_asked_again(state.brought)
        state = state._replace(lost=told, brought=brought)
    sitting = state.sitting
    return state._replace(
        given_up=None if more else state.given_up,
        started=now,
        stopped=None,
        elapsed=state.elapsed + (max(0.0, sitting[1] - sitting[0]) if sitting else 0.0),
        sitting=(event.t, event.t),
    )


def _reopened(state: State) -> State:
    """The state in which a proof or a claim that could not be paid may be asked for again."""
    claimed = {e.purpose for e in state.evaluations.get(state.best, ())} >= {"test"}
    return state._replace(
        tried="" if state.incumbent != state.best else state.tried,
        claimed=state.claimed if claimed else "",
    )


def _heard(state: State, t: float) -> tuple[float, float] | None:
    return (state.sitting[0], t) if state.sitting else None


def fold(events: Iterable[Event], state: State | None = None) -> State:
    """The state after many events."""
    state = state or State()
    for event in events:
        state = advance(state, event)
    return state


def _opened(state: State, event: StepOpened) -> State:
    if event.step != state.next_step:
        raise FoldError(f"step {event.step} opened, {state.next_step} expected")
    if event.incumbent != state.incumbent:
        raise FoldError(f"step {event.step} opened on {event.incumbent}, not on the incumbent")
    step = OpenStep(event.step, event.turn, event.incumbent, event.rollouts_at, ledger=state.ledger)
    name = event.turn.proposer
    if state.lost and lost_turns.has(state.lost, event.turn):
        again = {**state.repeated, name: state.repeated.get(name, 0) + 1}
        state = state._replace(lost=lost_turns.opened(state.lost, event.turn), repeated=again)
    return state._replace(
        sitting=_heard(state, event.t),
        next_step=event.step + 1,
        open=(*state.open, step),
        ledger=state.ledger.give() if event.turn.races else state.ledger,
        turns={**state.turns, name: state.turns.get(name, 0) + 1},
    )


def _proposed(state: State, event: Proposed) -> State:
    at = _place(state, event.step)
    step = state.open[at]
    if step.reply is not None:
        raise FoldError(f"step {event.step} was proposed twice")
    changed = step._replace(reply=event.reply, spend=event.spend)
    others = (*state.open[:at], changed, *state.open[at + 1 :])
    return state._replace(open=others, sitting=_heard(state, event.t))


def _closed(state: State, event: StepClosed) -> State:
    if _place(state, event.step) != 0:
        raise FoldError(f"step {event.step} closed before step {state.open[0].step}")
    step, *rest = state.open
    if event.incumbent != step.incumbent:
        raise FoldError(f"step {event.step} was judged against {event.incumbent}, a past incumbent")
    verdict = event.verdict
    kept = verdict.outcome == "keep" and event.candidate is not None
    incumbent = event.candidate if kept and event.candidate else state.incumbent
    best = event.candidate if verdict.best and event.candidate else state.best
    memory = (*state.memory, step.reply) if isinstance(step.reply, Note) else state.memory
    spent_out = isinstance(step.reply, Skip) and step.reply.exhausted
    ledger = _settled_ledger(state, step, event)
    told = not _open_question(event)
    if kept:
        rest, ledger = _rebased(rest, incumbent, ledger)
    elif ledger.varies and not state.ledger.varies:
        # what is open was given its level while runs seemed to agree; one would decide it
        rest = [one._replace(ledger=one.ledger._replace(varies=True)) for one in rest]
    started = state.started
    without_cases = started is not None and started.settings.cases is None
    pool, closed = _pooled(state, step, event), closed_step(step, event, without_cases)
    judged = state.judged
    # what could not be told, or was never looked at, may be proposed again
    if event.candidate is not None and verdict.code not in ("indecisive", "stale", "unaffordable"):
        judged = judged.add(event.candidate)
    return state._replace(
        incumbent=incumbent,
        best=best,
        best_step=event.step if best != state.best else state.best_step,
        open=tuple(rest),
        history=state.history.add(closed),
        brought=with_step(state.brought, state.history, closed, (state.pool, pool)),
        judged=judged,
        exhausted=state.exhausted | {step.turn.proposer} if spent_out else state.exhausted,
        lost=lost_turns.closed(state.lost, step.turn, step.reply, verdict),
        keeps=state.keeps + kept,
        crashes=state.crashes + (verdict.outcome == "crash"),
        dry=0 if kept else state.dry + 1,
        memory=memory,
        least=_least(state, event, incumbent),
        ledger=ledger,
        bars=_bars(state, event, incumbent) if best == state.best else (),
        pool=pool,
        given_up=_given_up(event) or state.given_up,
        tried=step.incumbent if isinstance(step.reply, Prove) and told else state.tried,
        claimed=state.best if isinstance(step.reply, Claim) and told else state.claimed,
        spend=state.spend + event.spend,
        late=NOTHING,
        dearest=event.dearest,
        written=event.rollouts[1],
        evaluations=_remembered(state, event, {state.seed, incumbent, best}),
        sitting=_heard(state, event.t),
    )


def _rebased(rest: list[OpenStep], incumbent: str, ledger: Ledger) -> tuple[list[OpenStep], Ledger]:
    """A keep moves the ground under every open step: each is judged anew, at a level of its own."""
    moved: list[OpenStep] = []
    for step in rest:
        moved.append(step._replace(incumbent=incumbent, rebases=step.rebases + 1, ledger=ledger))
        ledger = ledger.give() if step.turn.races else ledger
    return moved, ledger


def _simplified(event: StepClosed) -> bool:
    """Whether it was tested for being no worse by more than a margin, not for being better."""
    return "margin" in event.verdict.numbers


def _bars(state: State, event: StepClosed, incumbent: str) -> tuple[str, ...]:
    """What a simplification must not fall behind, besides the best."""
    if incumbent == state.incumbent or _simplified(event):
        return state.bars
    last = state.bars[-1] if state.bars else state.best
    # what it was shown to be better than need not be looked at any more; a simpler text between the
    # two may have been worse, and says nothing of the one before
    others = state.bars[:-1] if last == event.incumbent else state.bars
    return (*others, incumbent)[-MOST_BARS:]


def _settled_ledger(state: State, step: OpenStep, event: StepClosed) -> Ledger:
    varies = "varies" in event.verdict.numbers
    ledger = state.ledger._replace(varies=True) if varies else state.ledger
    if _simplified(event) and isinstance(step.reply, Proposal):
        return ledger.cut(step.ledger.cuts + 1, kept=event.verdict.outcome == "keep")
    if event.verdict.outcome == "keep" and step.turn.races:
        ledger = ledger.keep(step.ledger.tests + 1)
    elif step.turn.alone and not _tested(step, event) and ledger.tests == step.ledger.tests + 1:
        ledger = ledger.take_back()  # nobody was given one after it, so that the next may have it
    proving = isinstance(step.reply, Prove) or step.turn.proves
    looked = proving and any(e.purpose == "promote" for e in event.evaluations)
    asked = looked or event.verdict.code == "unaffordable"  # which may have looked before
    if proving and asked and not _open_question(event) and AHEAD not in event.verdict.numbers:
        at_once = event.verdict.outcome == "keep"
        ledger = ledger._replace(promotions=ledger.promotions + 1, proven=ledger.proven + at_once)
    return ledger.chose() if "chosen" in event.verdict.numbers else ledger


def _tested(step: OpenStep, event: StepClosed) -> bool:
    """Whether a deciding case may have been looked at: what a screen drops has cost no risk."""
    if event.verdict.code == "unaffordable":
        return step.reply is not None  # given up in the middle: no tallies, whatever was read
    mine = (e for e in event.evaluations if e.candidate == event.candidate)
    return any(e.purpose in ("decide", "promote") and e.asked for e in mine)


def _least(state: State, event: StepClosed, incumbent: str) -> float | None:
    least = state.least
    for e in event.evaluations:
        ours = e.purpose == "decide" and e.candidate in (event.incumbent, incumbent)
        if ours and e.loss is not None and (least is None or e.loss < least):
            least = e.loss
    return least


def _open_question(event: StepClosed) -> bool:
    """Whether an outage kept the step from its answer: it may be asked again."""
    return event.verdict.code == "indecisive"


def _given_up(event: StepClosed) -> StopReason | None:
    verdict = event.verdict
    if event.given_up is not None or verdict.code != "unaffordable":
        return event.given_up
    # of a journal from before there was this field: what ran out stood among the numbers
    kind = "usd" if "out_of_usd" in verdict.numbers else "rollouts"
    return StopReason(kind, verdict.reason.removeprefix(GIVEN_UP))


def _pooled(state: State, step: OpenStep, event: StepClosed) -> Pool:
    verdict = event.verdict
    if _open_question(event):
        return state.pool
    if verdict.code == "near miss":
        estimate = verdict.numbers.get("estimate", 0.0)
        return joined(
            state.pool,
            NearMiss(event.step, estimate, screened(event)),
            _parent(state, step, event),
        )
    if verdict.code == "unaffordable" and not step.turn.proves and state.incumbent == state.best:
        # there was no money for a race, but there is some for the proof of what nothing leads
        return state.pool
    if isinstance(step.reply, Proposal) and step.reply.merges:
        if step.turn.proves and (final := finalists(state.history, step.incumbent)):
            return settled(state.pool, final, step.reply.merges, verdict.numbers)
        gain = verdict.numbers.get("gain", 0.0)
        return raced(state.pool, step.reply.merges, verdict.outcome == "keep", gain)
    # where nothing of the pool could be put together, nothing of it ever will be
    return () if step.turn.proposer == MERGE else state.pool


def _parent(state: State, step: OpenStep, event: StepClosed) -> tuple[int, float] | None:
    """What a near miss builds on, and the estimate of that; None where it stands by itself."""
    made = step.reply
    if not isinstance(made, Proposal) or not made.builds_on:
        return None
    if not judged_whole(made, event.reports):
        return None  # that is in the incumbent by now, and the estimate is of the rest
    (parent,) = made.builds_on
    return parent, state.history[parent].verdict.numbers.get("estimate", 0.0)


def _remembered(
    state: State, event: StepClosed, wanted: set[str]
) -> Mapping[str, tuple[Evaluation, ...]]:
    new = [evaluation for evaluation in event.evaluations if evaluation.candidate in wanted]
    if not new and wanted.issuperset(state.evaluations):
        return state.evaluations
    known = {id_: old for id_, old in state.evaluations.items() if id_ in wanted}
    for evaluation in new:
        others = [e for e in known.get(evaluation.candidate, ()) if e.purpose != evaluation.purpose]
        known[evaluation.candidate] = (*others, evaluation)
    return known


def _place(state: State, number: int) -> int:
    # open steps are numbered without a gap: they open in order and close in order
    at = number - state.open[0].step if state.open else -1
    if not 0 <= at < len(state.open):
        raise FoldError(f"step {number} is not open")
    return at
