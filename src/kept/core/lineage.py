"""Proposals that build on a near miss: its edits first, their own on top.

Journalled whole, so that they apply to the incumbent and are judged against it as all others are.
Where what they build on was kept meanwhile, their own part alone is left to be tried.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from kept.core.edit import Edit, EditReport
from kept.core.grow import Log
from kept.core.proposal import ClosedStep, Proposal


def on_top(parent: ClosedStep, own: Proposal) -> Proposal:
    """A proposal that was made for the candidate of a step, as one for that step's incumbent."""
    assert parent.proposal is not None, "a near miss has a proposal"
    below = parent.proposal.edits
    return replace(own, edits=(*below, *own.edits), builds_on=(parent.step,), inherited=len(below))


def line_of(
    closed: Log[ClosedStep], step: int, there: Collection[int] = frozenset[int]()
) -> Iterator[int]:
    """A step and those that it builds on, up to those that are in the incumbent already."""
    while step not in there:
        yield step
        proposal = closed[step].proposal
        if proposal is None or not proposal.builds_on:
            return
        (step,) = proposal.builds_on


def kept_since(closed: Log[ClosedStep], first: int) -> set[int]:
    """Steps whose edits became part of the incumbent with the first of these steps or a later."""
    found: set[int] = set()
    for step in closed[first:]:
        if step.verdict.outcome == "keep" and step.proposal is not None:
            for member in step.proposal.merges:
                found.update(line_of(closed, member))
    return found


def edits_without(
    closed: Log[ClosedStep], proposal: Proposal, there: Collection[int]
) -> tuple[Edit, ...]:
    """What a proposal changes besides what these steps did: an end of its edits."""
    own = proposal.edits[proposal.inherited :]
    if not proposal.builds_on or proposal.builds_on[0] in there:
        return own
    parent = closed[proposal.builds_on[0]].proposal
    below = edits_without(closed, parent, there) if parent is not None else ()
    return (*below, *own)


def judged_whole(proposal: Proposal, reports: Sequence[EditReport]) -> bool:
    """Whether all of its edits were tried, and not only what it adds to what it builds on."""
    return len(reports) == len(proposal.edits)
