"""The worlds, fixed before the gate that they judge was written. Do not tune a gate to them.

A world is a population of cases and a stream of proposals. A case has a difficulty in logits, an
edit adds to it, and a rollout passes with the probability that comes out. Edits compound: what was
kept is there for all that comes after. In logits, because gains saturate there as they do in life.

The figures were chosen once, with `strict` and `sigma` alone, so that those two land near the table
of the design: 50 cases, 6,000 rollouts a run. What came out is in `bench/README.md`.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

Scores = Literal["draws", "fixed", "graded"]
"""`draws`: pass or fail by chance; `fixed`: the same at every repeat; `graded`: any in 0 … 1."""


@dataclass(frozen=True, slots=True)
class World:
    """One population of cases and the proposals that are made for it."""

    name: str
    about: str
    better: float = 0.0
    """Share of proposals that are truly better."""
    worse: float = 0.0
    """Share that are truly worse; the rest change nothing on average."""
    gain: float = 0.4
    """Mean effect of a better edit: 9 points where half of the cases pass. Each edit has its own,
    from half to one and a half times this."""
    harm: float = 0.2
    """The same for a worse edit: 5 points, little enough to be mistaken for a gain by chance."""
    jitter: float = 0.3
    """How an edit's effect differs from case to case, standard deviation: none helps all alike."""
    churn: float = 0.0
    """The same for an edit without an effect on average; 0 is an edit that changes nothing."""
    reach: float = 1.0
    """Share of cases that a better edit touches."""
    fitted: float = 0.0
    """What every edit adds on the cases that its proposer saw, and on no others."""
    pass_rate: float = 0.5
    """Of the seed: the middle, where pass and fail are noisiest."""
    spread: float = 0.5
    """Of difficulty over cases, standard deviation: most cases pass between 1 and 3 times in 4."""
    scores: Scores = "draws"
    drift: float = 0.0
    """How far the level of all scores swings to and fro in the course of a run."""
    flaky: float = 0.0
    """Share of rollouts that are a coin's toss by the end of the budget; none at its beginning."""
    missing: float = 0.0
    """Share of rollouts that stay without an answer, the evaluator's own retries included."""
    failing: float = 0.0
    """Share of rollouts that fail by the candidate's own fault, the seed's too."""
    cases: int = 50
    """Of a run, all splits together."""


MIXED = World(
    "mixed", "1 proposal in 5 is better, 2 in 5 are worse, the rest change nothing", 0.2, 0.4
)

WORLDS: tuple[World, ...] = (
    World(
        "null",
        "2 in 5 proposals are worse, on every case, the rest change nothing; none is better",
        worse=0.4,
        jitter=0.0,
    ),
    MIXED,
    World("hard", "1 in 20 is better, 2 in 5 are worse", 0.05, 0.4),
    World(
        "small",
        "3 in 10 are better, and 3 in 10 worse, by half as much as elsewhere",
        0.3,
        0.3,
        gain=0.2,
        jitter=0.1,
    ),
    World(
        "concentrated",
        "1 in 5 is better: it moves 1 case in 20, one that its proposer saw among them, by a lot",
        0.2,
        0.4,
        gain=3.0,
        jitter=0.0,
        reach=0.05,
        pass_rate=0.35,
    ),
    World(
        "heterogeneous",
        "every edit moves cases up and down, and none on average",
        churn=0.8,
    ),
    World(
        "overfit",
        "every edit fixes the cases that its proposer saw; elsewhere 1 in 2 does harm, the rest "
        "nothing",
        worse=0.5,
        fitted=1.0,
    ),
    replace(
        MIXED,
        name="drifting",
        about="mixed, but the level of all scores swings in time and rollouts become flaky",
        drift=0.4,
        flaky=0.2,
    ),
    replace(
        MIXED,
        name="deterministic",
        about="mixed, every repeat the same; edits without an effect on average still flip cases",
        scores="fixed",
        jitter=0.5,
        churn=0.5,
        spread=1.5,
    ),
    replace(
        MIXED,
        name="failures",
        about="mixed, 5 % of rollouts lost to infrastructure, 5 % failed by the candidate",
        missing=0.05,
        failing=0.05,
    ),
    replace(
        MIXED,
        name="graded",
        about="mixed, scores anywhere in 0 … 1, which are less noisy, and effects half as large",
        gain=0.2,
        harm=0.1,
        jitter=0.15,
        scores="graded",
    ),
)

BY_NAME = {world.name: world for world in WORLDS}

SHIFTED_CASES = (20, 60, 100)


def shifted(world: World, seed: int, run: int) -> World:
    """The world as it might as well have been: another one for every run.

    Other case counts, base rates, noise (of the spread of difficulty, where little spread is much
    noise), effects larger or smaller by up to 30 %. Kept back for judging.
    """
    chance = np.random.default_rng([seed, run, 977])
    cases = SHIFTED_CASES[run % len(SHIFTED_CASES)]
    pass_rate, spread, effect = chance.uniform([0.2, 0.5, 0.7], [0.8, 4.0, 1.3]).tolist()
    if world.churn and not (world.better or world.worse):
        # away from one half, effects that are none in logits are some in points
        pass_rate = 0.5
    return replace(
        world,
        cases=cases,
        pass_rate=pass_rate,
        spread=world.spread * spread,
        gain=world.gain * effect,
        harm=world.harm * effect,
        jitter=world.jitter * effect,
        churn=world.churn * effect,
        fitted=world.fitted * effect,
    )
