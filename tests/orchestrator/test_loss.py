"""The loss of a run, on the vectors of its source."""

from pathlib import Path

import pytest

from kept.orchestrator.loss import PENALTIES, Signals, Weights, loss_of, loss_words, run_loss
from kept.orchestrator.record import (
    AgentRun,
    BudgetSnapshot,
    Critique,
    Evaluated,
    Limits,
    Models,
    Rejection,
    Used,
)
from kept.orchestrator.run_folder.read import read_loss
from kept.store.overview import TERMINAL, TERMINAL_FAILED
from tests.orchestrator.run_folder.made import put, put_rows


def test_the_loss_has_the_value_of_its_source(tmp_path: Path):
    put(
        tmp_path / "run_completion.json",
        {
            "status": "partial",
            "eval": {"score": 0.8},
            "critique": {"score": 0.6},
            "final_budget": {"budget_remaining_pct": 40},
        },
    )
    put_rows(tmp_path / "metrics.jsonl", {"kind": "metric.gate", "verdict": "REJECT"})
    loss = read_loss(tmp_path)
    assert loss.total == pytest.approx(0.355)
    assert loss.parts() == pytest.approx(
        {
            "eval": 0.08,
            "critique": 0.12,
            "gate_reject": 0.075,
            "budget_burn": 0.03,
            "terminal": 0.05,
            "total": 0.355,
        }
    )


def test_a_complete_run_of_which_nothing_was_measured_has_its_loss(tmp_path: Path):
    put(
        tmp_path / "run_completion.json",
        {"status": "complete", "final_budget": {"budget_remaining_pct": 100}},
    )
    assert read_loss(tmp_path).total == pytest.approx(0.35)


def test_an_empty_folder_has_a_loss(tmp_path: Path):
    assert read_loss(tmp_path).total == pytest.approx(0.40)


@pytest.mark.parametrize(
    ("signals", "total"),
    [
        (Signals(eval_score=1, critique_score=1, status="complete"), 0.0),
        (Signals(eval_score=0, critique_score=0, status="failed"), 0.8),
        (Signals(eval_score=0, critique_score=0, status="aborted", rejections=9), 0.95),
        (Signals(eval_score=7, critique_score=-3, status="complete"), 0.3),
        (Signals(status="odd"), 0.40),
        (Signals(status="complete", rejections=1, max_rejections=0), 0.425),
        (Signals(status="complete", budget_remaining=0.0), 0.40),
    ],
)
def test_the_loss_is_defined_for_whatever_is_missing_or_out_of_range(
    signals: Signals, total: float
):
    assert loss_of(signals).total == pytest.approx(total)


def test_measures_are_taken_from_the_completion_first_then_from_the_rows(tmp_path: Path):
    put_rows(
        tmp_path / "metrics.jsonl",
        {"kind": "metric.eval", "score": 0.4},
        {"kind": "metric.eval", "score": 0.6},
        {"kind": "metric.critique", "score": 0.9},
        {"kind": "metric.critique", "score": "high"},
    )
    with (tmp_path / "metrics.jsonl").open("a") as rows:
        rows.write("{broken\n")
    signals = read_loss(tmp_path).signals
    assert (signals.eval_score, signals.critique_score) == (pytest.approx(0.5), 0.9)
    put(tmp_path / "run_completion.json", {"critique_score": 0.2, "eval": {"score": 0.1}})
    signals = read_loss(tmp_path).signals
    assert (signals.eval_score, signals.critique_score) == (0.1, 0.2)


def test_a_list_of_runs_knows_a_failed_run_by_the_part_of_its_status():
    parts = {status: loss_of(Signals(status=status)).parts()["terminal"] for status in PENALTIES}
    assert [one for one, part in parts.items() if part >= TERMINAL_FAILED] == ["failed", "aborted"]
    assert TERMINAL == "loss_terminal"


def test_weights_of_ones_own_are_not_brought_to_one():
    assert loss_of(Signals(), Weights(eval=4.0)).total == pytest.approx(0.40 - 0.2 + 2.0)


def test_a_run_of_ours_has_the_loss_of_its_record_and_counts_completions_only():
    run = AgentRun(
        run_id="r",
        task="t",
        models=Models(manager="m", worker="w"),
        limits=Limits(rejected_completions=4),
        started=0.0,
        status="partial",
        evaluation=Evaluated(score=0.8),
        critique=Critique(score=0.6),
        rejections=(
            Rejection(iteration=1, gate="plan", reason="no tools", completion=False),
            Rejection(iteration=2, gate="l0", reason="TODO", completion=True),
            Rejection(iteration=3, gate="l0", reason="TODO", completion=True),
        ),
        budget=BudgetSnapshot(used=Used(), remaining=0.4, scarcest="loops", phase="moderate"),
    )
    loss = run_loss(run)
    assert loss.total == pytest.approx(0.355)
    assert loss_words(loss).startswith("0.3550 = eval 0.0800 + critique 0.1200")
