"""The final: alternatives that take each other's place are compared all together, once.

Each enters it with a step of its own and waits in the pool as a near miss. What the final settles
is told by the steps of those that are taken up again: the first of them may hear that another won,
and that one is taken up next.
"""

from collections.abc import Iterable, Mapping, Sequence

from kept.core.pool import Pool
from kept.core.proposal import ClosedStep

ENTERED = "entered"
"""Number of a verdict by which a step entered the final."""

AHEAD = "ahead"
"""Number of a verdict that says which of the finalists won, where it is another."""


def finalists(closed: Iterable[ClosedStep], incumbent: str) -> tuple[ClosedStep, ...]:
    """The steps that entered the final against this incumbent, oldest first."""
    return tuple(
        step
        for step in closed
        if step.verdict.code == "near miss"
        and ENTERED in step.verdict.numbers
        and step.incumbent == incumbent
        and step.candidate is not None
    )


def handed_on(closed: Sequence[ClosedStep], pool: Pool) -> ClosedStep | None:
    """The step that was told that another won, while that one waits to be taken up."""
    if not any(miss.alone for miss in pool):
        return None
    return next((s for s in reversed(closed) if AHEAD in s.verdict.numbers), None)


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
