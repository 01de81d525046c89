"""What epochs end with, every way of updating, and a run that is cut anywhere."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kept.core.proposal import Note
from kept.core.state import State
from kept.run import start
from kept.store.home import Home
from kept.testing.server import ModelServer
from tests.recipes.cutting import check_every_cut
from tests.recipes.skill import world
from tests.sampling import some_or_all

ALL = (
    "optimizer.use_slow_update=true",
    "optimizer.slow_update_samples=4",
    "optimizer.use_meta_skill=true",
    "optimizer.use_meta_reflect=true",
    "optimizer.use_skill_aware_reflection=true",
    "gradient.use_deep_reflect=true",
)


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))


def run(folder: Path, *overrides: str, **how: Any) -> tuple[State, Path, ModelServer]:
    with ModelServer(world.answer) as server:
        path = world.write_config(folder, server.v1, **how)
        plan = world.make_plan(path, overrides)
        ended = asyncio.run(start(plan, Home(folder / "home")))
    return ended.state, folder / "out", server


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.slow
def test_an_epoch_ends_with_all_that_the_config_asks_for(tmp_path: Path):
    state, out, server = run(tmp_path, *ALL)
    phases = [step.turn.phase for step in state.history]
    assert phases[:4] == ["e1/step", "e1/step", "e1/appendix", "e1/meta_reflect"]
    ends = ["appendix", "slow_update", "meta_skill", "meta_reflect"]
    assert phases[4:10] == ["e2/step", "e2/step", *(f"e2/{end}" for end in ends)]
    notes = [note for note in state.memory if note.topic == "meta_skill"]
    assert len(notes) == 1 and isinstance(notes[0], Note)
    slow = next(step for step in state.history if step.turn.proposer == "slow_update")
    assert slow.proposal is not None and slow.proposal.about["pairs"]
    gated = [one for one in state.history if one.turn.phase.startswith("e2/") and one.proposal]
    assert {"appendix", "slow_update", "meta_reflect"} <= {one.turn.proposer for one in gated}
    assert all(one.verdict.outcome in ("keep", "discard") for one in gated), "by the gate"
    probes = [one for one in server.log if "PROBE: Say which rule" in one.lines[0].text]
    assert probes, "a few rollouts were done again with the question"
    assert (out / "meta_skill/epoch_02/meta_skill.md").read_text() == notes[0].text
    assert (out / "slow_update/epoch_02/comparison_pairs.json").exists()
    assert read(out / "meta_reflect/epoch_02/result.json")["meta_summary"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["rewrite_from_suggestions", "full_rewrite_minibatch"])
def test_a_skill_that_is_written_anew_keeps_its_protected_regions(tmp_path: Path, mode: str):
    region = "<!-- SLOW_UPDATE_START -->\nHold on to this.\n<!-- SLOW_UPDATE_END -->"
    with ModelServer(world.answer) as server:
        path = world.write_config(tmp_path, server.v1)
        skill = {"SKILL.md": f"{world.START}\n{region}\n"}
        plan = world.make_plan(path, [f"optimizer.skill_update_mode={mode}"], skill=skill)
        ended = asyncio.run(start(plan, Home(tmp_path / "home")))
    made = sorted((tmp_path / "out/steps").glob("*/candidate_skill.md"))
    assert made and all(region in one.read_text() for one in made)
    rewrites = sorted((tmp_path / "out/steps").glob("*/rewrite_result.json"))
    assert rewrites and region in read(rewrites[0])["new_skill"]
    assert not any(step.verdict.code == "protected" for step in ended.state.history)


@pytest.mark.slow
def test_flushed_notes_are_taken_at_once_and_measured_with_what_comes_next(tmp_path: Path):
    more = ("optimizer.use_skill_aware_reflection=true", "optimizer.appendix_gate=flush")
    state, out, _ = run(tmp_path, *more)
    first = [step for step in state.history if step.turn.phase == "e1/appendix"]
    assert first[0].verdict.code == "taken" and first[0].verdict.outcome == "keep"
    assert "<!-- APPENDIX_START -->" in (out / "appendix/step_0001/candidate_skill.md").read_text()
    assert (out / "appendix/step_0003/result.json").exists(), "each step has its own"
    later = [step for step in state.history if step.turn.phase == "e1/step"][1]
    assert later.incumbent == first[0].candidate, "what comes next begins with them"
    scores = [row["current_score"] for row in read(out / "history.json")]
    assert scores[1] is not None, "and they are measured with it"


@pytest.mark.slow
def test_without_skill_aware_reflection_no_request_differs_by_a_byte(tmp_path: Path):
    _, _, plain = run(tmp_path / "a")
    _, _, off = run(tmp_path / "b", "optimizer.use_skill_aware_reflection=false")
    assert [one.body for one in off.log] and bodies(plain) == bodies(off)
    assert not any("appendix" in one.lower() or "lapse" in one for one in bodies(off))
    _, _, on = run(tmp_path / "c", "optimizer.use_skill_aware_reflection=true")
    assert bodies(on) != bodies(plain)


def bodies(server: ModelServer) -> list[str]:
    return sorted(json.dumps(dict(one.body), sort_keys=True) for one in server.log)


@pytest.mark.slow
@some_or_all
def test_steps_that_are_open_together_are_cut_as_well(tmp_path: Path, everything: bool):
    more = (*ALL, "train.steps_at_once=2")
    with ModelServer(world.answer) as server:
        path = world.write_config(tmp_path, server.v1, epochs=2, batch=4)
        make = partial(world.make_plan, path, more, sizes=(12, 8, 4))
        state = check_every_cut(make, server, tmp_path, everything=everything, every=19)
    phases = [step.turn.phase for step in state.history]
    assert phases[:4] == ["e1/step", "e1/step", "e1/step", "e1/appendix"]
    assert any(step.turn.proposer == "slow_update" for step in state.history)


@pytest.mark.slow
@some_or_all
@pytest.mark.parametrize("mode", ["rewrite_from_suggestions", "full_rewrite_minibatch"])
def test_a_training_that_writes_the_skill_anew_is_cut_as_well(
    tmp_path: Path, mode: str, everything: bool
):
    more = (f"optimizer.skill_update_mode={mode}",)
    with ModelServer(world.answer) as server:
        path = world.write_config(tmp_path, server.v1, epochs=1, batch=6)
        make = partial(world.make_plan, path, more, sizes=(12, 6, 4))
        state = check_every_cut(make, server, tmp_path, everything=everything, every=3)
    assert any(step.proposal is not None for step in state.history)


@pytest.mark.slow
@some_or_all
def test_a_training_run_that_is_cut_anywhere_comes_to_the_same_end(
    tmp_path: Path, everything: bool
):
    more = (*ALL, "train.seed=8")  # by which what epochs end with is kept
    with ModelServer(world.answer) as server:
        path = world.write_config(tmp_path, server.v1, epochs=2, batch=6)
        make = partial(world.make_plan, path, more, sizes=(12, 8, 4))
        state = check_every_cut(make, server, tmp_path, everything=everything, every=4)
    assert state.keeps and any(step.turn.proposer == "slow_update" for step in state.history)
