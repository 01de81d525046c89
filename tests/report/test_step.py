"""All there is of one step."""

from pathlib import Path

from kept.report.step import step_detail, step_json
from tests.report.runs import cut, make_run


def test_a_closed_step_has_its_edits_its_change_and_its_rollouts(tmp_path: Path):
    detail = step_detail(make_run(tmp_path), 1)
    assert detail.row is not None
    assert detail.row.outcome == "keep"
    assert detail.reply == "variant 2"
    assert [(edit.words, edit.fate) for edit in detail.edits] == [("write text", "applied")]
    assert detail.diff.startswith("--- a/text")
    assert {rollout.side for rollout in detail.rollouts} == {"challenger"}
    assert len(detail.rollouts) == 5


def test_an_open_step_shows_what_there_is_so_far(tmp_path: Path):
    detail = step_detail(cut(make_run(tmp_path), before_step=3), 3)
    assert detail.row is None
    assert detail.reply == "variant 4"
    assert [edit.fate for edit in detail.edits] == [""]
    assert len(detail.rollouts) == 5
    assert step_json(detail)["verdict"] is None


def test_a_step_that_proposed_nothing_says_why(tmp_path: Path):
    detail = step_detail(make_run(tmp_path), 4)
    assert detail.reply == "nothing: all 4 variants were tried"
    assert (detail.edits, detail.diff, detail.rollouts) == ((), "", ())
