"""`kept.optimize` with a proposer that looks at nothing but the incumbent."""

from pathlib import Path

import kept
from kept.core.schedule import STUCK


def _length(candidate: kept.Candidate, case: int) -> float:
    return min(len(candidate.text), 30) / 30


def _longer(brief: kept.Brief) -> str:
    return brief.incumbent.text + "xxx"


def test_one_that_says_the_same_until_it_is_kept_has_its_near_miss_raced(tmp_path: Path):
    budget = kept.Budget(max_rollouts=4000)
    cases = list(range(40))
    done = kept.optimize("x", _length, cases, proposers=[_longer], budget=budget, home=tmp_path)
    outcomes = [step.verdict.outcome for step in done.state.closed]
    codes = [step.verdict.code for step in done.state.closed]
    assert len(done.best.text) >= 30 and outcomes.count("keep") == 10
    # nothing is raced before it is clear that no more will be said
    first = outcomes.index("keep")
    assert codes[0] == "near miss" and codes[1:first].count("duplicate") >= STUCK


def test_steps_that_come_too_late_are_warned_of_with_what_helps(tmp_path: Path):
    def near(candidate: kept.Candidate) -> float:
        return -abs(len(candidate.text) - 20)

    def climb(width: int | None) -> kept.Result:
        return kept.optimize(
            "x", near, proposers=[_longer], budget=12, width=width, home=tmp_path, workers=4
        )

    together, alone = climb(None), climb(1)
    assert "`width=1` has each wait" in str(together)
    assert not alone.warnings and alone.state.closed[0].verdict.outcome == "keep"
    # so helped, each step adds three letters until there are enough
    assert len(alone.best.text) == 19 > len(together.best.text)
