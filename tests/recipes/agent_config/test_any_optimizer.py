"""Whatever stands anywhere in the block `optimizer:`, there is an answer: a plan or problems."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from kept.errors import SpecError
from kept.recipes.agent_config.request import Tuning
from kept.recipes.agent_config.spec.read import read_agent
from kept.recipes.agent_config.tune import read_tuning
from kept.spec.yaml import read_yaml
from tests.recipes.agent_config.spec.optimizers import write_optimized
from tests.recipes.agent_config.spec.test_any_value import ODD, places
from tests.sampling import sample, some_or_all

BLOCK = """\
loss: {equality: 0.7, near: 0.3}
penalties: {cost_per_usd: 0.05, latency_per_sec: 0.001}
test_cases_file: data/test.yaml
split: "3:5:0"
min_holdout_cases: 5
GATE
min_delta: 0.01
axes:
  numeric:
  - {path: model.temperature, range: [0.0, 1.0], type: float, step: 0.1}
  - {path: "tools[name=books].search_mode", choices: [hybrid, keyword]}
  - {path: "tools[name=books].semantic_weight", range: [0.1, 0.9]}
  textual: [{path: instructions.inline, max_chars: 4000}]
  demos: {path: instructions, max_demos: 2, max_chars: 5000}
budget:
  global: {max_cycles: 2, max_minutes: 60, max_usd: 15.0, max_rollouts: 10}
  numeric_phase: {max_trials: 12, patience: 7}
seed: 3
"""
SOME = 15
"""Places that are tried in every run of the tests; nightly all are."""
GATES = (
    "gate: race\nrace: {preset: fast}",
    "gate: sigma\nholdout_eval_policy: on_train_improve\nrepeats: 4\nmax_errored_fraction: 0.5",
)
PATHS: list[object] = [
    *("a", "tools", "tools[0]", "tools[7].top_k", "model.name.x", "openai", "test_cases[0].input"),
    *("tools[name=books].database.provider", "tools[type=mcp].env", '"', "[0]", "response_format"),
    *("evaluations.optimizer.seed", "tools[name=sum_up].parameters.text", "instructions.x.y"),
]


@pytest.mark.slow
@some_or_all
@pytest.mark.parametrize("gate", GATES, ids=["race", "sigma"])
def test_any_value_anywhere_is_taken_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: str, everything: bool
):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-nobody")
    monkeypatch.setenv("DESK_KEY", "a-value-of-its-own")
    path = write_optimized(tmp_path, BLOCK.replace("GATE", gate))
    data: Any = read_yaml(path.read_text()).data
    read_tuning(path, (), Tuning())
    block = data["evaluations"]["optimizer"]
    chance = random.Random(11)
    told, every = 0, sample(places(block), SOME, everything)
    for loc in every:
        odd = [chance.choice(ODD), *(chance.sample(PATHS, 3) if loc[-1] == "path" else ())]
        for value in odd:
            changed = copy.deepcopy(data)
            holder = changed["evaluations"]["optimizer"]
            for part in loc[:-1]:
                holder = holder[part]
            holder[loc[-1]] = value
            # JSON is YAML
            path.write_text(json.dumps(changed))
            try:
                read_tuning(path, (), Tuning())
            except SpecError as error:
                told += 1
                assert all(problem.place for problem in error.problems)
            if value != "${NOT_SET}":
                # who only measures does not mind
                assert len(read_agent(path).cases) == 20
    assert told > len(every) / 2
