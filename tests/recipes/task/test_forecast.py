"""The most that a run can use is not exceeded by what it uses."""

import asyncio
from pathlib import Path

import pytest

from kept.core.forecast import Likely, forecast
from kept.core.plan import Plan
from kept.gates.repeats import Repeats
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home

TASK = """\
artifacts: {include: [c.toml]}
runner: {command: "true"}
scorer: {type: rules, rules: [{kind: matches, pattern: "x = 0\\\\.[0-4]"}]}
objective: {primary_metric: score, direction: maximize}
proposers:
  - kind: numeric
    axes: [{file: c.toml, path: x, type: float, range: [0, 1]}]
    startup: 2
cases: {file: cases.jsonl, split: "8:2:0"}
budget: {max_iterations: 5}
width: 1
"""


def plan_of(folder: Path, *overrides: str) -> Plan:
    (folder / "task.yaml").write_text(TASK)
    (folder / "c.toml").write_text("x = 0.9\n")
    (folder / "cases.jsonl").write_text("".join(f'{{"q": {n}}}\n' for n in range(10)))
    return compile_task(folder / "task.yaml", overrides).plan


@pytest.mark.slow
def test_what_a_proposer_learns_from_is_counted(tmp_path: Path):
    plan = plan_of(tmp_path)
    most = forecast(plan).rollouts
    # the incumbent and five challengers on two cases; six candidates on eight
    assert most == 2 * 6 + 8 * 6
    _, state = asyncio.run(start(plan, Home(tmp_path / ".kept")))
    assert state.spend.rollouts > 2 * 6
    assert state.spend.rollouts <= most


def test_a_sample_of_the_train_cases_costs_less_and_no_cases_cost_nothing(tmp_path: Path):
    plan = plan_of(tmp_path, "proposers.0.train_sample=3")
    assert forecast(plan).rollouts == 2 * 6 + 3 * 6
    assert forecast(plan_of(tmp_path, "cases=null", "gate=strict")).rollouts == 1 + 5


def test_without_cases_every_step_may_be_a_race_over_repeats(tmp_path: Path):
    gate = Repeats()
    each = 2 * gate.most + gate.first + gate.sure
    assert forecast(plan_of(tmp_path, "cases=null")).rollouts == 1 + 5 * each


def test_without_cases_one_run_usually_confirms_a_keep_and_none_where_runs_are_deterministic(
    tmp_path: Path,
):
    # five challengers, once each; the seed three times
    assert forecast(plan_of(tmp_path, "cases=null")).likely == Likely(3 + 5, 3 + 5 + 1)
    sure = plan_of(tmp_path, "cases=null", "objective.deterministic=true")
    assert forecast(sure).likely == Likely(1 + 5, 1 + 5)


EDIT = "proposers=[{kind: edit, model: openai/gpt-4o-mini}]"
ASK = "runner={model: openai/gpt-4o-mini, prompt: c.toml, input: q}"


@pytest.mark.parametrize(
    ("settings", "width"),
    [
        ((), 16),
        ((EDIT,), 16),
        ((ASK,), 16),
        ((ASK, EDIT), 16),
        ((EDIT, "budget.usd_per_rollout=0.01"), 2),
    ],
)
def test_a_model_that_is_paid_does_not_leave_the_workers_idle(
    tmp_path: Path, settings: tuple[str, ...], width: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    plan = plan_of(tmp_path, "workers=16", "width=null", "gate=strict", *settings)
    assert plan.width == width
    assert forecast(plan).usd == (None if EDIT in settings or ASK in settings else 0)


def test_what_is_likely_is_every_candidate_once_where_the_gate_is_strict(tmp_path: Path):
    told = forecast(plan_of(tmp_path))
    # five challengers and the incumbent on two cases; five candidates on eight to learn from
    assert told.likely == Likely(2 * 6 + 8 * 5, 2 * 6 + 8 * 5)


def test_what_is_likely_of_a_race_leaves_out_what_only_keeps_would_cost(tmp_path: Path):
    race = ("cases.split=4:6:0", "gate=null", "budget.max_iterations=40")
    plan = plan_of(tmp_path, *race)
    (tmp_path / "cases.jsonl").write_text("".join(f'{{"q": {n}}}\n' for n in range(40)))
    plan = compile_task(tmp_path / "task.yaml", race).plan
    told = forecast(plan)
    assert plan.gate.name == "race"
    assert told.likely is not None
    assert told.rollouts is not None
    assert told.likely.kept == told.likely.useless + plan.reserve
    assert told.likely.kept < told.rollouts / 5


def test_what_is_likely_is_never_more_than_the_budget(tmp_path: Path):
    told = forecast(plan_of(tmp_path, "budget.max_rollouts=9"))
    assert told.likely == Likely(9, 9)
    endless = plan_of(tmp_path, "budget={max_minutes: 1}")
    assert forecast(endless).likely is None
