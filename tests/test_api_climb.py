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
