"""Proposers that change nothing and have something measured: in the last turns of a race, say."""

from dataclasses import dataclass

from kept.core.ports import Scope
from kept.core.proposal import Brief, Claim, Measure, ProposerReply, Prove
from kept.core.schedules.schedule import CLAIM, MEASURE, PROVE


@dataclass(frozen=True, slots=True)
class Measured:
    """Always asks for the same measurement."""

    reply: Prove | Claim | Measure
    name: str
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Have it measured."""
        return self.reply


MEASURED = (Measured(Prove(), PROVE), Measured(Claim(), CLAIM))

SEED_ALONE = Measured(Measure(), MEASURE)
"""The one turn of a run that plans a comparison."""
