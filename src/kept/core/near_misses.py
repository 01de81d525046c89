"""Promising proposals (near misses): the final among alternatives, and merged proposals.

The final compares all alternatives for the same place once. Each enters with its own step and
waits in the pool. The result is reported by the steps of those taken up again. The first of them
may learn that another won; that one is taken up next.

A merged proposal contains the edits of a promising one first, and its own on top. It is
journalled as a whole, so it applies to the incumbent and is judged against it. If its base was
kept in the meantime, only its own part is left to try.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kept.core.edit import Edit, EditReport
from kept.core.proposal import ClosedStep, History, Pool, Proposal

ENTERED = "entered"
"""Number of a verdict by which a step entered the final."""

AHEAD = "ahead"
"""Number of a verdict that says which of the finalists won, where it is another."""


def finalists(history: Iterable[ClosedStep], incumbent: str) -> tuple[ClosedStep, ...]:
    """The steps that entered the final against this incumbent, oldest first."""
    return tuple(
        step
        for step in history
        if step.verdict.code == "near miss"
        and ENTERED in step.verdict.numbers
        and step.incumbent == incumbent
        and step.candidate is not None
    )


def handed_on(history: Sequence[ClosedStep], pool: Pool) -> ClosedStep | None:
    """The step that was told that another won, while that one waits to be taken up."""
    if not any(miss.alone for miss in pool):
        return None
    return next((s for s in reversed(history) if AHEAD in s.verdict.numbers), None)


def settled(
    pool: Pool, steps: tuple[ClosedStep, ...], members: tuple[int, ...], told: Mapping[str, float]
) -> Pool:
    """The pool after a final: whoever won it, till it is taken up; else nobody.

    One that was taken up as the winner does not hand it on again: a grader that fails on one side
    alone may have each of two call the other the better one.
    """
    if AHEAD not in told or any(miss.alone for miss in pool if miss.step in members):
        return ()
    winner = steps[int(told[AHEAD])].step
    return tuple(miss._replace(alone=True) for miss in pool if miss.step == winner)


def on_top(parent: ClosedStep, own: Proposal) -> Proposal:
    """A proposal that was made for the candidate of a step, as one for that step's incumbent."""
    assert parent.proposal is not None, "a near miss has a proposal"
    below = parent.proposal.edits
    return replace(own, edits=(*below, *own.edits), builds_on=(parent.step,), inherited=len(below))


def line_of(
    history: History, step: int, there: Collection[int] = frozenset[int]()
) -> Iterator[int]:
    """A step and those that it builds on, up to those that are in the incumbent already."""
    while step not in there:
        yield step
        proposal = history[step].proposal
        if proposal is None or not proposal.builds_on:
            return
        (step,) = proposal.builds_on


def kept_since(history: History, first: int) -> set[int]:
    """Steps whose edits became part of the incumbent with the first of these steps or a later."""
    found: set[int] = set()
    for step in history[first:]:
        if step.verdict.outcome == "keep" and step.proposal is not None:
            for member in step.proposal.merges:
                found.update(line_of(history, member))
    return found


def edits_without(history: History, proposal: Proposal, there: Collection[int]) -> tuple[Edit, ...]:
    """Edits of a proposal without those of the steps in `there`: a tail of its edits."""
    own = proposal.edits[proposal.inherited :]
    if not proposal.builds_on or proposal.builds_on[0] in there:
        return own
    parent = history[proposal.builds_on[0]].proposal
    below = edits_without(history, parent, there) if parent is not None else ()
    return (*below, *own)


def judged_whole(proposal: Proposal, reports: Sequence[EditReport]) -> bool:
    """True if all of its edits were tried, not only those on top of its base."""
    return len(reports) == len(proposal.edits)
