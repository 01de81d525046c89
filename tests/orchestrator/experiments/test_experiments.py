"""Experiments and their tasks: layout, rule R37, and the best run of a task."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kept.errors import SetupError
from kept.orchestrator.experiments import (
    Entry,
    Experiment,
    TaskInput,
    all_experiments,
    carried,
    create_continuation,
    create_experiment,
    create_task,
    delete_experiment,
    offer,
    offer_best,
    read_experiment,
    read_task,
    set_best,
    set_best_by_loss,
    take_back,
)
from tests.orchestrator.run_folder.made import synthetic_run

AT = "2026-11-17T08:00:00Z"


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return create_experiment(tmp_path / "experiments", "Sales", "know the sales", AT)


def finished(folder: Path, score: float, text: str = "text\n", status: str = "complete") -> Path:
    synthetic_run(folder, run_id=folder.name, status=status, eval={"score": score})
    (folder / "FINAL" / "out.md").write_text(text)
    return folder


def told(path: Path) -> dict[str, object]:
    return json.loads((path / "manifest.json").read_text())


def test_an_experiment_is_laid_out_as_the_source_draws_it(experiment: Experiment):
    assert re.fullmatch(r"exp_[0-9a-f]{8}", experiment.experiment_id)
    for part in ("shared/memory", "shared/dynamic_tools", "shared/skills", "tasks"):
        assert (experiment.folder / part).is_dir()
    assert read_experiment(experiment.folder) == experiment


def test_tasks_are_numbered_and_named_by_what_they_are_about(experiment: Experiment):
    one = create_task(experiment, "Write a Report, please!", AT)
    two = create_task(experiment, "x" * 200, AT)
    assert one.task_id == "001-write-a-report-please"
    assert two.task_id == f"002-{'x' * 50}"
    assert read_task(one.folder) == one
    assert read_experiment(experiment.folder).task_order == (one.task_id, two.task_id)
    assert re.fullmatch(r"\d{3}-[a-z0-9-]+", create_task(experiment, "Ümläute?", AT).task_id)


def test_experiments_are_listed_and_deleted(experiment: Experiment, tmp_path: Path):
    other = create_experiment(tmp_path / "experiments", "Sales", "know the sales", AT)
    assert other.experiment_id != experiment.experiment_id
    assert len(all_experiments(tmp_path / "experiments")) == 2
    delete_experiment(other)
    assert all_experiments(tmp_path / "experiments") == [experiment]


def test_r37_a_continuation_without_inputs_is_refused(experiment: Experiment):
    with pytest.raises(SetupError, match="needs something to go on from"):
        create_continuation(experiment, "shorter", (), AT)


def test_r37_what_a_continuation_goes_on_from_is_there_and_finished(experiment: Experiment):
    task = create_task(experiment, "Write", AT)
    experiment = read_experiment(experiment.folder)
    wanted = TaskInput(from_task=task.task_id, role="primary")
    with pytest.raises(SetupError, match="no task"):
        create_continuation(experiment, "x", [TaskInput(from_task="009", role="primary")], AT)
    with pytest.raises(SetupError, match=r"finished run to go on from\n"):
        create_continuation(experiment, "x", [wanted], AT)
    # a folder alone does not make a finished run
    (task.best).mkdir()
    (task.best / "out.md").write_text("x")
    with pytest.raises(SetupError, match=r"finished run to go on from\n"):
        create_continuation(experiment, "x", [wanted], AT)
    assert read_experiment(experiment.folder).task_order == (task.task_id,)


def test_a_continuation_carries_what_was_named_and_else_all(experiment: Experiment, tmp_path: Path):
    task = create_task(experiment, "Write", AT)
    run = finished(tmp_path / "r1", 0.5)
    (run / "FINAL" / "logo.png").write_bytes(b"\x89PNG\xff")
    set_best(task, run, AT)
    experiment = read_experiment(experiment.folder)
    named = TaskInput(from_task="001", role="primary", paths=("out.md",))
    whole = TaskInput(from_task="001", role="reference")
    follows = create_continuation(experiment, "shorter", [named, whole], AT)
    assert follows.mode == "continuation"
    document = json.loads((follows.folder / "task.json").read_text())
    assert document["user_feedback"] == "shorter"
    assert document["inputs"] == [
        {"from_task": task.task_id, "role": "primary", "paths": ["out.md"]},
        {"from_task": task.task_id, "role": "reference", "bundle": "BEST"},
    ]
    given = carried(read_experiment(experiment.folder), follows)
    assert given.primary == {"out.md": b"text\n"}
    assert set(given.references) == {f"{task.task_id}/out.md", f"{task.task_id}/logo.png"}


def test_a_primary_that_is_not_there_is_refused(experiment: Experiment, tmp_path: Path):
    task = create_task(experiment, "Write", AT)
    set_best(task, finished(tmp_path / "r1", 0.5), AT)
    wanted = TaskInput(from_task=task.task_id, role="primary", paths=("other.md",))
    with pytest.raises(SetupError, match=r"other\.md"):
        create_continuation(read_experiment(experiment.folder), "x", [wanted], AT)


def test_the_best_of_a_task_is_replaced_by_a_strictly_lower_loss_only(
    experiment: Experiment, tmp_path: Path
):
    task = create_task(experiment, "Write", AT)
    assert offer_best(task, finished(tmp_path / "r1", 0.5, "one"), AT)
    assert not offer_best(task, finished(tmp_path / "r2", 0.5, "equal"), AT)
    assert not offer_best(task, finished(tmp_path / "r3", 0.4, "worse"), AT)
    assert offer_best(task, finished(tmp_path / "r4", 0.9, "better"), AT)
    manifest = told(task.best)
    assert (manifest["winner_run_id"], manifest["reason"]) == ("r4", "auto_loss")
    parts = {"eval", "critique", "gate_reject", "budget_burn", "terminal", "total"}
    assert set(manifest["loss_breakdown"]) == parts  # type: ignore[call-overload]
    assert (task.best / "out.md").read_text() == "better"


def entry(run_id: str, loss: float, **more: Any) -> Entry:
    files = {"out.md": run_id.encode()}
    return Entry(
        run_id=run_id,
        source="/x",
        status="complete",
        loss=loss,
        parts={},
        signals={},
        files=files,
        **more,
    )


def test_the_best_of_a_task_is_replaced_only_by_what_was_measured_alike(experiment: Experiment):
    task = create_task(experiment, "Write", AT)
    assert offer(task, entry("first", 0.3), AT)
    race: dict[str, Any] = {"measure": "race:1"}
    assert not offer(task, entry("other", 0.1, **race), AT)
    # what it was read beside is what is there, whatever the loss of that by its own account
    beside: dict[str, Any] = {**race, "seed_run_id": "first", "seed_loss": 0.5}
    assert not offer(task, entry("worse", 0.5, **beside), AT)
    assert offer(task, entry("read", 0.4, **beside), AT)
    assert told(task.best)["measure"] == "race:1"
    assert not offer(task, entry("lucky", 0.1), AT)
    assert not offer(task, entry("read2", 0.4, **race), AT)
    assert offer(task, entry("read3", 0.35, **race), AT)
    assert (task.best / "out.md").read_text() == "read3"


def test_somebodys_choice_stays(experiment: Experiment, tmp_path: Path):
    task = create_task(experiment, "Write", AT)
    set_best(task, finished(tmp_path / "r1", 0.1, "chosen"), AT)
    assert not offer_best(task, finished(tmp_path / "r2", 0.9, "better"), AT)
    assert told(task.best)["reason"] == "user_override"
    assert (task.best / "out.md").read_text() == "chosen"


def test_what_a_race_put_there_moves_with_it_and_can_be_taken_back(
    experiment: Experiment, tmp_path: Path
):
    task = create_task(experiment, "Write", AT)
    seed = finished(tmp_path / "seed", 0.5)
    offer_best(task, seed, AT)
    mine: dict[str, Any] = {"measure": "race:1", "session": "s1", "seed_run_id": "seed"}
    assert offer(task, entry("one", 0.1, seed_loss=0.5, **mine), AT)
    # more readings, by which it is worth less; and then another of its own is better
    assert offer(task, entry("one", 0.2, seed_loss=0.5, **mine), AT)
    assert told(task.best)["loss"] == 0.2
    assert offer(task, entry("two", 0.15, seed_loss=0.5, **mine), AT)
    other = {**mine, "session": "s2"}
    assert not offer(task, entry("three", 0.3, seed_loss=0.5, **other), AT)
    take_back(task, "s2", "race:1", seed, AT)
    assert told(task.best)["winner_run_id"] == "two"
    take_back(task, "s1", "race:1", seed, AT)
    assert told(task.best)["winner_run_id"] == "seed"


def test_fault_8_set_best_finds_runs_where_they_are_and_takes_nothing_away_first(
    experiment: Experiment, tmp_path: Path
):
    task = create_task(experiment, "Write", AT)
    set_best(task, finished(tmp_path / "r0", 0.1, "chosen"), AT)
    with pytest.raises(SetupError, match="no finished run"):
        set_best_by_loss(task, AT)
    assert told(task.best)["winner_run_id"] == "r0"
    finished(task.folder / "seed" / "workspace" / "runs" / "r1", 0.5, "one")
    finished(task.folder / "refinements" / "s" / "iter_1" / "workspace" / "runs" / "r2", 0.9, "two")
    finished(task.folder / "seed" / "workspace" / "runs" / "r3", 0.99, "failed", "failed")
    assert set_best_by_loss(task, AT).run_id == "r2"
    assert (task.best / "out.md").read_text() == "two"


def test_a_run_that_failed_or_left_nothing_cannot_be_a_best(experiment: Experiment, tmp_path: Path):
    task = create_task(experiment, "Write", AT)
    with pytest.raises(SetupError, match="ended failed"):
        set_best(task, finished(tmp_path / "r1", 0.9, status="failed"), AT)
    bare = finished(tmp_path / "r2", 0.9)
    (bare / "FINAL" / "out.md").unlink()
    with pytest.raises(SetupError, match="no deliverable"):
        set_best(task, bare, AT)
    assert not task.best.exists()
