"""An agent tuned over real HTTP: what is promoted is better, and neither cut nor kill loses it."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.plan import Plan
from kept.core.ports import Gate
from kept.recipes.agent_config.tune import compile_coordinate
from kept.run import start
from kept.spec.locate.tree import read_value
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import AcceptAll, RejectAll
from kept.testing.server import ModelServer
from tests.recipes.agent_config.tune.world import answer, chance_of, write_agent
from tests.recipes.cutting import check_every_cut
from tests.sampling import some_or_all

pytestmark = pytest.mark.slow

RACE = "split: '6:12:6'\nrace: {preset: fast}"
SIGMA = "split: '1:1:0'\naccept_sigma: 1.0\nrepeats: 2"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "none")


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(answer) as made:
        yield made


def plan_of(folder: Path, server: ModelServer, more: str, cases: int = 48, trials: int = 4) -> Plan:
    path = write_agent(folder, server.v1, cases=cases, trials=trials, more=more)
    return compile_coordinate(path).plan


def worth(candidate: Candidate) -> float:
    """How often an agent is truly right, by the world and by nothing that a run measured."""
    text = candidate["agent.yaml"]
    instructions = read_value("agent.yaml", text, "instructions.inline")
    temperature = read_value("agent.yaml", text, "model.temperature")
    return chance_of(str(instructions), float(str(temperature)))


def check(folder: Path) -> None:
    """What a user is promised."""
    with Run(folder) as run:
        before, after = worth(run.seed), worth(run.best)
        assert after > before + 0.2, f"{before:.3f} → {after:.3f} is no real gain"


def test_what_is_promoted_is_truly_better(tmp_path: Path, server: ModelServer):
    plan = plan_of(tmp_path, server, RACE, trials=8)
    folder, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    check(folder)
    kinds = {step.turn.phase for step in state.history if step.verdict.outcome == "keep"}
    assert kinds, "nothing was kept"
    (claim,) = (step.verdict for step in state.history if step.verdict.code == "claim")
    assert claim.numbers["low"] > 0, claim.reason


@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_the_check_fails_for_a_gate_that_does_not_look(
    gate: Gate, tmp_path: Path, server: ModelServer
):
    plan = replace(plan_of(tmp_path, server, SIGMA, trials=8), gate=gate)
    folder, _ = asyncio.run(start(plan, Home(tmp_path / "home")))
    with pytest.raises(AssertionError, match="no real gain"):
        check(folder)


@some_or_all
@pytest.mark.parametrize(("more", "every"), [(SIGMA, 20), (RACE, 45)], ids=["sigma", "race"])
def test_a_run_cut_anywhere_is_resumed_to_the_same_end(
    more: str,
    every: int,
    everything: bool,
    tmp_path: Path,
    server: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
):
    caches = count()

    def make() -> Plan:
        # what another run was told is not asked again, and costs nothing
        monkeypatch.setenv("KEPT_CACHE", str(tmp_path / f"cache-{next(caches)}"))
        return plan_of(tmp_path, server, more, cases=24, trials=2)

    state = check_every_cut(make, server, tmp_path, everything=everything, every=every)
    phases = [step.turn.phase for step in state.history]
    assert phases[0] == "baseline"
    assert {"c1/numeric", "c1/textual"} <= set(phases)
