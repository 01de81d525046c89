"""Texts somebody already wrote: each is tried once, in order."""

from dataclasses import dataclass

from kept.core.edit import Write
from kept.core.ports import Scope
from kept.core.proposal import Brief, Proposal, ProposerReply, Skip


@dataclass(frozen=True, slots=True)
class Variant:
    """One alternative: the whole text of one artifact."""

    path: str
    text: str
    label: str


@dataclass(frozen=True, slots=True)
class Variants:
    """Proposes the nth variant on its nth turn."""

    variants: tuple[Variant, ...]
    name: str = "variants"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """The next variant, or that there are no more."""
        number = brief.turn.number
        if number >= len(self.variants):
            return Skip(f"all {len(self.variants)} variants were tried", exhausted=True)
        variant = self.variants[number]
        return Proposal((Write(variant.path, variant.text),), why=f"variant {variant.label}")
