"""`kept.optimize` with a proposer that looks at nothing but the incumbent."""

import random
import re
import zlib
from pathlib import Path

import kept
from kept.core.schedules.round_robin import STUCK


def _length(candidate: kept.Candidate, case: int) -> float:
    return min(len(candidate.text), 30) / 30


def _size(candidate: kept.Candidate) -> float:
    return float(len(candidate.text))


def _longer(brief: kept.Brief) -> str:
    return brief.incumbent.text + "xxx"


def test_one_that_says_the_same_until_it_is_kept_has_its_near_miss_raced(tmp_path: Path):
    budget = kept.Budget(max_rollouts=4000)
    cases = list(range(40))
    done = kept.optimize("x", _length, cases, proposers=[_longer], budget=budget, home=tmp_path)
    outcomes = [step.verdict.outcome for step in done.state.history]
    codes = [step.verdict.code for step in done.state.history]
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
    assert not alone.warnings and alone.state.history[0].verdict.outcome == "keep"
    # so helped, each step adds three letters until there are enough
    assert len(alone.best.text) == 19 > len(together.best.text)


def test_proposals_that_were_made_before_are_told(tmp_path: Path):
    def same(brief: kept.Brief) -> str:
        return "bb"

    result = kept.optimize("a", _size, proposers=[same], budget=10, width=1, home=tmp_path)
    (words,) = result.warnings
    assert words.startswith(
        "9 of 10 proposals had been made before: draw by `brief.seed` from more"
    )
    assert f"warning: {words}" in str(result)


def test_a_warning_counts_the_same_proposals_as_the_result(tmp_path: Path):
    def sometimes(brief: kept.Brief) -> str | None:
        return "bb" if brief.step % 3 else None

    result = kept.optimize("a", _size, proposers=[sometimes], budget=9, width=1, home=tmp_path)
    (words,) = result.warnings
    tried = str(result).partition(" in ")[2].partition(" proposals")[0]
    assert words.startswith(f"{int(tried) - 1} of {tried} proposals had been made before")


def test_proposals_that_touch_nothing_that_may_change_are_not_told_as_made_before(tmp_path: Path):
    def elsewhere(brief: kept.Brief) -> dict[str, str]:
        return {"nope": "bb"}

    result = kept.optimize("a", _size, proposers=[elsewhere], budget=10, home=tmp_path)
    assert str(result).startswith("nothing was judged (nothing changes (outside scope: `nope`")
    assert result.warnings == ()


def test_what_a_run_puts_together_by_itself_is_not_counted_among_proposals(tmp_path: Path):
    lines = [f"service checkout order {n * 7919} ms {n % 977}" for n in range(60)]

    def packed(candidate: kept.Candidate, line: str) -> int:
        packer = zlib.compressobj(9, zdict=candidate.text.encode())
        return len(packer.compress(line.encode()) + packer.flush())

    def part(brief: kept.Brief) -> str:
        draw = random.Random(brief.seed)
        line = str(draw.choice(brief.train).data)
        return brief.incumbent.text + line[draw.randrange(len(line)) :]

    result = kept.optimize(
        " ", packed, lines, proposers=[part], direction="minimize", budget=20, home=tmp_path
    )
    told = re.search(r" in (\d+) proposals and (\d+) merges?, ", str(result))
    assert told is not None, str(result)
    proposed, merged = (int(n) for n in told.groups())
    by = [step.turn.proposer for step in result.state.history if not step.verdict.idle]
    assert (proposed, merged) == (by.count("part"), by.count("merge"))
    assert proposed <= 20 < len(result.state.history)


def test_no_verdict_tells_a_chance_of_zero(tmp_path: Path):
    def good(candidate: kept.Candidate, case: int) -> float:
        return case % 3 / 10 + ("good" in candidate.text)

    result = kept.optimize(
        "bad", good, range(2000), proposers=["good"], home=tmp_path, bounds=(0, 2)
    )
    told = [step.verdict.reason for step in result.state.history]
    assert any("p < 1e-15" in reason for reason in told), told
    assert not any(re.search(r"p = 0\b(?!\.)", reason) for reason in told)
