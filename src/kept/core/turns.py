"""Bookkeeping of turns: gain and cost of each proposer, and turns to repeat after an outage.

Gain and cost are counted when a step closes, from the journal alone. The cost is that of the step's
own candidate and of the calls behind it. Rollouts of the incumbent serve all steps, so they are
charged to none.

A turn that an outage kept from its answer is given once more, under its own number: a proposer of
one text a turn has the same text to propose. It comes back as soon as something was measured
since, when its proposer has nothing else, or when a run that an outage stopped is resumed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from kept.core.near_misses import judged_whole, kept_since, line_of
from kept.core.proposal import (
    MERGE,
    ClosedStep,
    History,
    Pool,
    Proposal,
    ProposerFailed,
    Reply,
    Turn,
)
from kept.core.verdict import UNMEASURED, Verdict

DISCOUNT = 0.5
"""Weight of a train gain while its near miss waits; nearly half of such gains are luck."""

MOST_FAILED = 3
"""Proposals in a row that failed, after which whoever made them is asked no more."""


class Brought(NamedTuple):
    """Of one proposer, in closed steps."""

    turns: int = 0
    keeps: int = 0
    """Steps that were kept, by themselves or together with others."""
    near: int = 0
    """Steps that were worth a race together with others."""
    wins: int = 0
    """Steps that count for something: kept ones, and near misses that still wait."""
    gain: float = 0.0
    """Of these, in the metric's unit."""
    rollouts: int = 0
    usd: float = 0.0
    simplifies: bool = False
    """True if it aims at less text at no loss, which no gain would show."""
    failed: int = 0
    """Turns in which nothing could be proposed."""
    in_a_row: int = 0
    """Of these, those since anything was."""

    @property
    def out(self) -> bool:
        """True if it has failed too often in a row to be asked again."""
        return self.in_a_row >= MOST_FAILED


NOTHING = Brought()


def with_step(
    brought: Mapping[str, Brought],
    history: History,
    step: ClosedStep,
    pools: tuple[Pool, Pool],
) -> Mapping[str, Brought]:
    """Statistics after one more step; the pools are those before and after it."""
    found = dict(brought)
    name, gain = step.turn.proposer, max(0.0, step.verdict.numbers.get("gain", 0.0))
    mine = found.get(name, NOTHING)
    simplifies = step.proposal is not None and step.proposal.simplifies
    failed = step.verdict.code == "proposer failed"
    # an outage is not its doing, but who has no answer time and again is not asked for now
    outage = failed and step.verdict.outcome == "skip"
    found[name] = mine._replace(
        turns=mine.turns + 1,
        failed=mine.failed + (failed and not outage),
        in_a_row=mine.in_a_row + 1 if failed else 0,
        rollouts=mine.rollouts + step.rollouts,
        usd=mine.usd + step.usd,
        simplifies=mine.simplifies or simplifies,
    )
    if step.verdict.code == "near miss":
        pooled = any(miss.step == step.step for miss in pools[1])
        _count(found, name, int(pooled), pooled * waiting(history, step), near=1)
    kept = step.verdict.outcome == "keep"
    members = step.proposal.merges if step.proposal is not None else ()
    if name == MERGE:
        there = kept_since(history, 0)
        stay = set(_lines(history, (miss.step for miss in pools[1]), there))
        gone = set(_lines(history, members, there)) if kept else set[int]()
        gone |= set(_lines(history, (miss.step for miss in pools[0]), there)) - stay
        for past in (history[number] for number in sorted(gone)):
            _count(found, past.turn.proposer, -1, -waiting(history, past))
        if kept:
            _share(found, history, sorted(set(_lines(history, members, there))), gain)
    elif kept:
        _count(found, name, 1, 0.0 if simplifies else gain, keeps=1)
    return found


def all_asked_again(brought: Mapping[str, Brought]) -> Mapping[str, Brought]:
    """Statistics in which no proposer is excluded for failing too often in a row."""
    return {name: own._replace(in_a_row=0) for name, own in brought.items()}


def _lines(history: History, steps: Iterable[int], there: Collection[int]) -> Iterator[int]:
    """Steps with all that they build on."""
    for step in steps:
        yield from line_of(history, step, there)


