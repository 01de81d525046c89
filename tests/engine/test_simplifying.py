"""Whole runs in which something is left out: what is kept, proven, and held against."""

from pathlib import Path

import pytest

import kept
from kept.gates.race import Race
from kept.gates.simplify import Simplify
from kept.results.summary import summary
from kept.ui.report.race import questions

NEEDED = ("alpha", "beta")
LINES = "".join(f"{word}\n" for word in ("alpha", "idle one", "beta", "idle two", "idle three"))


def evaluate(candidate: kept.Candidate, case: int) -> float:
    """Half of the cases need the one word, half the other; the rest of the text does nothing."""
    return float(NEEDED[case % 2] in candidate.text)


def leave_out(brief: kept.Brief) -> kept.Proposal | None:
    """One line less than the incumbent has, each line once."""
    lines = brief.incumbent.text.splitlines(keepends=True)
    tried = {step.candidate for step in brief.history}
    for at in range(len(lines)):
        text = "".join(lines[:at] + lines[at + 1 :])
        if kept.Candidate({"text": text}).id not in tried:
            return kept.Proposal((kept.Write("text", text),), simplifies=True)
    return None


def run(path: Path, cases: int, **more: object) -> kept.Result:
    return kept.optimize(
        LINES,
        evaluate,
        list(range(cases)),
        proposers=[leave_out],
        gate="race",
        bounds=(0, 1),
        budget=16,
        width=1,
        home=path,
        **more,  # pyright: ignore[reportArgumentType] # by name
    )


def test_what_does_nothing_is_left_out_and_what_is_needed_stays(tmp_path: Path):
    result = run(tmp_path, 300)
    state = result.state
    kept_steps = [step for step in state.history if step.verdict.outcome == "keep"]
    assert len(kept_steps) == len(state.ledger.cuts_kept) == 3
    assert all("not worse than by 0.05" in step.verdict.reason for step in kept_steps)
    assert result.best.text == "alpha\nbeta\n"
    proof = next(step for step in state.history if step.verdict.code == "promoted")
    assert proof.verdict.reason.startswith("proven: simpler, and not worse than by 0.05")
    assert state.pool == ()
    assert state.ledger.keeps == ()


def test_with_few_cases_it_leads_and_the_verdict_says_how_many_would_do(tmp_path: Path):
    result = run(tmp_path, 40)
    assert result.state.incumbent != result.state.best == result.state.seed
    proof = next(step for step in result.state.history if step.verdict.code == "not promoted")
    assert "cases would do" in proof.verdict.reason


def test_what_was_kept_as_better_is_not_left_out_again(tmp_path: Path):
    """Of what leads but is not proven, nothing is given up, though the best does without it."""

    def better(candidate: kept.Candidate, case: int) -> float:
        return float(any(f"<{n}>" in candidate.text for n in range(case % 3, 3)))

    def propose(brief: kept.Brief) -> kept.Proposal:
        if brief.step == 0:
            return kept.Proposal((kept.Append("text", "<2>\n"),))
        shorter = brief.incumbent.text.replace("<2>\n", "") + f"{brief.step}\n"
        return kept.Proposal((kept.Write("text", shorter),), simplifies=True)

    cases = kept.Cases(holdout=tuple(kept.Case(f"h{n}", n) for n in range(30)))
    result = kept.optimize(
        "seed\n",
        better,
        cases,
        proposers=[propose],
        gate=Race(simplify=Simplify(margin=0.2)),
        bounds=(0, 1),
        budget=4,
        width=1,
        home=tmp_path,
    )
    first, *others = result.state.history[:4]
    assert first.verdict.outcome == "keep"
    assert {step.verdict.outcome for step in others} == {"discard"}
    assert all("worse by more than 0.2" in step.verdict.reason for step in others)


def test_the_report_tells_of_simplifications(tmp_path: Path):
    result = run(tmp_path, 60)
    with kept.read_run(result.folder) as past:
        told = {what: heard for what, _, heard in questions(summary(past))}
    tested, kept_ones = result.state.ledger.cuts, len(result.state.ledger.cuts_kept)
    assert told["simpler, and no worse?"] == f"{tested} simpler texts: {kept_ones} kept"


@pytest.mark.parametrize("width", [1, 2])
def test_what_is_not_shorter_than_the_incumbent_is_not_kept_as_simpler(width: int, tmp_path: Path):
    """Also where it was when it was proposed, and another step was kept since."""

    def alike(candidate: kept.Candidate) -> float:
        return 1.0

    def propose(brief: kept.Brief) -> kept.Proposal | None:
        texts = ("a" * 60, "b" * 80)
        if brief.step >= len(texts):
            return None
        return kept.Proposal((kept.Write("text", texts[brief.step]),), simplifies=True)

    result = kept.optimize(
        "c" * 100,
        alike,
        kept.Cases(holdout=tuple(kept.Case(f"h{n}", n) for n in range(40))),
        proposers=[propose],
        gate="race",
        bounds=(0, 1),
        budget=3,
        width=width,
        home=tmp_path,
    )
    first, second = result.state.history[:2]
    assert first.verdict.outcome == "keep"
    assert second.verdict.outcome in ("skip", "discard")
    told = "not simpler: the texts would have 80 characters, and have 60 now"
    assert second.verdict.reason == told
