"""Finished runs are read in every shape they have."""

import shutil
from pathlib import Path

import pytest

from kept.core.schedules.refine import Caps
from kept.errors import SetupError
from kept.orchestrator.run_folder.read import Refusal, read_loss, read_run
from tests.orchestrator.run_folder.made import RUN, put, put_rows, real_run, refused, synthetic_run


def test_a_real_run_is_read_whole(tmp_path: Path):
    run = read_run(real_run(tmp_path))
    assert (run.run_id, run.status) == (RUN, "partial")
    assert run.task == "Write a report to report.md"
    # by its manifest, where its completion names none
    assert (run.manager, run.worker) == ("m/big", "m/small")
    assert run.caps == Caps(12, 10, 200_000, 1500, 600, 3)
    assert run.observed_seconds == 42.0
    assert run.delivered is not None
    assert run.delivered.read() == {"report.md": b"# Report\n"}
    # of its last evaluation, against the thresholds of its workspace
    assert run.per_metric == {"has_result": 0.5}
    assert run.thresholds == {"has_result": 0.75}


def test_only_completion_gates_are_rejections_and_each_counts_once(tmp_path: Path):
    run = read_run(real_run(tmp_path))
    assert run.loss.signals.rejections == 2  # l0 and critique
    assert [one.gate for one in run.refusals] == ["placeholder", "l0", "critique", "eval"]
    assert run.refusals[-1] == Refusal("eval", "0.5", "t5")


def test_two_completions_refused_by_the_same_gate_are_two_rejections(tmp_path: Path):
    put_rows(tmp_path / "metrics.jsonl", refused(3, "l0"), refused(3, "l0"), refused(4, "l0"))
    assert read_loss(tmp_path).signals.rejections == 2


def test_a_made_up_run_is_read_whole(tmp_path: Path):
    run = read_run(synthetic_run(tmp_path))
    assert run.caps == Caps(20, 40, 1_000_000, 600, 3600, 4)
    assert run.observed_seconds == 1800
    assert (run.manager, run.worker) == ("x:1", "y:2")
    assert [(one.summary, one.severity) for one in run.defects] == [
        ("too short", "high"),
        ("no sources", "medium"),
    ]
    assert [one.gate for one in run.refusals] == ["l0", "eval", "critique", "placeholder"]


def test_defects_of_iterations_come_before_those_of_the_whole_run(tmp_path: Path):
    synthetic_run(tmp_path)
    told = {"critiques": [{"defects": [{"description": "found early", "severity": "info"}]}]}
    put(tmp_path / "iterations" / "001" / "critique.json", told)
    assert [one.summary for one in read_run(tmp_path).defects] == ["found early"]


@pytest.mark.parametrize("place", ["run", "final", "own", "loose"])
def test_the_deliverable_is_found_in_each_of_four_places(tmp_path: Path, place: str):
    folder = real_run(tmp_path, final=False)
    output = tmp_path / "output"
    where = {
        "run": folder / "FINAL",
        "final": output / "FINAL",
        "own": output / RUN,
        "loose": output,
    }
    (where[place] / "sub").mkdir(parents=True)
    (where[place] / "sub" / "a.bin").write_bytes(b"\xff\0")
    delivered = read_run(folder).delivered
    assert delivered is not None
    assert delivered.read() == {"sub/a.bin": b"\xff\0"}


def test_an_empty_folder_is_no_deliverable(tmp_path: Path):
    folder = real_run(tmp_path, final=False)
    (folder / "FINAL").mkdir()
    assert read_run(folder).delivered is None
    (tmp_path / "output" / "loose.md").write_text("x")
    delivered = read_run(folder).delivered
    assert delivered is not None
    assert list(delivered.files) == ["loose.md"]


def test_what_other_runs_left_in_a_shared_output_folder_is_not_this_runs(tmp_path: Path):
    folder = real_run(tmp_path, final=False)
    other = tmp_path / "output" / "2026-04-19_17-00-00_0123abcd"
    other.mkdir()
    (other / "theirs.md").write_text("x")
    assert read_run(folder).delivered is None


def test_links_are_no_deliverables(tmp_path: Path):
    folder = real_run(tmp_path, final=False)
    (folder / "FINAL").mkdir()
    (folder / "FINAL" / "passwd").symlink_to("/etc/passwd")
    (folder / "FINAL" / "etc").symlink_to("/etc")
    assert read_run(folder).delivered is None


def test_a_folder_without_a_finished_run_says_so(tmp_path: Path):
    with pytest.raises(SetupError, match="is missing"):
        read_run(tmp_path)
    (tmp_path / "run_completion.json").write_text("{")
    with pytest.raises(SetupError, match="cannot be read as JSON"):
        read_run(tmp_path)


def test_a_run_that_lacks_everything_else_is_read_all_the_same(tmp_path: Path):
    put(tmp_path / "run_completion.json", {"status": "complete"})
    run = read_run(tmp_path)
    assert run.run_id == tmp_path.name
    assert run.defects == run.refusals == ()
    assert run.delivered is None


def test_events_beside_a_run_are_found_wherever_its_workspace_lies(tmp_path: Path):
    folder = real_run(tmp_path / "deep" / "down")
    shutil.move(tmp_path / "deep" / "down" / "logs", tmp_path / "deep" / "logs")
    assert len(read_run(folder).refusals) == 4


def put_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_run_of_ours_that_left_nothing_has_not_left_what_lies_in_the_project(tmp_path: Path):
    folder = tmp_path / ".kept" / "runs" / "r1"
    shutil.copytree(real_run(tmp_path / "other", final=False), folder)
    put_text(folder / "journal.jsonl", "")
    for place in ("output/mine.md", "output/FINAL/mine.md", ".kept/output/mine.md"):
        put_text(tmp_path / place, "somebody else's")
    assert read_run(folder).delivered is None
    put_text(folder / "output" / RUN / "report.md", "its own")
    delivered = read_run(folder).delivered
    assert delivered is not None and set(delivered.read()) == {"report.md"}


def test_what_lies_above_the_workspace_of_a_run_is_not_its_deliverable(tmp_path: Path):
    folder = real_run(tmp_path / "a" / "b", final=False)
    for place in ("a/output/mine.md", "output/FINAL/mine.md"):
        put_text(tmp_path / place, "somebody else's")
    assert read_run(folder).delivered is None


def test_what_runs_of_a_workspace_share_is_nobodys(tmp_path: Path):
    folder = real_run(tmp_path)
    put_text(tmp_path / "output" / "loose.md", "whose?")
    assert read_run(folder).delivered is not None
    other = folder.with_name("2026-04-19_17-00-00_aaaaaaaa")
    shutil.copytree(folder, other)
    assert read_run(folder).delivered is None
    put_text(tmp_path / "output" / RUN / "report.md", "its own")
    delivered = read_run(folder).delivered
    assert delivered is not None and set(delivered.read()) == {"report.md"}