def waiting(history: History, step: ClosedStep) -> float:
    """Value of a near miss that waits in the pool, without the part of what it builds on."""
    gain, made = step.verdict.numbers.get("screen_gain", 0.0), step.proposal
    if made is not None and made.builds_on and judged_whole(made, step.reports):
        gain -= history[made.builds_on[0]].verdict.numbers.get("screen_gain", 0.0)
    return DISCOUNT * max(0.0, gain)


def _share(
    found: dict[str, Brought], history: History, members: Sequence[int], gain: float
) -> None:
    """Credit what was kept together to those that it came from, by what each promised."""
    past = [history[number] for number in members]
    promised = [(one.turn.proposer, waiting(history, one)) for one in past]
    whole = sum(worth for _, worth in promised)
    for name, worth in promised:
        part = worth / whole if whole else 1 / len(promised)
        _count(found, name, 1, gain * part, keeps=1)


def _count(
    found: dict[str, Brought], name: str, wins: int, gain: float, *, keeps: int = 0, near: int = 0
) -> None:
    mine = found.get(name, NOTHING)
    found[name] = mine._replace(
        wins=max(0, mine.wins + wins),
        gain=max(0.0, mine.gain + gain),
        keeps=mine.keeps + keeps,
        near=mine.near + near,
    )


AGAIN = 1
"""Retries of a turn: what has no answer after these is hardly an outage."""


class Lost(NamedTuple):
    """A turn without an answer."""

    proposer: str
    number: int
    ready: bool = False
    """True if the outage seems to be over."""
    again: int = 0
    """Number of retries so far."""
    open: bool = False
    """True while it is being tried."""

    @property
    def due(self) -> bool:
        """True if it may be given again."""
        return not self.open and self.again < AGAIN


def opened(lost: tuple[Lost, ...], turn: Turn) -> tuple[Lost, ...]:
    """Turns to retry after a turn has begun, which may be one of them."""
    if not has(lost, turn):
        return lost
    mine = (turn.proposer, turn.number)
    return tuple(
        one._replace(open=True, again=one.again + 1) if one[:2] == mine else one for one in lost
    )


def closed(
    lost: tuple[Lost, ...], turn: Turn, reply: Reply | None, verdict: Verdict
) -> tuple[Lost, ...]:
    """Turns to retry after a turn has ended."""
    if not lost and not _is_lost(turn, reply, verdict):
        return lost
    mine = (turn.proposer, turn.number)
    others = [one for one in lost if one[:2] != mine]
    if verdict.code not in (*UNMEASURED, "indecisive", "unaffordable"):
        others = [one._replace(ready=True) for one in others]
    if not _is_lost(turn, reply, verdict):
        return tuple(others)
    known = next((one for one in lost if one[:2] == mine), Lost(*mine))
    return (*others, known._replace(open=False, ready=False))


def mended(lost: tuple[Lost, ...]) -> tuple[Lost, ...]:
    """Turns to retry when a run is resumed that an outage stopped."""
    return tuple(one._replace(ready=True, again=0) for one in lost)


def has(lost: Iterable[Lost], turn: Turn) -> bool:
    """True if a turn is one of these."""
    return any(one[:2] == (turn.proposer, turn.number) for one in lost)


def due(lost: Iterable[Lost], proposer: str) -> list[Lost]:
    """Turns that a proposer may retry, those first whose outage seems over."""
    return sorted((o for o in lost if o.proposer == proposer and o.due), key=lambda o: not o.ready)


def _is_lost(turn: Turn, reply: Reply | None, verdict: Verdict) -> bool:
    if isinstance(reply, ProposerFailed):
        return reply.failure.outage
    # what puts others together is asked for again by whoever keeps them
    made = isinstance(reply, Proposal) and turn.proposer != MERGE
    return made and verdict.code == "indecisive"


STEP = "step"
"""The turn that reflects on a batch; the others are what an epoch ends with."""


def epoch_of(phase: str) -> int:
    """The epoch that a turn's phase belongs to; 0 for what belongs to none."""
    head = phase.partition("/")[0]
    return int(head[1:]) if head.startswith("e") and head[1:].isdigit() else 0


def of_epoch_end(turn: Turn) -> bool:
    """True for a turn at the end of an epoch or after a step."""
    return epoch_of(turn.phase) > 0 and turn.phase.partition("/")[2] != STEP
