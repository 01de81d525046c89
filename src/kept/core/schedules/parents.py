"""Which text a step edits: the incumbent, or a near miss that does better on some cases.

An edit that helps only together with another is never found from the incumbent alone. A near miss
that has waited long is drawn by the train cases on which it is the best of all, and the incumbent
three times in four at least: where edits help each by itself, what is put on top of another costs
more to judge.
"""

from collections import Counter

from kept.core.pool import strongest
from kept.core.proposal import derive_seed
from kept.core.state import State

MOST = 0.25
"""Share of the turns in which near misses are built on, at most."""

WAITED = 24
"""Steps that one waits first: where much helps by itself, it is put together with others then."""


def choose_parent(state: State, seed: int, waited: int = WAITED) -> int | None:
    """The step of a near miss to build on; None for the incumbent."""
    shown = (e for e in state.evaluations.get(state.incumbent, ()) if e.purpose == "screen")
    mine = {case: tally.mean for one in shown for case, tally in one.cases.items()}
    # what was made for an earlier incumbent is another text by now
    ready = tuple(
        miss
        for miss in state.pool
        if state.closed[miss.step].incumbent == state.incumbent
        and state.next_step - miss.step >= waited
    )
    wins = Counter(
        miss.step
        for case, miss in strongest(ready).items()
        if case in mine and dict(miss.losses)[case] < mine[case]
    )
    whole = max(len(mine), wins.total() / MOST)
    at = derive_seed(seed, "parent", state.next_step) / 2**48 * whole
    for step, won in sorted(wins.items()):
        at -= won
        if at < 0:
            return step
    return None
