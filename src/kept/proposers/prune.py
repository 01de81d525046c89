"""Proposer that removes one section, line or sentence at a time.

The order is random in every step. A removal that was tried on the incumbent is not tried again.
"""

import random
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kept.core.edit import Edit, apply_edits, replace_at
from kept.core.ports import Scope
from kept.core.proposal import Brief, Proposal, ProposerReply, Skip
from kept.proposers.registry import ProposerComponent
from kept.proposers.text_units import KINDS, Kind, units
from kept.spec.components import BuildContext, CheckContext
from kept.spec.validate import SomeTexts, SpecModel, some

SHOWN = 60
"""Number of characters of the removed text that `why` quotes."""


@dataclass(frozen=True, slots=True)
class Prune:
    """Implements `kept.core.ports.Proposer`."""

    files: tuple[str, ...]
    """The artifacts to shorten."""
    kinds: tuple[Kind, ...] = KINDS
    name: str = "prune"
    serial: bool = True
    simplifies: bool = True
    """Marks its proposals as shorter text without loss of quality."""

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose the removal of one unit; skip once all were tried."""
        texts = brief.incumbent.texts
        found = [(p, u) for p in self.files if p in texts for u in units(p, texts[p], self.kinds)]
        random.Random(brief.seed).shuffle(found)
        tried = self._tried(brief)
        for path, unit in found:
            edit = replace_at(path, texts[path], unit.start, unit.end, "")
            if (edit,) in tried or not self._applies(brief, edit):
                continue
            words = " ".join(texts[path][unit.start : unit.end].split())
            quote = words if len(words) <= SHOWN else f"{words[: SHOWN - 1]}…"
            why = f"without the {unit.kind} `{quote}`"
            return Proposal((edit,), why=why, simplifies=True)
        # an open one may still be kept, and then there is a new text to shorten
        waiting = any(proposal.simplifies for proposal in brief.open)
        reason = "everything that can be left out was tried" if found else "nothing to leave out"
        return Skip(reason, exhausted=not waiting)

    def _tried(self, brief: Brief) -> set[tuple[Edit, ...]]:
        """Edits judged against this incumbent, and edits of open proposals."""
        now = brief.incumbent.id
        judged = {
            step.proposal.edits
            for step in brief.history.of(self.name)
            if step.proposal and step.incumbent == now and step.verdict.code != "indecisive"
        }
        return judged | {proposal.edits for proposal in brief.open}

    def _applies(self, brief: Brief, edit: Edit) -> bool:
        """True if the rules allow the removal; protected regions stay."""
        return apply_edits(brief.incumbent, (edit,), brief.rules).complete


class PruneSpec(SpecModel):
    """Removal of parts of a text."""

    kind: Literal["prune"]
    files: SomeTexts | None = None
    """Patterns of artifacts; all by default."""
    units: Annotated[
        tuple[Literal["section", "line", "sentence"], ...],
        Field(strict=False),
        AfterValidator(some),
    ] = ("section", "line", "sentence")


class PruneComponent(ProposerComponent[PruneSpec]):
    """Proposer that removes parts of a text."""

    Spec = PruneSpec

    def check(self, spec: PruneSpec, context: CheckContext) -> None:
        """Report patterns that match no artifact."""
        texts = context.texts
        for at, pattern in enumerate(spec.files or ()):
            if texts and not any(fnmatchcase(path, pattern) for path in texts):
                hint = f"there are {', '.join(list(texts)[:12])}"
                context.report(("files", at), f"`{pattern}` matches no artifact", hint)

    def build(self, spec: PruneSpec, context: BuildContext) -> Prune:
        """Build the proposer for all artifacts that match, in the order of the patterns."""
        patterns = ("*",) if spec.files is None else spec.files
        hits = (path for one in patterns for path in context.texts if fnmatchcase(path, one))
        return Prune(tuple(dict.fromkeys(hits)), spec.units, context.name)
