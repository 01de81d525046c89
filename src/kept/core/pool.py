"""Near misses: proposals that look good, and are too small to be proven one by one.

Put together they may be large enough, and what is large is cheap to prove. The pool holds which
steps they came from and what each is thought to be worth, in standard deviations of one draw.
"""

from typing import NamedTuple

MERGE = "merge"
"""The proposer that puts the pool together."""


MORE = 0.05
"""By which what builds on another must be better, in standard deviations of one draw: what that is
worth carries it through the screen, and half of what adds nothing would look better by chance."""


class NearMiss(NamedTuple):
    """A step whose proposal is worth a race together with others."""

    step: int
    estimate: float
    losses: tuple[tuple[str, float], ...] = ()
    """Its mean loss on each train case that it was screened on."""
    alone: bool = False
    """Whether it is raced by itself: together with others it came to nothing."""


Pool = tuple[NearMiss, ...]


def strongest(pool: Pool) -> dict[str, NearMiss]:
    """Of every train case, the near miss that does best on it, the earliest of equals."""
    found: dict[str, tuple[float, NearMiss]] = {}
    for miss in pool:
        for case, loss in miss.losses:
            if case not in found or loss < found[case][0]:
                found[case] = (loss, miss)
    return {case: miss for case, (_, miss) in found.items()}


def joined(pool: Pool, miss: NearMiss, parent: tuple[int, float] | None) -> Pool:
    """The pool with one more; of what builds on another step, with that step's estimate.

    The better one takes the place of what it builds on, of which it has all edits; one that is no
    better is left out. Where what it builds on is with another by now, its own part counts.
    """
    if parent is None:
        return (*pool, miss)
    step, estimate = parent
    more = miss.estimate - estimate
    if more < MORE:
        return pool
    before = next((one.estimate for one in pool if one.step == step), 0.0)
    others = tuple(one for one in pool if one.step != step)
    return (*others, miss._replace(estimate=before + more))


def ripe(pool: Pool, goal: float, most: int) -> bool:
    """Whether the pool is worth a race: enough together, enough of them, or one by itself."""
    return (
        any(miss.alone for miss in pool)
        or sum(miss.estimate for miss in pool) >= goal
        or len(pool) >= most
    )


def raced(pool: Pool, members: tuple[int, ...], kept: bool, gain: float) -> Pool:
    """The pool after some of it were raced as one.

    Where they fell short of proof and yet gained, the better half gets another chance. Where they
    did not gain, one may undo the other: the best of them is tried alone.
    """
    mine = [miss for miss in pool if miss.step in members]
    others = tuple(miss for miss in pool if miss.step not in members)
    if kept or len(mine) < 2:
        return others
    mine.sort(key=lambda miss: (-miss.estimate, miss.step))
    if gain <= 0:
        return (*others, mine[0]._replace(alone=True))
    return (*others, *mine[: len(mine) // 2])
