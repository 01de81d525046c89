"""What breaks ties in a run: how the seed and the best stand by it."""

from typing import NamedTuple, cast

from kept.core.rollout import Purpose
from kept.core.state import State

_BEST_KNOWN: tuple[Purpose, ...] = ("test", "promote", "decide", "screen")
"""Whose draws are shown: the first of these that both have met."""


class Tie(NamedTuple):
    """A tie-breaker, and its means."""

    metric: str
    was: float | None
    """Of the seed; None where no rollout emitted it."""
    now: float | None
    """Of the best."""


def ties_of(state: State) -> tuple[Tie, ...]:
    """Every tie-breaker of a run, in order; nothing while nothing was measured."""
    given = state.started.facts.get("tie_breakers") if state.started else None
    names = [str(one).partition(" ")[2] for one in cast("list[object]", given or [])]
    seed = {e.purpose: e for e in state.evaluations.get(state.seed, ())}
    best = {e.purpose: e for e in state.evaluations.get(state.best, ())}
    both = next((purpose for purpose in _BEST_KNOWN if purpose in seed and purpose in best), None)
    if both is None:
        return ()
    return tuple(Tie(name, seed[both].metric(name), best[both].metric(name)) for name in names)
