"""What is wrong with a run is found without a model, and told in 10 to 40 lines."""

from pathlib import Path

import pytest

from kept.orchestrator.refine.attempt import Findings, findings_of
from kept.orchestrator.refine.proposer import brief_text
from kept.orchestrator.run_folder.read import Refusal, SeedDefect, read_run
from tests.orchestrator.run_folder.made import perfect_run, put, real_run, synthetic_run


def test_a_run_with_all_kinds_of_findings_has_them_all(tmp_path: Path):
    found = findings_of(read_run(synthetic_run(tmp_path)))
    assert [one.summary for one in found.defects] == ["too short", "no sources"]
    assert [one.gate for one in found.refusals] == ["eval", "critique", "placeholder"]
    assert found.gaps == {"a": 0.25, "b": 0.1, "d": 0.25}
    assert not found.empty


def test_a_real_run_has_its_defects_once_and_its_last_three_refusals(tmp_path: Path):
    found = findings_of(read_run(real_run(tmp_path)))
    assert [(one.summary, one.severity) for one in found.defects] == [
        ("no totals", "critical"),
        ("no dates", "warning"),
        ("no totals", "info"),
    ]
    assert [one.gate for one in found.refusals] == ["l0", "critique", "eval"]
    assert found.gaps == {"has_result": 0.25}


def test_a_perfect_run_has_nothing_to_refine(tmp_path: Path):
    assert findings_of(read_run(perfect_run(tmp_path))).empty


def test_a_run_without_any_of_the_files_has_nothing_to_refine(tmp_path: Path):
    put(tmp_path / "run_completion.json", {"run_id": "r", "status": "complete"})
    assert findings_of(read_run(tmp_path)).empty


@pytest.mark.parametrize(
    "some",
    [
        {"defects": (SeedDefect("x", "info"),)},
        {"refusals": (Refusal("l0", "x"),)},
        {"gaps": {"a": 0.1}},
    ],
)
def test_any_kind_of_finding_is_something_to_refine(some: dict[str, object]):
    assert not Findings(run_id="r", **some).empty  # type: ignore[arg-type]


def test_two_defects_are_the_same_by_120_characters_and_their_severity(tmp_path: Path):
    long = "x" * 120
    rows = [
        {"summary": f"{long} one", "severity": "high"},
        {"summary": f"{long} two", "severity": "high"},
        {"summary": f"{long} two", "severity": "low"},
        {"summary": "  ", "severity": "low"},
    ]
    synthetic_run(tmp_path, critique={"defects": rows})
    found = findings_of(read_run(tmp_path)).defects
    assert [(one.summary[-3:], one.severity) for one in found] == [("one", "high"), ("two", "low")]


def test_the_document_has_the_shape_of_its_source(tmp_path: Path):
    told = findings_of(read_run(synthetic_run(tmp_path))).document()
    assert list(told) == [
        *("prior_run_id", "prior_loss_total", "prior_raw_signals"),
        *("defects", "rejected_gates", "eval_deltas"),
    ]
    assert told["defects"][0] == {"summary": "too short", "severity": "high", "evidence": ""}
    assert told["rejected_gates"][0]["gate"] == "eval"


def test_the_brief_names_what_there_is_and_leaves_out_what_there_is_not():
    whole = brief_text(
        Findings(
            run_id="r",
            loss=0.355,
            defects=(
                SeedDefect("no dates", "warning"),
                SeedDefect("no totals", "critical", "r.md"),
            ),
            refusals=(Refusal("l0", "TODO"),),
            gaps={"a": 0.25},
        )
    )
    for words in ("loss: 0.355", "[critical] no totals (r.md)", "l0: TODO", "a: +0.25 needed"):
        assert words in whole
    assert whole.index("no totals") < whole.index("no dates")
    assert "`input/`" in whole
    alone = brief_text(Findings(run_id="r", gaps={"a": 0.25}))
    for words in ("Defects", "refused", "Prior loss", "It broke"):
        assert words not in alone


@pytest.mark.parametrize("many", [0, 1, 5, 60])
def test_the_brief_has_10_to_40_lines(many: int):
    found = Findings(
        run_id="r",
        loss=0.5,
        signals={"eval_score": 0.1, "critique_score": 0.2, "critique_defect_count": float(many)},
        defects=tuple(SeedDefect(f"defect {n}\nin lines", "high") for n in range(many)),
        refusals=tuple(Refusal("l0", f"{n}") for n in range(3)),
        gaps={f"m{n}": 0.1 for n in range(many + 1)},
    )
    lines = brief_text(found, [f"broke {n}" for n in range(many)]).splitlines()
    assert 10 <= len(lines) <= 40
    if many == 60:
        assert any("more" in line for line in lines)
    least = brief_text(Findings(run_id="r", gaps={"a": 0.1})).splitlines()
    assert 10 <= len(least) <= 40


def test_the_brief_is_the_same_each_time(tmp_path: Path):
    run = read_run(synthetic_run(tmp_path))
    assert brief_text(findings_of(run)) == brief_text(findings_of(run))


def test_the_brief_says_what_a_worse_attempt_broke():
    told = brief_text(Findings(run_id="r", gaps={"a": 0.1}), ["[critical] the table is gone"])
    assert "It broke:\n  - [critical] the table is gone" in told
