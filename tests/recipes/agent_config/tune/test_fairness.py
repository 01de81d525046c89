"""What a dozen trials a phase need: a screen that does not hurry, and patience with a search."""

from pathlib import Path

import pytest

from kept.core.plan import Plan
from kept.core.schedules.coordinate import Coordinate
from kept.core.schedules.round_robin import Pooling
from kept.gates.race import PRESETS, Race
from kept.recipes.agent_config.tune import PASSES, PATIENCE, compile_coordinate
from tests.recipes.agent_config.tune.world import write_agent

NOBODY = "http://127.0.0.1:9/v1"


def compiled(folder: Path, more: str, trials: int = 4) -> Plan:
    return compile_coordinate(write_agent(folder, NOBODY, trials=trials, more=more)).plan


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "none")


def race_of(plan: Plan) -> Race:
    assert isinstance(plan.gate, Race)
    return plan.gate


def test_a_screen_looks_at_every_train_case_before_it_drops_a_trial(tmp_path: Path):
    plan = compiled(tmp_path, "gate: race")
    screen, cases = race_of(plan).screen, len(plan.cases.train)
    assert [size for size, _ in screen.steps] == [cases, 2 * cases, 3 * cases, 60]
    assert screen.steps[0][1] < 0
    assert screen.passes == PASSES


def test_figures_of_the_screen_that_a_file_has_stay(tmp_path: Path):
    screen = race_of(compiled(tmp_path, "race: {screen: {steps: [[8, 0.1]]}}")).screen
    assert screen.steps == ((8, 0.1),)
    assert screen.passes == PASSES
    screen = race_of(compiled(tmp_path, "race: {screen: {passes: 3}}")).screen
    assert screen.passes == 3
    assert screen.steps != PRESETS["balanced"].screen.steps


def test_a_race_with_a_trial_is_given_up_later_unless_a_file_says_when(tmp_path: Path):
    assert race_of(compiled(tmp_path, "gate: race")).patience == PATIENCE
    assert race_of(compiled(tmp_path, "race: {patience: 0.3}")).patience == 0.3
    assert race_of(compiled(tmp_path, "race: fast")).patience == PRESETS["fast"].patience


@pytest.mark.parametrize(("trials", "least"), [(4, 4), (12, 12), (40, 25)])
def test_patience_with_a_search_begins_after_its_warm_up(trials: int, least: int, tmp_path: Path):
    path = write_agent(tmp_path, NOBODY, trials=trials, more="gate: race")
    numeric = f"numeric_phase: {{max_trials: {trials}, patience: {trials}}}"
    patient = f"numeric_phase: {{max_trials: {trials}, patience: 15}}"
    path.write_text(path.read_text().replace(numeric, patient))
    schedule = compile_coordinate(path).plan.schedule
    assert isinstance(schedule, Pooling)
    assert isinstance(schedule.inner, Coordinate)
    phase = schedule.inner.phases[0]
    assert (phase.name, phase.least) == ("numeric", least)
