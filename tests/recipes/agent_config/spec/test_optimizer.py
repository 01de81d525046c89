"""What comes of the block `optimizer:`, in both of its forms."""

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.agent_config.spec.optimizer import OptimizerSpec, optimizer_warnings
from kept.recipes.agent_config.spec.read import read_agent
from tests.recipes.agent_config.spec.optimizers import agent_with, read_optimizer, write_optimized

REFERENCE = """\
loss: {equality: 0.7, near: 0.3}
penalties: {cost_per_usd: 0.05, latency_per_sec: 0.001}
train_cases_file: data/train.yaml
holdout_cases_file: data/holdout.yaml
holdout_eval_policy: every_trial
min_holdout_cases: 6
repeats: 4
accept_sigma: 1.5
max_errored_fraction: 0.5
axes:
  numeric:
  - {path: model.temperature, range: [0.0, 1.0]}
  - {path: "tools[name=books].top_k", range: [3, 20], type: int}
  textual:
  - {path: instructions.inline, max_chars: 4000}
budget:
  global: {max_cycles: 2, max_minutes: 60, max_usd: 15.0}
  numeric_phase: {max_trials: 12, patience: 7}
  textual_phase: {max_trials: 3, patience: 2}
"""

SHIPPED = """\
loss: {equality: 1.0}
axes:
  numeric: [{path: model.temperature, type: float, range: [0.0, 1.0]}]
  textual: [{path: instructions.inline}]
max_cycles: 3
numeric_phase: {max_trials: 10, patience: 5}
textual_phase: {max_trials: 5, patience: 3}
min_delta: 0.01
seed: 7
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def spec_of(folder: Path, block: str) -> OptimizerSpec:
    return read_optimizer(read_agent(write_optimized(folder, block)))


def test_the_reference_block_is_read(tmp_path: Path):
    spec = spec_of(tmp_path, REFERENCE)
    assert spec.loss == {"equality": 0.7, "near": 0.3}
    assert (spec.penalties.cost_per_usd, spec.penalties.latency_per_sec) == (0.05, 0.001)
    assert (spec.train_cases_file, spec.holdout_cases_file) == (
        "data/train.yaml",
        "data/holdout.yaml",
    )
    assert (spec.holdout_eval_policy, spec.min_holdout_cases) == ("every_trial", 6)
    assert (spec.repeats, spec.accept_sigma, spec.max_errored_fraction) == (4, 1.5, 0.5)
    assert spec.gate == "sigma"
    assert (spec.max_cycles, spec.max_minutes, spec.max_usd) == (2, 60, 15.0)
    assert (spec.numeric_phase.max_trials, spec.numeric_phase.patience) == (12, 7)
    assert (spec.textual_phase.max_trials, spec.textual_phase.patience) == (3, 2)
    assert [axis.path for axis in spec.axes.numeric] == [
        "model.temperature",
        "tools[name=books].top_k",
    ]
    assert [(axis.path, axis.max_chars) for axis in spec.axes.textual] == [
        ("instructions.inline", 4000)
    ]


def test_the_block_that_was_shipped_is_read_flat(tmp_path: Path):
    spec = spec_of(tmp_path, SHIPPED)
    assert (spec.max_cycles, spec.min_delta, spec.seed) == (3, 0.01, 7)
    assert (spec.numeric_phase.max_trials, spec.numeric_phase.patience) == (10, 5)
    assert (spec.textual_phase.max_trials, spec.textual_phase.patience) == (5, 3)
    assert spec.axes.textual[0].max_chars == 8000


def test_what_is_left_out_has_the_default_that_the_seed_says(tmp_path: Path):
    spec = spec_of(tmp_path, "loss: {equality: 1}\naxes: {demos: {}}\n")
    assert spec == OptimizerSpec(loss={"equality": 1}, axes=spec.axes)
    assert spec.gate == "race"
    assert (spec.max_cycles, spec.repeats, spec.accept_sigma, spec.seed) == (4, 3, 1.0, 42)
    assert (spec.min_confidence, spec.numeric_convergence_eps) == (0.4, 1e-3)
    phases = (spec.numeric_phase, spec.textual_phase, spec.demos_phase)
    assert [(p.max_trials, p.patience) for p in phases] == [(15, 5), (10, 4), (6, 3)]
    assert spec.axes.demos is not None
    assert (spec.axes.demos.path, spec.axes.demos.max_demos) == ("instructions", 4)


@pytest.mark.parametrize(
    "said",
    [
        "accept_sigma: 1.0",
        "repeats: 3",
        "holdout_eval_policy: on_train_improve",
        "max_errored_fraction: 0.25",
    ],
)
def test_a_key_that_only_sigma_reads_selects_sigma(tmp_path: Path, said: str):
    spec = spec_of(tmp_path, f"loss: {{equality: 1}}\naxes: {{demos: {{}}}}\n{said}\n")
    assert (spec.gate, spec.gate_by) == ("sigma", said.partition(":")[0])


def test_a_limit_of_nothing_is_a_limit(tmp_path: Path):
    spec = spec_of(tmp_path, "loss: {equality: 1}\naxes: {demos: {}}\nmax_usd: 0\n")
    assert spec.max_usd == 0


def test_an_odd_block_is_nothing_to_who_only_measures(tmp_path: Path):
    read = read_agent(write_optimized(tmp_path, "loss: 7\nwhat: [is, this]\n"))
    assert len(read.cases) == 20
    with pytest.raises(SpecError):
        read_optimizer(read)


def test_an_agent_without_the_block_is_shown_one_that_can_be_read(tmp_path: Path):
    read = read_agent(write_optimized(tmp_path, None))
    with pytest.raises(SpecError) as caught:
        read_optimizer(read)
    (problem,) = caught.value.problems
    assert str(problem).startswith("agent.yaml:9 evaluations.optimizer: missing: it says what")
    shown = (problem.hint or "").partition("\n")[2]
    path = tmp_path / "agent.yaml"
    path.write_text(agent_with(None).replace("evaluations:\n", f"{shown}\n"))
    spec = read_optimizer(read_agent(path))
    assert spec.loss == {"equality": 1.0, "near": 1.0}
    assert not [*optimizer_warnings(spec)]


def test_an_agent_without_metrics_is_shown_a_block_that_has_one(tmp_path: Path):
    text = agent_with(None)
    path = write_optimized(tmp_path, None)
    path.write_text(text[: text.index("evaluations:")] + text[text.index("test_cases:") :])
    with pytest.raises(SpecError) as caught:
        read_optimizer(read_agent(path))
    shown = (caught.value.problems[0].hint or "").partition("\n")[2]
    path.write_text(path.read_text() + shown)
    assert read_optimizer(read_agent(path)).loss == {"equality": 1.0}


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("repeats: 1\naccept_sigma: 1.0\n", ["`repeats: 1` measures no noise"]),
        ("numeric_phase: {max_trials: 10}\n", ["`numeric_phase.max_trials` is 10: the first 10"]),
        ("numeric_phase: {patience: 5}\n", ["`numeric_phase.patience` is 5, and the first 10"]),
        ("numeric_phase: {patience: 10}\n", []),
        ("holdout_eval_policy: skip\ngate: sigma\n", ["`holdout_eval_policy: skip`: nothing"]),
        ("", []),
    ],
)
def test_what_may_not_be_meant_is_warned_of(tmp_path: Path, extra: str, told: list[str]):
    axes = "axes: {numeric: [{path: model.temperature, range: [0, 1]}]}\n"
    spec = spec_of(tmp_path, f"loss: {{equality: 1}}\n{axes}{extra}")
    warnings = [*optimizer_warnings(spec)]
    assert [w[: len(t)] for w, t in zip(warnings, told, strict=True)] == told
