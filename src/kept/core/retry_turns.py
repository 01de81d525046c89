"""Turns that an outage kept from their answer: each is given once more.

The same turn, by its number: who proposes one text a turn has the same one to propose. It comes
back as soon as anything has been measured since, or when its proposer has nothing else to give;
and after a run that stopped for an outage, when it is taken up again.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kept.core.proposal import MERGE, Proposal, ProposerFailed, Reply, Turn
from kept.core.verdict import UNMEASURED, Verdict

AGAIN = 1
"""How often a turn is given again: what has no answer then is hardly an outage."""


class Lost(NamedTuple):
    """A turn without an answer."""

    proposer: str
    number: int
    ready: bool = False
    """Whether the outage seems to be over."""
    again: int = 0
    """How often it was given again."""
    open: bool = False
    """Whether it is being tried."""

    @property
    def due(self) -> bool:
        """Whether it may be given again."""
        return not self.open and self.again < AGAIN


def opened(lost: tuple[Lost, ...], turn: Turn) -> tuple[Lost, ...]:
    """What is lost when a turn begins: it may be one of these."""
    if not has(lost, turn):
        return lost
    mine = (turn.proposer, turn.number)
    return tuple(
        one._replace(open=True, again=one.again + 1) if one[:2] == mine else one for one in lost
    )


def closed(
    lost: tuple[Lost, ...], turn: Turn, reply: Reply | None, verdict: Verdict
) -> tuple[Lost, ...]:
    """What is lost when a turn has come to its end."""
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
    """What is lost when somebody takes up a run that had stopped for want of answers."""
    return tuple(one._replace(ready=True, again=0) for one in lost)


def has(lost: Iterable[Lost], turn: Turn) -> bool:
    """Whether a turn is one of these."""
    return any(one[:2] == (turn.proposer, turn.number) for one in lost)


def due(lost: Iterable[Lost], proposer: str) -> list[Lost]:
    """What a proposer may be given again, those first that had better be."""
    return sorted((o for o in lost if o.proposer == proposer and o.due), key=lambda o: not o.ready)


def _is_lost(turn: Turn, reply: Reply | None, verdict: Verdict) -> bool:
    if isinstance(reply, ProposerFailed):
        return reply.failure.outage
    # what puts others together is asked for again by whoever keeps them
    made = isinstance(reply, Proposal) and turn.proposer != MERGE
    return made and verdict.code == "indecisive"
