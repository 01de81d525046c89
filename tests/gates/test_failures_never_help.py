"""Of every gate, in every kind of step: what fails in a good result's place never wins by that."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kept.core.alpha import Ledger
from kept.core.objective import Objective, TieBreaker
from kept.core.ports import Gate
from kept.core.proposal import Ask
from kept.core.rollout import Failure
from kept.core.score import Outcome
from kept.core.verdict import Verdict, View
from kept.gates.compare import Compare
from kept.gates.fixed_cases import FixedRace
from kept.gates.race import PRESETS, Race
from kept.gates.repeats import Repeats
from kept.gates.seed_rules import Follow, Selection, Strict
from kept.gates.sigma import Sigma
from kept.testing.fakes import CHALLENGER, Draw, Matter, hear

CRASHED = Outcome(failure=Failure("crash", "candidate", "it crashed"))


@dataclass(frozen=True)
class In:
    """A gate in a step of a certain kind."""

    gate: Gate
    step: Mapping[str, Any]
    name: str = "in"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        return self.gate.decide(view._replace(**self.step))


def won(verdict: Verdict, gate: Gate) -> bool:
    if isinstance(gate, Compare):
        return verdict.code == "better"
    return verdict.best if isinstance(gate, Follow) else verdict.outcome == "keep"


GATES: dict[str, tuple[Gate, Mapping[str, Any]]] = {
    "strict": (Strict(repeats=2), {}),
    "selection": (Selection(), {}),
    "follow": (Follow(), {}),
    "sigma": (Sigma(), {}),
    "sigma, every trial": (Sigma(accept_sigma=0.5, holdout_policy="every_trial"), {}),
    "repeats": (Repeats(), {}),
    "repeats that differ": (Repeats(), {"ledger": Ledger(tests=2, varies=True)}),
    "fixed": (FixedRace(), {}),
    "race": (Race(most=6), {}),
    "race without noise": (Race(most=6), {"still": True}),
    "race for the best": (Race(most=6), {"proves": True}),
    "race of one from the pool": (Race(most=6), {"merged": 1}),
    "race of several": (Race(most=6), {"merged": 3}),
    "race of a simplification": (PRESETS["fast"], {"simplifies": True}),
    "compare": (Compare(), {}),
}
BOUNDED = Objective(bounds=(0.0, 1.0))
OBJECTIVES = (
    BOUNDED,
    Objective(),
    Objective(bounds=(0.0, 1.0), tie_breakers=(TieBreaker("length"),), tie_tolerance=0.125),
)


@dataclass(frozen=True)
class World:
    """How every rollout ends, by its name and a number."""

    number: int
    gain: int
    """Of eight cases, how many the challenger does better."""
    noise: int
    """Of eight rollouts, how many end as chance has it."""

    def chance(self, *what: object) -> int:
        return zlib.crc32(repr((self.number, *what)).encode())

    def outcome(self, draw: Draw) -> Outcome:
        case = draw.pair.case
        notch = self.chance(case) % 5
        if draw.owner == CHALLENGER and self.chance(case, "gain") % 8 < self.gain:
            notch = min(4, notch + 2)
        if self.chance(draw, "noise") % 8 < self.noise:
            notch = self.chance(draw) % 5
        return Outcome({"score": notch / 4, "length": 10.0 - notch})


WORLDS = st.builds(World, st.integers(0, 999), st.integers(0, 8), st.sampled_from((0, 0, 1, 4)))


@pytest.mark.parametrize("named", GATES)
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # to shrink what failed takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    world=WORLDS,
    cases=st.sampled_from((1, 4, 8)),
    objective=st.sampled_from(OBJECTIVES),
    which=st.integers(0, 9_999),
    worst=st.booleans(),
)
def test_a_failure_in_place_of_a_result_never_wins(
    named: str,
    world: World,
    cases: int,
    objective: Objective,
    which: int,
    worst: bool,
):
    gate, step = GATES[named]
    names = [f"{n}" for n in range(1 if isinstance(gate, Repeats) else cases)]
    matter = Matter(
        outcome=world.outcome,
        train=tuple(f"t{name}" for name in names),
        holdout=tuple(f"h{name}" for name in names),
        objective=BOUNDED if isinstance(gate, Compare) else objective,
    )
    heard = hear(In(gate, step), matter)
    if won(heard.verdict, gate):
        return
    mine = [draw for draw in heard.draws if draw.owner == CHALLENGER]
    if worst:  # what would be gained most by, were failures left out
        mine = sorted(mine, key=lambda draw: world.outcome(draw).metrics["score"])
        failed = mine[: max(1, len(mine) // 3)]
    else:
        failed = [mine[(which + n * 7) % len(mine)] for n in range((1, 3, 8)[which % 3])]
    worse = replace(matter, changed=dict.fromkeys(failed, CRASHED))
    after = hear(In(gate, step), worse).verdict
    assert not won(after, gate), f"{heard.verdict.reason}; with failures: {after.reason}"
