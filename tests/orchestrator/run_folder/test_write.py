"""Our runs in the folder of their source: its readers and ours find the same in it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.orchestrator.loss import run_loss
from kept.orchestrator.record import (
    AgentRun,
    BudgetSnapshot,
    CheckOutcome,
    Critique,
    Decision,
    Defect,
    Delegation,
    Evaluated,
    Iteration,
    Limits,
    Models,
    Raised,
    Rejection,
    Repair,
    Used,
)
from kept.orchestrator.refine.attempt import findings_in, findings_of
from kept.orchestrator.run_folder.read import read_loss, read_run
from kept.orchestrator.run_folder.write import Layout, run_files, write_run

ID = "2026-11-17_07-00-00_0123abcd"
FILES = {"report.md": b"# Report\n", "img/a.png": b"\x89PNG\xff\0"}
DEFECT = Defect(
    category="incomplete", location="report.md", description="no totals", severity="critical"
)


def made() -> AgentRun:
    critique = Critique(score=0.6, defects=(DEFECT,), summary="nearly")
    budget = BudgetSnapshot(
        used=Used(loops=4, workers=1, tokens=5000, tool_calls=3, wall_seconds=42.0),
        remaining=0.4,
        scarcest="loops",
        phase="moderate",
    )
    work = Delegation(
        worker_id="w1",
        subtask_id="s1",
        instructions="write",
        result={"text": "x", "confidence": 0.8},
        confidence=0.8,
        critique=critique,
    )
    refused = CheckOutcome(check="l0", passed=False, reason="TODO")
    passed = CheckOutcome(check="critique", passed=True)
    return AgentRun(
        run_id=ID,
        task="Write a report",
        models=Models(manager="m/big", worker="m/small"),
        limits=Limits(loops=12, workers=10, tokens=200_000, wall_seconds=600, depth=3),
        started=1_763_362_800.0,
        ended=1_763_362_842.0,
        iterations=(
            Iteration(number=1, decision=Decision(kind="plan"), budget=budget),
            Iteration(number=2, decision=Decision(kind="delegate"), delegations=(work,)),
            Iteration(number=3, decision=Decision(kind="complete"), checks=(refused,)),
            Iteration(number=4, decision=Decision(kind="complete"), checks=(passed,)),
        ),
        rejections=(
            Rejection(iteration=1, gate="plan", reason="no tools", completion=False),
            Rejection(iteration=3, gate="l0", reason="TODO", completion=True),
        ),
        evaluation=Evaluated(
            score=0.8, per_metric={"confidence": 0.5}, thresholds={"confidence": 0.6}
        ),
        critique=critique,
        budget=budget,
        status="partial",
        reason="max_loops",
        parent_run_id="seed_1",
    )


@pytest.mark.parametrize("layout", [Layout(), Layout(f"workspace/runs/{ID}")])
def test_what_is_written_is_read_back(tmp_path: Path, layout: Layout):
    run = made()
    write_run(tmp_path, run, FILES, layout)
    folder = tmp_path / layout.run
    read = read_run(folder)
    assert (read.run_id, read.task, read.status) == (ID, "Write a report", "partial")
    assert (read.manager, read.worker) == ("m/big", "m/small")
    assert read.parent_run_id == "seed_1"
    assert read.caps.loops == 12
    assert read.caps.depth == 3
    assert read.observed_seconds == 42.0
    assert read.delivered is not None
    assert read.delivered.read() == FILES
    assert read_loss(folder).total == pytest.approx(run_loss(run).total)
    assert read_loss(folder).total == pytest.approx(0.355)


def test_half_a_character_that_a_model_wrote_does_not_stop_the_writing(tmp_path: Path):
    run = replace(made(), reason="half a \ud83d", task="do \udcff it")
    write_run(tmp_path, run, {**FILES, "a\ud800.md": b"x"}, Layout())
    told = next(tmp_path.rglob("run_completion.json")).read_bytes()
    assert "half a \ufffd".encode() in told and b"do \xff it" in told
    assert not list(tmp_path.rglob("a*.md"))


def test_a_run_whose_last_work_no_critic_judged_has_one_loss(tmp_path: Path):
    """Critiques of earlier turns stand in its metrics, and are not those of what it left."""
    run = replace(made(), critique=None)
    write_run(tmp_path, run, FILES, Layout())
    assert read_loss(tmp_path).signals.critique_score is None
    assert read_loss(tmp_path).total == pytest.approx(run_loss(run).total)
    told = json.loads((tmp_path / "run_completion.json").read_text())
    assert told["loss_total"] == pytest.approx(read_loss(tmp_path).total)


def test_findings_are_the_same_from_the_record_and_from_the_folder(tmp_path: Path):
    run = made()
    write_run(tmp_path, run, FILES, Layout())
    ours, read = findings_in(run, 0.355), findings_of(read_run(tmp_path))
    assert read.defects == ours.defects
    assert [one.gate for one in read.refusals] == [one.gate for one in ours.refusals] == ["l0"]
    assert read.gaps == ours.gaps == {"confidence": 0.1}


def test_a_refusal_stands_in_each_file_once():
    files = run_files(made(), FILES, Layout())
    rows = [json.loads(line) for line in files["metrics.jsonl"].splitlines()]
    assert sum(row.get("verdict") == "rejected" for row in rows) == 1
    events = [json.loads(row) for row in files[f"logs/{ID}/events.jsonl"].splitlines()]
    assert sum(bool(row["fields"].get("triggered")) for row in events) == 1


def _logged(run: AgentRun, category: str) -> list[dict[str, Any]]:
    files = run_files(run, FILES, Layout())
    rows = [json.loads(row) for row in files[f"logs/{ID}/events.jsonl"].splitlines()]
    return [row for row in rows if row["category"] == category]


def test_what_else_was_refused_is_logged_and_no_gate_of_a_completion():
    (row,) = _logged(made(), "delegation")
    assert row["msg"] == "refused (plan): no tools" and row["level"] == "WARNING"
    assert "triggered" not in row["fields"]
    turn = replace(made().iterations[0], decision=None, garbage=("no JSON", "no `decision`"))
    rows = _logged(replace(made(), iterations=(turn,)), "manager")
    assert [row["msg"] for row in rows] == [
        "no decision: no JSON",
        "no decision: no `decision`",
    ]


def test_r35_the_event_of_a_repair_names_where_the_one_before_it_lies():
    first = Repair(iteration=4, subtask_id="s1", worker_id="repair-1", attempt=1, reason="l0: a")
    second = replace(first, worker_id="repair-2", attempt=2, similarity=0.99, fixpoint=True)
    work = replace(made().iterations[1].delegations[0], worker_id="repair-1", repair_of="w1")
    turns = (
        Iteration(number=4, decision=None, delegations=(work,)),
        Iteration(number=6, decision=None, delegations=(replace(work, worker_id="repair-2"),)),
    )
    run = replace(made(), iterations=turns, repairs=(first, replace(second, iteration=6)))
    fields = [row["fields"] for row in _logged(run, "repair")]
    assert [one["sim"] for one in fields] == [None, 0.99]
    assert fields[0]["previous_output_path"] is None
    assert fields[1]["previous_output_path"] in run_files(run, FILES, Layout())


def test_metrics_tell_the_turn_and_the_limits_that_they_are_of():
    measured = CheckOutcome(check="eval", passed=False, reason="too little")
    one, two, three, four = made().iterations
    budget = one.budget
    turns = (one, two, replace(three, checks=(measured,)), replace(four, checks=(), budget=budget))
    more = Raised(after=3, before=replace(made().limits, loops=3), limits=made().limits)
    run = replace(made(), iterations=turns, raised=(more,))
    rows = run_files(run, FILES, Layout())["metrics.jsonl"].splitlines()
    by_kind = [(row["kind"], row) for row in map(json.loads, rows)]
    assert [row["iteration"] for kind, row in by_kind if kind == "metric.eval"] == [3]
    loops = [row["loops"]["max"] for kind, row in by_kind if kind == "metric.budget"]
    assert loops == [3, 12]


def test_who_judged_is_named_where_models_are():
    models = Models(manager="m/big", worker="m/small", critic="m/strict")
    files = run_files(replace(made(), models=models), FILES, Layout())
    for name in ("run_completion.json", "run_manifest.json"):
        assert json.loads(files[name])["models"]["critic"] == "m/strict"


def test_final_lies_where_the_source_writes_it_and_where_it_looks_for_it():
    files = run_files(made(), FILES, Layout(f"workspace/runs/{ID}"))
    for place in (f"workspace/runs/{ID}/FINAL", "output/FINAL", f"output/{ID}"):
        assert files[f"{place}/img/a.png"] == FILES["img/a.png"]
    failed = run_files(replace(made(), status="failed"), FILES, Layout())
    assert "FINAL/report.md" not in failed
    assert f"output/{ID}/report.md" in failed


def test_every_iteration_has_its_files():
    files = run_files(made(), FILES, Layout())
    names = {path for path in files if path.startswith("iterations/")}
    assert names == {
        "iterations/001/manager_decision.json",
        "iterations/001/budget_snapshot.json",
        "iterations/002/manager_decision.json",
        "iterations/002/critique.json",
        "iterations/002/delegations/w1/envelope.json",
        "iterations/002/delegations/w1/result.json",
        "iterations/002/delegations/w1/critique.json",
        "iterations/003/manager_decision.json",
        "iterations/003/validation.json",
        "iterations/004/manager_decision.json",
        "iterations/004/validation.json",
    }


def test_the_keys_that_the_source_writes_are_all_there():
    told = json.loads(run_files(made(), FILES, Layout())["run_completion.json"])
    source = "run_id status reason total_iterations final_budget completed parent_run_id tags task"
    assert {*source.split(), "induced_tools"} <= set(told)
    forgotten = {"evaluation", "critique", "models", "config_used", "loss_total"}
    assert forgotten <= set(told)
    axes = {
        "loops",
        "workers",
        "tokens",
        "tool_calls",
        "wall_time",
        "budget_remaining_pct",
        "phase",
    }
    assert axes <= set(told["final_budget"])


def test_a_worker_cannot_have_a_view_write_outside():
    one = made()
    work = replace(one.iterations[1].delegations[0], worker_id="../../w")
    one = replace(one, iterations=(replace(one.iterations[1], delegations=(work,)),))
    files = run_files(one, {"../out.md": b"x", "/abs.md": b"x"}, Layout())
    assert not [path for path in files if "out.md" in path or "abs.md" in path]
    assert not [path for path in files if ".." in path]
