"""All there is of one step."""

from pathlib import Path

from kept.core.event import RECORDS
from kept.results.steps import step_detail
from kept.ui.report.step import step_json
from tests.ui.report.runs import cut, make_run


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
    assert detail.reply == "nothing: all 4 variants were proposed"
    assert (detail.edits, detail.diff, detail.rollouts) == ((), "", ())


def test_a_step_is_told_by_the_stages_of_the_seed(tmp_path: Path):
    run = make_run(tmp_path)
    stages = {stage.name: stage for stage in step_detail(run, 1).stages}
    assert list(stages) == [
        "load_task",
        "snapshot_baseline",
        "mutate_artifacts",
        "run_candidate",
        "score_candidate",
        "validate_constraints",
        "decide",
        "log_iteration",
    ]
    assert stages["snapshot_baseline"].what == f"incumbent {run.state.seed}"
    assert stages["mutate_artifacts"].what.startswith("1 of 1 edits applied: candidate ")
    assert stages["run_candidate"].what == "rollouts 5"
    assert stages["score_candidate"].what == "score 0.2"
    assert stages["decide"].what.startswith("keep: strictly better")
    times = [stage.t for stage in stages.values()]
    assert None not in times, "every stage that was reached has its time"
    assert times == sorted(times, key=lambda t: t or 0.0)
    ran, scored = stages["run_candidate"].t, stages["score_candidate"].t
    opened, closed = stages["mutate_artifacts"].t, stages["log_iteration"].t
    assert opened and ran and scored and closed and opened <= ran < scored <= closed
    run.close()


def test_what_was_never_run_has_stages_that_were_not_reached(tmp_path: Path):
    run = make_run(tmp_path, ["good\n"])
    stages = {stage.name: stage.what for stage in step_detail(run, 0).stages}
    assert stages["run_candidate"] == stages["validate_constraints"] == "not reached"
    assert stages["decide"].startswith("skip: nothing changes")
    run.close()


def test_every_stage_has_its_records_in_the_journal(tmp_path: Path):
    run = make_run(tmp_path)
    assert run.settings.stages == RECORDS
    kinds = {event.kind for event in run.events} | {"rollout", "call"}
    assert set(RECORDS.values()) <= kinds
    run.close()
