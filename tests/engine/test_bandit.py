"""Whether turns by what proposers have brought are worth it, in a world whose truth is known."""

import asyncio
from dataclasses import replace
from statistics import mean

import pytest

from kept.core.budget import Budget
from kept.core.case import Case, Cases
from kept.core.state import State
from kept.gates.race import PRESETS
from kept.recipes.gate_choice import ScheduleName, schedule_of
from kept.recipes.race_choice import with_race
from kept.testing.fakes import Pool, ScriptedProposer
from kept.testing.journal import MemoryJournal
from kept.testing.run import ScriptedEvaluator, sit, small_plan

SEEDS = 20
KINDS = ("useless", "harmful", "good")


def run(name: ScheduleName, seed: int) -> tuple[State, float]:
    """A race that has so many rollouts, and by how much what leads at its end is truly better."""
    lines = {kind: tuple(f"{kind} {n}" for n in range(200)) for kind in KINDS}
    pool = Pool(**lines, base=0.1, effect=0.06)
    made = [ScriptedProposer(lines=getattr(pool, kind), name=kind) for kind in KINDS]
    quick = ScriptedEvaluator(quality=pool.quality, noise="pass/fail", random_seed=seed)
    plan = replace(
        small_plan(quick, *made),
        cases=Cases(
            tuple(Case(f"t{n}", n) for n in range(8)), tuple(Case(f"h{n}", n) for n in range(10))
        ),
        schedule=schedule_of(made, name, seed),
        gate=PRESETS["balanced"],
        budget=Budget(max_rollouts=900),
        random_seed=seed,
    )
    journal = MemoryJournal()
    state = asyncio.run(sit(with_race(plan), journal))
    truth = [
        pool.quality(journal.load(id_), plan.cases.holdout[0])
        for id_ in (state.incumbent, state.seed)
    ]
    return state, truth[0] - truth[1]


@pytest.mark.slow
def test_a_run_gains_more_by_them_than_in_turn_for_as_many_rollouts():
    runs = {name: [run(name, seed) for seed in range(SEEDS)] for name in ("bandit", "in_turn")}
    gains = {name: mean(gain for _, gain in found) for name, found in runs.items()}
    assert gains["bandit"] > 1.2 * gains["in_turn"], gains

    def share(name: str, kind: str) -> float:
        turns = [state.turns for state, _ in runs[name]]
        return mean(row[kind] / sum(row[one] for one in KINDS) for row in turns)

    assert {kind: round(share("in_turn", kind), 1) for kind in KINDS} == dict.fromkeys(KINDS, 0.3)
    assert share("bandit", "good") > 0.5
    assert max(share("bandit", kind) for kind in ("useless", "harmful")) < 0.3
