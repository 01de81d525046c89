"""A case that nobody was ever measured on is named, with what became of its rollouts."""

from pathlib import Path

import kept
from kept.results.summary import summary
from kept.store.reader import unmeasured_words
from kept.ui.cli._render import run_text
from kept.ui.report.json import as_json, headline

CASES = [f"case {n}" for n in range(20)]
FAILS = "fails here"


def score(candidate: kept.Candidate, case: str) -> float:
    if case == FAILS or (case == "case 3" and "2" not in candidate.text):
        raise LookupError("no such answer")
    return len(candidate.text) / 100


def one_case_fails(home: Path, cases: list[str] | None = None) -> kept.Result:
    holdout = tuple(kept.Case(case, case) for case in (cases or [*CASES, FAILS]))
    return kept.optimize(
        "seed",
        score,
        kept.Cases(train=(), holdout=holdout),
        proposers=["seed 1", "seed 12"],
        gate="strict",
        bounds=(0, 1),
        home=home,
    )


def test_a_case_that_fails_for_the_seed_and_every_candidate_is_told_everywhere(tmp_path: Path):
    result = one_case_fails(tmp_path)
    told = f"case `{FAILS}` failed for the seed and every candidate (3 rollouts counted as the "
    told += "worst value): LookupError: no such answer"
    assert [words[: len(told)] for words in result.warnings] == [told]
    assert f"\nwarning: {told}" in str(result)
    with kept.read_run(result.folder) as run:
        assert f"warning    {told}" in run_text(summary(run))
        assert any(words.startswith(f"C{told[1:]}") for words in as_json(run)["caveats"])
        assert [row["case"] for row in headline(summary(run))["unmeasured"]] == [FAILS]


def test_a_case_that_one_candidate_was_measured_on_is_not_told(tmp_path: Path):
    result = one_case_fails(tmp_path, CASES)
    assert result.best.text == "seed 12"
    assert result.warnings == ()


def test_a_case_that_infrastructure_always_lost_is_told_as_left_out(tmp_path: Path):
    def down(candidate: kept.Candidate, case: str) -> object:
        lost = kept.Failure("harness", "infrastructure", "no such table")
        return lost if case == FAILS else len(candidate.text)

    holdout = tuple(kept.Case(case, case) for case in [*CASES, FAILS])
    cases = kept.Cases(train=(), holdout=holdout)
    result = kept.optimize("seed", down, cases, proposers=["seed 1"], gate="strict", home=tmp_path)
    assert result.warnings == (
        f"case `{FAILS}` failed for the seed and every candidate (2 rollouts left out): "
        "no such table",
    )


def test_many_such_cases_are_counted(tmp_path: Path):
    def half(candidate: kept.Candidate, case: str) -> float:
        if int(case.split()[1]) % 2:
            raise LookupError("no such answer")
        return 0.5

    holdout = tuple(kept.Case(case, case) for case in CASES)
    cases = kept.Cases(train=(), holdout=holdout)
    result = kept.optimize("seed", half, cases, proposers=["a"], bounds=(0, 1), home=tmp_path)
    assert len(result.warnings) == 6
    assert result.warnings[-1] == "5 more cases failed likewise"
    with kept.read_run(result.folder) as run:
        assert len(unmeasured_words(summary(run).unmeasured)) == 6
