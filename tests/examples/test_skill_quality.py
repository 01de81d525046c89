"""A skill document against a rubric: decoys that outscore the honest drafts are refused by name."""

import json
from pathlib import Path

import pytest

from tests.examples.by_hand import Ran, assert_report_agrees, run_example

pytestmark = pytest.mark.slow

METRICS = {
    "primary_score",
    "clarity",
    "coverage",
    "constraint_obedience",
    "violation_count",
    "length_tokens",
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_example("skill-quality", tmp_path_factory.mktemp("skill"))


def test_only_honest_drafts_are_kept(ran: Ran):
    assert ran.verdicts() == [
        ("1-list.md", "keep"),
        ("2-longer.md", "discard"),
        ("3-stuffed.md", "discard"),
        ("4-whole.md", "keep"),
        ("5-no-output.md", "discard"),
        ("6-cannot-be-loaded.md", "crash"),
    ]


def test_the_decoys_outscore_the_best_and_are_refused_by_a_named_constraint(
    ran: Ran, tmp_path: Path
):
    longer, stuffed = ran.closed[1], ran.closed[2]
    assert longer["reason"].startswith("constraint broken: length_tokens <= 220: it is ")
    assert stuffed["reason"].startswith("constraint broken: violation_count <= 0: it is ")
    for decoy in (longer, stuffed):
        assert decoy["code"] == "constraint"
        assert ran.by_hand(decoy["candidate"], tmp_path)["primary_score"] > 0.9
        assert decoy["value"] > ran.told["best"]["value"]


def test_the_report_agrees_with_a_score_by_hand(ran: Ran, tmp_path: Path):
    assert_report_agrees(ran, tmp_path)


def test_every_line_of_the_results_has_the_metrics_of_the_seed(ran: Ran):
    lines = (ran.folder / "work" / "results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    measured = [row for row in rows if row["decision"] in ("keep", "discard")]
    assert len(measured) == 5
    assert all(set(row["metrics"]) == METRICS for row in measured)


def test_the_report_says_what_was_refused_and_why(ran: Ran):
    page = (ran.run.folder / "report.md").read_text()
    assert "constraint broken: violation_count <= 0" in page
    assert "SKILL.md has no front matter" in page
