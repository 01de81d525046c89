"""The last turns of a racing run: proposers that change nothing and have something measured."""

from dataclasses import dataclass

from kept.core.ports import Scope
from kept.core.proposal import Brief, Claim, ProposerReply, Prove
from kept.core.schedule import CLAIM, PROVE


@dataclass(frozen=True, slots=True)
class Measured:
    """Always asks for the same measurement."""

    reply: Prove | Claim
    name: str
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Have it measured."""
        return self.reply


MEASURED = (Measured(Prove(), PROVE), Measured(Claim(), CLAIM))
