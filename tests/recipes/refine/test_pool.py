"""Attempts drawn from a pool of better, equal and worse: what BEST holds is counted by hand."""

import random
from pathlib import Path

import pytest

from kept.orchestrator.refine.best import BEST
from tests.orchestrator.run_folder.made import synthetic_run
from tests.recipes.refine.world import TASK, Attempted, world

SEED_WRONG = 3


def report(wrong: int) -> str:
    """A report with so many planted defects."""
    return "# Report\n\n" + "".join(f"Sum {n} is wrong.\n" for n in range(wrong)) + "The end.\n"


def wrong_in(text: str) -> int:
    return text.count("is wrong.")


def attempt(wrong: int) -> Attempted:
    found = [f"sum {n} is wrong" for n in range(wrong)] or ["the title is dull"]
    return Attempted(0.95 - 0.08 * wrong, report(wrong), defects=found)


@pytest.mark.parametrize("draw", range(6))
def test_best_holds_the_attempt_with_the_fewest_planted_defects(tmp_path: Path, draw: int):
    chance = random.Random(draw)
    drawn = [chance.choice([0, 1, 2, 3, 3, 4]) for _ in range(5)]
    judged = {"score": 0.95 - 0.08 * SEED_WRONG, "defects": [{"summary": "sum 0 is wrong"}]}
    # as an attempt would be measured, with all of its budget left
    seed = synthetic_run(tmp_path / "seed", task=TASK, critique=judged, eval={"score": 0.98})
    (seed / "FINAL" / "out.md").unlink()
    (seed / "FINAL" / "report.md").write_text(report(SEED_WRONG))
    it = world(tmp_path, *map(attempt, drawn), iterations=5, seed=seed)
    ended = it.start()
    ran = drawn[: len([step for step in ended.state.history if step.candidate])]
    least = min(ran)
    if least < SEED_WRONG:
        held = (seed / BEST / "report.md").read_text()
        assert wrong_in(held) == least
    else:
        assert not (seed / BEST).exists()
