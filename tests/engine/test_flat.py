"""What a step costs does not depend on how many came before it.

Time is for `bench/`. What is counted here are calls of functions and turns of generators, which are
the same on every machine.
"""

import sys
from pathlib import Path
from types import FrameType

import pytest

import kept

CASES = [f"case {n}" for n in range(4)]
OURS = str(Path(kept.__file__).parent)


def calls_of(steps: int, home: Path) -> int:
    """Calls and turns that a run of so many steps makes, all of them refused."""
    calls = 0

    def count(frame: FrameType, event: str, _of: object) -> None:
        nonlocal calls
        # not those of the event loop, whose turns are a matter of timing
        calls += event == "call" and frame.f_code.co_filename.startswith(OURS)

    def score(candidate: kept.Candidate, case: str) -> float:
        return 0.5

    texts = [f"text {n}" for n in range(steps)]
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        kept.optimize(
            "seed",
            score,
            cases=CASES,
            proposers=texts,
            gate="strict",
            budget=steps,
            home=home,
        )
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.slow
def test_the_work_of_a_step_does_not_grow_with_the_run(tmp_path: Path):
    few, many = calls_of(200, tmp_path / "few"), calls_of(800, tmp_path / "many")
    assert many / 800 < 1.15 * few / 200
