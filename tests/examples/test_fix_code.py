"""A code file against tests that it cannot see."""

from pathlib import Path

import pytest

from tests.examples.by_hand import assert_report_agrees, run_example

pytestmark = pytest.mark.slow


def test_the_code_that_passes_the_hidden_tests_is_kept(tmp_path: Path):
    ran = run_example("fix-code", tmp_path)
    assert ran.verdicts() == [
        ("1-sorted.py", "keep"),
        ("2-in-place.py", "discard"),
        ("3-reads-the-answers.py", "crash"),
        ("4-right.py", "keep"),
    ]
    assert ran.closed[1]["reason"] == "constraint broken: changed_input == 0: it is 1"
    assert "hidden/expected.json" in ran.closed[2]["reason"]
    assert ran.told["best"]["value"] == 1
    assert_report_agrees(ran, tmp_path / "by-hand")
