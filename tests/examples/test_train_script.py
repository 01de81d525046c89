"""Where the artifact loop comes from: one training script, one metric, a time budget."""

from pathlib import Path

import pytest

from tests.examples.by_hand import assert_report_agrees, run_example

pytestmark = pytest.mark.slow


def test_the_script_with_the_fewest_bits_is_kept_and_the_endless_one_is_a_crash(tmp_path: Path):
    ran = run_example("train-script", tmp_path)
    assert ran.verdicts() == [
        ("1-bigrams.py", "keep"),
        ("2-long-contexts.py", "discard"),
        ("3-never-ends.py", "crash"),
        ("4-mixed.py", "keep"),
        ("5-not-a-model.py", "crash"),
    ]
    assert "no end after 5 seconds" in ran.closed[2]["reason"]
    assert "not a finite number" in ran.closed[4]["reason"]
    assert ran.told["direction"] == "minimize"
    assert ran.told["best"]["value"] < ran.told["seed"]["value"]
    assert_report_agrees(ran, tmp_path / "by-hand")
