"""Examples at the end of a text, from train cases that pass: what was said, what was answered.

They stand in a marked stretch that is written anew as a whole. What an example shows is the
incumbent's own conversation, so that it is in its own words. No set is tried twice while nothing
else changes.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from kept.core.case import Case
from kept.core.exchange import exchanges_of
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Pair
from kept.core.values import NoSpan
from kept.core.words import count
from kept.proposers.demos import Demos, Layout, Sets
from kept.proposers.failing import Row, look
from kept.proposers.numeric.points import UNTRIED
from kept.proposers.texts import TextAxis

LAYOUT = Layout("")
"""Where examples stand; what they look like is made of conversations, and of no template."""


@dataclass(frozen=True, slots=True)
class Shots:
    """Implements `kept.core.ports.Proposer`."""

    axis: TextAxis
    most: int = 4
    name: str = "demos"
    serial: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Another set of examples."""
        text = self.axis.read(brief.incumbent.texts)
        if isinstance(text, NoSpan):
            return Skip(f"`{self.axis.path}` is not there: {text.detail}")
        region = LAYOUT.region(text)
        if region is None and LAYOUT.marks(text):
            marks = f"`{LAYOUT.begin}` … `{LAYOUT.end}`"
            return Skip(f"`{self.axis.path}` has not got {marks} just once", ends="exhausted")
        if brief.train and not brief.answers:
            pairs = tuple(Pair(case.id, 0) for case in brief.train)
            return Ask(brief.incumbent.id, pairs, "feedback")
        looked = look(brief)
        shown = {row.case.id: example for row in looked.passing if (example := _example(row))}
        if not shown:
            over = "" if looked.missing else "exhausted"
            return Skip("no train case passes that could be an example", ends=over)
        return self._drawn(brief, text, shown)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """For each incumbent, all that examples may be taken from."""
        return len(train)

    def _drawn(self, brief: Brief, text: str, shown: dict[str, str]) -> Proposal | Skip:
        region = LAYOUT.region(text)
        stands, tried = self._past(brief)
        now = tuple(case for case in stands if case in shown) if region else ()
        sets = Sets(1, self.most)
        for demos in sets.draws(now, tuple(shown), random.Random(brief.seed)):
            new = _with(text, region, [shown[case] for case in demos])
            if demos not in tried and new != text and len(new) <= self.axis.max_chars:
                why = f"{count(len(demos), 'example')}: {', '.join(demos)}"
                edits = self.axis.edits(brief.incumbent.texts, new)
                return Proposal(edits, why=why, about=self._about(demos))
        # an open one may yet go stale, and then its set is free again
        over = "" if brief.open else "exhausted"
        return Skip("every set of examples that fits was tried", ends=over)

    def _about(self, demos: Demos) -> dict[str, object]:
        return {"kind": "demos", "axis": self.axis.path, "demos": list(demos)}

    def _past(self, brief: Brief) -> tuple[Demos, set[Demos]]:
        """The set that was kept last, and those that were tried since anything else was kept."""
        stands: Demos = ()
        tried = {_demos(proposal) for proposal in brief.open}
        same = True
        for step in reversed(brief.closed):
            own, kept = step.turn.proposer == self.name, step.verdict.outcome == "keep"
            if own and kept and not stands:
                stands = _demos(step.proposal)
            if own and same and step.verdict.code not in UNTRIED:
                tried.add(_demos(step.proposal))
            same = same and (own or not kept)
        return stands, tried


def _demos(proposal: Proposal | None) -> Demos:
    said = proposal.about.get("demos", ()) if proposal else ()
    return tuple(cast("Sequence[str]", said))


def _example(row: Row) -> str:
    """A conversation as an example; empty where it cannot be one."""
    exchanges = exchanges_of(row.trace)
    said = (f"Input: {one.input}\nAnswer: {one.response}" for one in exchanges)
    example = "\n".join(("Example", *said))
    # one that holds a mark itself would make it unclear where the examples end
    whole = exchanges and all(one.answered for one in exchanges)
    return example if whole and not LAYOUT.marks(example) else ""


def _with(text: str, region: str | None, shown: Sequence[str]) -> str:
    line_end = "\r\n" if "\r\n" in text else "\n"
    new = LAYOUT.render(shown, line_end)
    if region is not None:
        return text.replace(region, new)
    head = text.rstrip()
    return f"{head}{line_end * 2}{new}{text[len(head) :]}"
