"""The page: what was asked, what came of it, and what the figures do not show."""

import json
import re
from dataclasses import replace
from pathlib import Path

from kept.core.edit import reapply
from kept.results.summary import summary
from kept.ui.report.json import as_json
from kept.ui.report.markdown import caveats, markdown, write_report
from tests.ui.report.runs import cut, make_run

SECTIONS = [
    "What was asked",
    "What came of it",
    "Trajectory",
    "What was kept",
    "What was refused",
    "The change from seed to best",
    "Failures seen",
    "Spend",
    "What these figures do not show",
    "How to go on",
]


def section(page: str, title: str) -> str:
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_has_all_its_sections_in_order(tmp_path: Path):
    page = markdown(make_run(tmp_path))
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    assert page.startswith("# score 0.1 → 0.3 on 5 holdout cases\n")
    assert "finished: every proposer has run dry" in page


def test_the_trajectory_has_each_value_beside_the_best_so_far(tmp_path: Path):
    told = section(markdown(make_run(tmp_path)), "Trajectory")
    rows = [line for line in told.splitlines() if line.startswith("| ")][1:]
    assert rows == [
        "| 0 | 0 | discard | 0.1 |",
        "| 1 | 0.2 | keep | 0.2 |",
        "| 3 | 0.3 | keep | 0.3 |",
    ]


def test_the_whole_change_is_there_when_it_took_several_steps(tmp_path: Path):
    run = make_run(tmp_path)
    assert "+good\n+good\n" in section(markdown(run), "The change from seed to best")
    run.close()
    once = markdown(make_run(tmp_path, ["good\ngood\n"]))
    assert "## The change from seed to best" not in once


def test_a_run_without_failures_has_no_section_for_them(tmp_path: Path):
    assert "## Failures seen" not in markdown(make_run(tmp_path, ["no\n"]))


def test_each_kept_change_is_there_with_its_verdict_and_its_diff(tmp_path: Path):
    kept = section(markdown(make_run(tmp_path)), "What was kept")
    assert kept.count("### Step ") == 2
    assert "Kept: strictly better: `score` 0.1 → 0.2." in kept
    assert "+good\n" in kept


def test_a_change_that_holds_fences_does_not_break_the_page(tmp_path: Path):
    kept = section(markdown(make_run(tmp_path)), "What was kept")
    assert "````diff\n" in kept
    assert kept.count("````") % 2 == 0


def test_what_was_refused_is_counted_and_listed_with_its_reason(tmp_path: Path):
    refused = section(markdown(make_run(tmp_path)), "What was refused")
    assert "* 1 × discard: worse" in refused
    assert "* 1 × crash: every rollout failed" in refused
    assert "* 1 further turn proposed nothing" in refused
    assert "| 0 | variants | discard | 0 | worse: `score` 0.1 → 0 | variant 1 |" in refused


def test_a_message_cannot_break_the_table(tmp_path: Path):
    seen = section(markdown(make_run(tmp_path)), "Failures seen")
    rows = [line for line in seen.splitlines() if line.startswith("| 5")]
    assert len(rows) == 1
    assert "RuntimeError: it fell \\| over badly" in rows[0]


def test_the_page_says_what_its_figures_do_not_show(tmp_path: Path):
    caveats = section(markdown(make_run(tmp_path)), "What these figures do not show")
    assert "one evaluation a side" in caveats
    assert "among 3 candidates, so it is optimistic" in caveats
    assert "The test split (2 cases) was not read" in caveats


def test_a_run_without_cases_says_so(tmp_path: Path):
    page = markdown(make_run(tmp_path, cases=0))
    assert "nothing here says that the gain carries over" in page


def test_a_run_from_python_names_the_call_that_goes_on(tmp_path: Path):
    killed = cut(make_run(tmp_path), before_step=3)
    page = markdown(killed)
    assert f'kept.optimize(..., resume="{killed.id}")' in page
    assert "Without a verdict when this was written: 1 step" in page


def test_the_page_of_a_run_that_closed_no_step_can_be_made(tmp_path: Path):
    page = markdown(cut(make_run(tmp_path), before_step=0))
    assert page.startswith("# nothing was judged yet\n")


def test_the_document_is_json_and_tells_the_same(tmp_path: Path):
    told = json.loads(json.dumps(as_json(make_run(tmp_path))))
    assert told["best"]["value"] == told["closed"][3]["value"]
    assert [step["diff"] is not None for step in told["closed"]] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert told["failures"][0]["times"] == 5
    assert told["asked"]["cases"] == {"train": 3, "holdout": 5, "test": 2}
    assert len(told["caveats"]) == 3


def test_a_report_is_written_whole_over_an_older_one(tmp_path: Path):
    run = make_run(tmp_path)
    (run.folder / "report.md").write_text("old")
    text = write_report(run)
    assert (run.folder / "report.md").read_text() == text
    assert not list(run.folder.glob(".report.md*"))


def test_making_a_report_twice_gives_the_same(tmp_path: Path):
    run = make_run(tmp_path)
    assert write_report(run) == write_report(run)


def test_a_candidate_that_was_never_stored_is_made_again_from_its_edits(tmp_path: Path):
    run = make_run(tmp_path)
    closed = run.closed(1)
    assert closed.candidate is not None
    again = reapply(run.candidate(closed.incumbent), closed.reports)
    assert again == run.candidate(closed.candidate)


def test_what_nothing_enforced_is_a_caveat(tmp_path: Path):
    run = make_run(tmp_path)
    told = replace(summary(run), not_enforced=("network", "number of processes"))
    assert (
        "Not enforced on the machine of this run: network; number of processes. A candidate that "
        "cheats there would not have been stopped."
    ) in caveats(told)
    told = replace(told, not_enforced=("sandbox", "network"))
    assert any(
        words.startswith(
            "Commands were not sandboxed. Not enforced on the machine of this run: net"
        )
        for words in caveats(told)
    )
    run.close()


def test_a_figure_from_the_sealed_test_is_told_as_one(tmp_path: Path):
    told = replace(summary(make_run(tmp_path)), claim="on 2 cases that nothing was tuned on: +0.1")
    lines = caveats(told)
    assert not any("was not read" in line or "optimistic" in line for line in lines)
    assert any("The claim is from 2 cases, read once" in line for line in lines)
