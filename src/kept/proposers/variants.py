"""Proposers of given texts, each tried once in order, and measure-only proposers.

Measure-only proposers change nothing, for the last turns of a race for example.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kept.core.edit import Write
from kept.core.ports import Scope
from kept.core.proposal import Brief, Claim, Measure, Proposal, ProposerReply, Prove, Skip
from kept.core.schedules.round_robin import CLAIM, MEASURE, PROVE


@dataclass(frozen=True, slots=True)
class Measured:
    """Proposer that always requests the same measurement."""

    reply: Prove | Claim | Measure
    name: str
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Return the request."""
        return self.reply


MEASURED = (Measured(Prove(), PROVE), Measured(Claim(), CLAIM))

SEED_ALONE = Measured(Measure(), MEASURE)
"""The only turn of a run that plans a comparison."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One alternative: whole texts that replace those of artifacts."""

    texts: Mapping[str, str]
    """Texts by path of the artifact; artifacts not named keep theirs."""
    label: str


@dataclass(frozen=True, slots=True)
class Variants:
    """Proposes the nth variant on its nth turn."""

    variants: tuple[Variant, ...]
    name: str = "variants"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose the next variant; skip once all were proposed."""
        number = brief.turn.number
        if number >= len(self.variants):
            n = len(self.variants)
            words = "the only variant was proposed" if n == 1 else f"all {n} variants were proposed"
            return Skip(words, exhausted=True)
        variant = self.variants[number]
        edits = tuple(Write(path, text) for path, text in variant.texts.items())
        return Proposal(edits, why=f"variant {variant.label}")

    def most_proposed(self) -> int:
        """Number of variants: each is proposed once."""
        return len(self.variants)
