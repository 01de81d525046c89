"""A case that raises, where nothing says what a failure counts: whichever split it is in."""

from pathlib import Path

import pytest

import kept
from kept.errors import RunError

CASES = [{"n": n} for n in range(20)]


def more(brief: kept.Brief) -> str:
    return brief.incumbent.text + " more"


def run(wrong: int, home: Path) -> kept.Result:
    def evaluate(candidate: kept.Candidate, case: dict[str, int]) -> float:
        if case["n"] == wrong:
            raise ValueError("boom")
        return float(len(candidate.text) > 5)

    return kept.optimize("hi", evaluate, CASES, proposers=[more], budget=5, home=home)


@pytest.mark.parametrize("wrong", [0, 5], ids=["train", "holdout"])
def test_a_case_that_raises_ends_the_run_with_the_way_to_mend_it(wrong: int, tmp_path: Path):
    with pytest.raises(RunError, match="`score` has no bounds to count them by") as caught:
        run(wrong, tmp_path)
    assert caught.value.hint is not None
    assert "bounds=(least, greatest)" in caught.value.hint


def test_a_test_case_that_raises_leaves_what_was_proven_in_the_headline(tmp_path: Path):
    assert "0 → 1 on 10 holdout cases in" in str(run(2, tmp_path))


def test_a_failure_without_bounds_is_not_said_to_count_as_the_worst(tmp_path: Path):
    (warning,) = [words for words in run(2, tmp_path).warnings if "failed for the seed" in words]
    assert "with no bounds to count them by" in warning
    assert "worst value" not in warning
