"""`at most` is an upper bound: whatever the gate, the schedule, the width and the faults."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.budget import Budget
from kept.core.case import Case, Cases, implicit_cases
from kept.core.forecast import forecast
from kept.core.plan import Plan
from kept.core.ports import Gate, Schedule
from kept.core.schedules.coordinate import Coordinate, Phase
from kept.core.schedules.epochs import Epochs
from kept.core.schedules.round_robin import RoundRobin
from kept.core.state import State
from kept.gates.final import Final
from kept.gates.fixed_cases import FixedRace
from kept.gates.race import Race
from kept.gates.repeats import Repeats
from kept.gates.screen import Screen
from kept.gates.seed_rules import Follow, Selection, Strict
from kept.gates.sigma import Sigma
from kept.gates.simplify import Simplify
from kept.proposers.variants import MEASURED, SEED_ALONE, Variant, Variants
from kept.recipes.race_choice import with_race
from kept.testing import MemoryJournal, Pool, ScriptedEvaluator, ScriptedProposer
from kept.testing.run import SEED, Faults, sit, small_plan

PRICE = 0.01
POOL = Pool()
(TEXT,) = SEED.texts.values()
(PATH,) = SEED.texts

SMALL = Race(
    most=3,
    promote_passes=(1, 2),
    alpha=0.5,
    promote_alpha=0.5,
    pool_goal=0.1,
    screen=Screen(cases=4, passes=2, steps=((4, -9.0), (6, -9.0), (8, -9.0), (9, -9.0))),
    simplify=Simplify(most=3),
    final=Final(passes=(1, 2)),
)
"""A careless race with few passes, so that much is kept and runs stay short."""

gates: st.SearchStrategy[Gate] = st.one_of(
    st.builds(Strict, repeats=st.integers(1, 2)),
    st.just(Selection()),
    st.just(Follow()),
    st.builds(
        Sigma,
        repeats=st.integers(1, 3),
        accept_sigma=st.sampled_from([0.0, 1.0]),
        holdout_policy=st.sampled_from(["on_train_improve", "every_trial", "skip"]),
    ),
    st.just(SMALL),
    st.just(FixedRace.of(SMALL)),
    st.just(Repeats(most=6, alpha=1.0)),
)


def proposers_of(kind: str, feedback: int) -> tuple[ScriptedProposer | Variants, ...]:
    """Lines drawn from a pool, or whole texts of which each is proposed once."""
    if kind == "variants":
        lines = (*POOL.good, POOL.useless[0])
        texts = [TEXT + "".join(f"{line}\n" for line in lines[: n + 1]) for n in range(len(lines))]
        return (Variants(tuple(Variant({PATH: text}, text) for text in texts)),)
    return (ScriptedProposer(lines=POOL.lines, path=PATH, feedback=feedback),)


def schedule_of(kind: str, name: str, gate: Gate, *, test: int) -> tuple[Schedule, Budget]:
    if kind == "coordinate" and isinstance(gate, Sigma | Race):
        phases = (Phase("numeric", name, 3, 2), Phase("textual", name, 2, 2))
        return Coordinate(phases, max_cycles=2), Budget()
    if kind == "epochs" and not isinstance(gate, Sigma | Repeats):
        sealed = isinstance(gate, Selection) and test > 0
        return Epochs(cases=4, epochs=2, batch=2, proposer=name, sealed=sealed), Budget()
    return RoundRobin((name,)), Budget(max_iterations=None if name == "variants" else 6)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    gate = draw(gates)
    faults = Faults(outages=draw(st.sampled_from([0.0, 0.1, 0.5])), tries=draw(st.integers(1, 4)))
    noise: Any = draw(st.sampled_from([0.0, 0.2, "pass/fail"]))
    runner = ScriptedEvaluator(
        quality=POOL.quality, noise=noise, faults=faults, random_seed=draw(st.integers(0, 99))
    )
    given_ones = proposers_of(draw(st.sampled_from(["lines", "variants"])), draw(st.integers(0, 2)))
    kind, test = draw(st.sampled_from(["turns", "coordinate", "epochs"])), draw(st.integers(0, 2))
    schedule, budget = schedule_of(kind, given_ones[0].name, gate, test=test)
    train = 4 if isinstance(gate, Sigma) else draw(st.sampled_from([0, 4]))
    cases = Cases(
        train=tuple(Case(f"t{n}", n) for n in range(train)),
        holdout=tuple(Case(f"h{n}", n) for n in range(8)),
        test=tuple(Case(f"s{n}", n) for n in range(test)),
    )
    own = (SEED_ALONE,) if isinstance(schedule, Coordinate) else ()
    own += MEASURED if isinstance(gate, Selection) else ()
    plan = replace(
        small_plan(runner, *own, *given_ones),
        gate=gate,
        schedule=schedule,
        budget=budget,
        cases=implicit_cases() if isinstance(gate, Repeats) else cases,
        width=draw(st.integers(1, 4)),
        retries=draw(st.integers(0, 2)),
        worst_usd=PRICE,
    )
    return with_race(plan)


def run(plan: Plan) -> State:
    assert isinstance(plan.runner, ScriptedEvaluator)
    return asyncio.run(sit(plan, MemoryJournal(), plan.runner.clock))


def check(plan: Plan) -> None:
    most = forecast(plan)
    assert most.rollouts is not None
    assert most.usd is not None
    state = run(plan)
    assert isinstance(plan.runner, ScriptedEvaluator)
    asked = plan.runner.log
    assert max(state.spend.rollouts, len({*asked})) <= most.rollouts
    assert max(state.spend.usd, len(asked) * PRICE) <= most.usd + 1e-9


@pytest.mark.slow
@given(plans())
@settings(max_examples=40, deadline=None)
def test_no_run_takes_more_than_it_was_said_to(plan: Plan):
    check(plan)


@pytest.mark.nightly
@given(plans())
@settings(max_examples=2000, deadline=None)
def test_no_run_of_many_takes_more_than_it_was_said_to(plan: Plan):
    check(plan)
