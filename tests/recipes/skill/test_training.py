"""Skill training from end to end: a bad skill becomes a better one, on cases nobody has seen."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.ports import Gate
from kept.core.schedules.epochs import Epochs
from kept.core.state import State
from kept.models.providers import ModelConfig
from kept.recipes.skill.compile import Asked, claim_passes, plan_of
from kept.run import start
from kept.store.home import Home
from kept.testing import AcceptAll, RejectAll, ScriptedModel
from kept.testing.server import ModelServer
from tests.recipes.skill import world
from tests.recipes.skill.skill_configs import sound_skill

SIZES = (48, 40, 40)


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def trained(folder: Path, gate: str, put: Gate | None = None) -> tuple[State, str]:
    with ModelServer(world.answer) as server:
        path = world.write_config(folder, server.v1, epochs=3, batch=12, gate=gate)
        plan = world.make_plan(path, sizes=SIZES)
        if put is not None:
            assert isinstance(plan.schedule, Epochs)
            plan = replace(plan, gate=put, schedule=replace(plan.schedule, sealed=False))
        ended = asyncio.run(start(plan, Home(folder / "home")))
    best = (ended.folder / "best" / "SKILL.md").read_text() if ended.state.keeps else world.START
    return ended.state, best


@pytest.mark.slow
def test_a_bad_skill_becomes_a_better_one_under_the_race(tmp_path: Path):
    state, best = trained(tmp_path, "race")
    assert [step.turn.phase for step in state.history][:4] == ["e1/step"] * 4
    check_better(best)
    claims = [step for step in state.history if step.verdict.code == "claim"]
    assert claims and claims[0].verdict.numbers["low"] > 0
    standing = read(tmp_path / "out" / "runtime_state.json")
    assert standing["best_origin"] == f"step_{standing['best_step']:04}", "and not where it ended"
    told = [read(path) for path in (tmp_path / "out").glob("steps/*/trajectory_digest.json")]
    refused = [one for one in told if one["action"] == "reject"]
    assert refused and all(one["score_delta"] is not None for one in refused)


@pytest.mark.slow
def test_selection_keeps_what_scores_higher_and_claims_at_the_end(tmp_path: Path):
    state, best = trained(tmp_path, "selection")
    check_better(best)
    assert state.history[len(state.history) - 1].verdict.code == "claim"
    assert state.stopped is not None and state.stopped.kind == "iterations"


@pytest.mark.slow
@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=["all", "none"])
def test_a_gate_that_keeps_everything_or_nothing_trains_nothing(tmp_path: Path, gate: Gate):
    _, best = trained(tmp_path, "selection", gate)
    with pytest.raises(AssertionError):
        check_better(best)


def check_better(best: str) -> None:
    """Better by its true chance, and nothing harmful in it."""
    assert world.chance_of(best) > world.chance_of(world.START) + 0.25, best
    assert not any(rule in best for rule in world.HARMFUL), best


@pytest.mark.parametrize(
    ("test", "passes"), [(0, 3), (40, 3), (150, 2), (299, 2), (300, 1), (1400, 1)]
)
def test_a_large_test_split_is_gone_over_once(test: int, passes: int):
    assert claim_passes(3, test) == passes


def test_a_race_that_rollouts_are_too_few_for_is_warned_of(tmp_path: Path):
    """Else one race may use them all up, and the run ends after a few of its steps."""
    path = world.write_config(tmp_path, "http://127.0.0.1:9", epochs=4, batch=20, gate="race")
    teacher = Asked(ScriptedModel(()), ModelConfig(provider="scripted", model="none"))
    opened = world.opened(ScriptedModel(()), (100, 60, 0))

    def warned(*overrides: str) -> list[str]:
        spec = sound_skill(path, overrides)
        warnings = plan_of(spec, opened, overrides, "", teacher).warnings
        return [told for told in warnings if "few for a race" in told]

    (told,) = warned("budget.max_rollouts=1660")
    assert told.startswith("1660 rollouts are few for a race of 20 steps")
    assert not warned("budget.max_rollouts=6000") and not warned()
    assert not warned("budget.max_rollouts=1660", "evaluation.gate=selection")


def test_reminders_that_nobody_is_asked_for_are_warned_of(tmp_path: Path):
    """With whole skills the key was read, and did nothing."""
    path = world.write_config(tmp_path, "http://127.0.0.1:9")
    teacher = Asked(ScriptedModel(()), ModelConfig(provider="scripted", model="none"))

    def warned(mode: str) -> bool:
        aware = "optimizer.use_skill_aware_reflection=true"
        spec = sound_skill(path, (f"optimizer.skill_update_mode={mode}", aware))
        made = plan_of(spec, world.opened(ScriptedModel(())), (), "", teacher)
        return any("is not asked for reminders" in told for told in made.warnings)

    assert warned("full_rewrite_minibatch")
    assert not warned("patch") and not warned("rewrite_from_suggestions")
