"""Worlds to compare two texts in: pass or fail, by chances that differ from case to case."""

import random
from collections.abc import Callable
from functools import cache

from kept.core.objective import Objective
from kept.core.rollout import Pair
from kept.core.score import Outcome
from kept.testing.fakes import CHALLENGER, Draw, Matter

Chances = Callable[[random.Random], tuple[float, float]]
"""For one case, the chances of the seed and of the challenger to pass."""


def noisy(seed: int, cases: int, chances: Chances, *, steady: bool = False) -> Matter:
    """Draws of their own for every side, case and repeat; of one case all the same, if steady."""
    holdout = tuple(f"h{n}" for n in range(cases))
    given = {case: chances(random.Random(f"{seed} {case}")) for case in holdout}

    @cache
    def drawn(side: int, pair: Pair) -> float:
        repeat = 0 if steady else pair.repeat
        draw = random.Random(f"{seed} {side} {pair.case} {repeat}").random()
        return float(draw < given[pair.case][side])

    def outcome(draw: Draw) -> Outcome:
        return Outcome({"score": drawn(int(draw.owner == CHALLENGER), draw.pair)})

    return Matter(outcome=outcome, train=(), holdout=holdout)


def alike(gain: float) -> Chances:
    """Cases of every difficulty, and the same gain on each."""

    def chances(draw: random.Random) -> tuple[float, float]:
        chance = draw.uniform(0.1, 0.9)
        return chance, min(1.0, max(0.0, chance + gain))

    return chances


def mixed(spread: float) -> Chances:
    """Some cases gain and others lose as much: nothing in the mean over all such cases."""

    def chances(draw: random.Random) -> tuple[float, float]:
        chance = draw.uniform(0.4, 0.6)
        return chance, chance + draw.choice((-spread, spread))

    return chances


def told(values: Callable[[str, Pair], float], cases: int, objective: Objective) -> Matter:
    """Scores as a function says, by side and pair."""

    def outcome(draw: Draw) -> Outcome:
        return Outcome({"score": values(draw.owner, draw.pair)})

    holdout = tuple(f"h{n}" for n in range(cases))
    return Matter(outcome=outcome, train=(), holdout=holdout, objective=objective)
