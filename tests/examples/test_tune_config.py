"""Numbers of a config file, tuned against what a real program makes of them."""

import tomllib
from pathlib import Path

import pytest

from tests.examples.by_hand import EXAMPLES, assert_report_agrees, run_example

pytestmark = pytest.mark.slow


def test_tuned_numbers_halve_the_cost_and_leave_the_rest_of_the_file_alone(tmp_path: Path):
    ran = run_example("tune-config", tmp_path)
    assert ran.told["best"]["value"] < ran.told["seed"]["value"] / 2
    assert_report_agrees(ran, tmp_path / "by-hand")
    seed = (EXAMPLES / "tune-config" / "pack.toml").read_text()
    best = ran.run.candidate(ran.told["best"]["candidate"])["pack.toml"]
    assert [line.partition("=")[0] for line in best.splitlines()] == [
        line.partition("=")[0] for line in seed.splitlines()
    ]
    comments = [line.partition("#")[2] for line in seed.splitlines()]
    assert [line.partition("#")[2] for line in best.splitlines()] == comments
    tried = [ran.run.candidate(step["candidate"])["pack.toml"] for step in ran.closed]
    assert len(set(tried)) == len(tried) == 30
    for text in tried:
        config = tomllib.loads(text)
        assert 6 <= config["window_bits"] <= 16
        assert 1 <= config["search"]["depth"] <= 256
        assert type(config["search"]["patient"]) is bool
    assert {verdict for _, verdict in ran.verdicts()} == {"keep", "discard"}
