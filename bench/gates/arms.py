"""The gates that are compared, and which of a run's cases each of them uses.

To add an arm: one more line in `ARMS`. `make` gives a gate for a run, from the run's own seed; a
gate that remembers nothing may ignore it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bench.gates.ground import Split
from bench.gates.rules import Always, Minibatch, OneStandardError
from kept.core.ports import Gate
from kept.core.rollout import Purpose
from kept.gates.seed_rules import Follow, Selection, Strict
from kept.gates.sigma import Sigma

SEALED = Split(15, 25, 10)
"""3:5:2, the default: train, holdout, and a test split that is read once, or not at all."""
SWEPT = Split(35, 15)
"""The coordinate optimizer's: it decides on train, and holdout has only to stay within noise."""

FEW = 100
JUDGED = "race", "sigma"
"""How the names of those begin that the targets compare; a quick look spends its time on them."""
RACE = "kept.gates.race"


@dataclass(frozen=True, slots=True)
class Arm:
    """One gate and its part of the cases."""

    name: str
    make: Callable[[int], Gate]
    split: Split = SEALED
    claim: Purpose = "decide"
    """Which rollouts of the seed and of the best say by how much it is better, in its report."""
    test_repeats: int = 3
    """Of the sealed test, for an arm that claims by it; set aside before the first proposal."""
    pairs: bool = False
    """Whether the gate looks at pairs, and not at tallies alone."""
    pool: tuple[float, int] = (0.0, 0)
    """When near misses are put together: what they are worth, or how many they are."""
    reserve: int = 0
    """Passes over the deciding cases, of both sides, set aside for the promotion at the end."""
    most_runs: int | None = None
    """A cell, half of what the others have or less: for a slow arm, and for those that are there to
    show that the bench works."""


def race_arms(name: str = RACE) -> list[Arm]:
    """The presets of `race`, once there is such a gate.

    Its module names them in `PRESETS`, gates by name of which `balanced` is the default; without
    that, `Race()` is the only one.
    """
    if find_spec(name) is None:
        return []
    module: Any = import_module(name)
    presets: Mapping[str, Any] = getattr(module, "PRESETS", None) or {"balanced": module.Race()}
    return [
        Arm(
            "race" if preset == "balanced" else f"race {preset}",
            _same(gate),
            claim="test",
            pairs=True,
            pool=(getattr(gate, "pool_goal", 0.0), getattr(gate, "pool_most", 0)),
            reserve=max(getattr(gate, "promote_passes", (0,))),
        )
        for preset, gate in presets.items()
    ]


def _same(gate: Gate) -> Callable[[int], Gate]:
    return lambda _seed: gate


ARMS: tuple[Arm, ...] = (
    *race_arms(),
    Arm("sigma", _same(Sigma(repeats=3, accept_sigma=1.0)), SWEPT, "screen"),
    Arm("strict", _same(Strict())),
    Arm("selection", _same(Selection()), most_runs=FEW),
    Arm("follow", _same(Follow()), most_runs=FEW),
    Arm("gepa minibatch", Minibatch, most_runs=FEW),
    Arm("one standard error", _same(OneStandardError()), claim="test"),
    Arm("accept all", _same(Always(True)), most_runs=FEW),
    Arm("reject all", _same(Always(False)), most_runs=FEW),
)

BY_NAME = {arm.name: arm for arm in ARMS}
