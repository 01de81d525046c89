"""Run folders made by hand: as real runs of the source lie, and as its tests make them up."""

import json
from pathlib import Path
from typing import Any

RUN = "2026-04-19_16-05-53_cbf28fd0"


def put(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def put_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def final_budget(**more: Any) -> dict[str, Any]:
    return {
        "loops": {"used": 5, "max": 12},
        "workers": {"spawned": 3, "max": 10},
        "tokens": {"consumed": 5000, "max": 200_000},
        "tool_calls": {"used": 20, "max": 1500},
        "wall_time": {"elapsed_s": 42.0, "max_s": 600},
        "budget_remaining_pct": 60.0,
        **more,
    }


def gate(iteration: int, name: str, reason: str = "no", ts: str = "t") -> dict[str, Any]:
    fields = {"gate": name, "triggered": True, "reason": reason, "iteration": iteration}
    return {"ts": ts, "level": "WARN", "category": "gate", "msg": "rejected", "fields": fields}


def refused(iteration: int, name: str) -> dict[str, Any]:
    return {
        "ts": "t",
        "kind": "metric.gate",
        "iteration": iteration,
        "gate": name,
        "verdict": "rejected",
        "reason": "no",
    }


def critique(*defects: tuple[str, str], score: float = 0.6) -> dict[str, Any]:
    rows = [
        {
            "category": "incomplete",
            "location": "report.md",
            "description": one,
            "severity": severity,
        }
        for one, severity in defects
    ]
    return {"critiques": [{"worker_id": "w1", "score": score, "defects": rows}], "summary": {}}


def real_run(root: Path, *, final: bool = True) -> Path:
    """A workspace as a real run leaves it; its run folder."""
    folder = root / "workspace" / "runs" / RUN
    put(
        folder / "run_completion.json",
        {
            "run_id": RUN,
            "status": "partial",
            "reason": "max_rejected_completions",
            "total_iterations": 5,
            "final_budget": final_budget(),
            "completed": False,
            "parent_run_id": None,
            "tags": [],
            "task": "Write a report to report.md",
            "induced_tools": [],
        },
    )
    put(
        folder / "run_manifest.json",
        {
            "run_id": RUN,
            "models": {"manager": "m/big", "worker": "m/small"},
            "budget": {"max_depth": 3},
        },
    )
    put(folder / "iterations" / "001" / "critique.json", critique(("no totals", "critical")))
    put(
        folder / "iterations" / "002" / "critique.json",
        critique(("no totals", "critical"), ("no dates", "warning"), ("no totals", "info")),
    )
    put_rows(
        folder / "metrics.jsonl",
        {"ts": "t", "kind": "metric.critique", "iteration": 1, "score": 0.5},
        {"ts": "t", "kind": "metric.critique", "iteration": 2, "score": 0.7},
        {"ts": "t", "kind": "metric.eval", "score": 0.8, "metric_scores": {"has_result": 0.5}},
        # the source writes a refusal of L0 twice, and calls refusals of a plan gates too
        *(refused(3, "l0"), refused(3, "l0"), refused(1, "r31_plan_tool_closure")),
        *(refused(4, "critique"), refused(4, "critique_bypass")),
    )
    put_rows(
        root / "logs" / RUN / "events.jsonl",
        gate(1, "r31_plan_tool_closure"),
        gate(2, "placeholder", "blank"),
        *(gate(3, "l0", "TODO"), gate(3, "l0", "TODO")),
        gate(4, "critique", "too low", "t4"),
        gate(4, "critique_bypass"),
        gate(5, "eval", "0.5", "t5"),
        {
            "ts": "t",
            "category": "gate",
            "msg": "ok",
            "fields": {"gate": "file", "triggered": False},
        },
    )
    put(
        root / "data" / "evaluation" / f"{RUN}.json",
        {"thresholds": {"has_result": 0.75}, "per_metric": {"has_result": 0.1}},
    )
    if final:
        (root / "output" / "FINAL").mkdir(parents=True)
        (root / "output" / "FINAL" / "report.md").write_text("# Report\n")
    (root / "output" / RUN).mkdir(parents=True, exist_ok=True)
    return folder


def synthetic_run(folder: Path, **more: Any) -> Path:
    """A run folder as tests of the source make one up: flat budget, own events, own critique."""
    put(
        folder / "run_completion.json",
        {
            "run_id": "seed_1",
            "status": "complete",
            "task": "Write",
            "final_budget": {
                "max_loops": 20,
                "max_total_workers": 40,
                "max_total_tokens": 1_000_000,
                "max_tool_calls": 600,
                "max_wall_time": 3600,
                "max_depth": 4,
                "wall_time_elapsed_s": 1800,
            },
            "critique": {
                "score": 0.7,
                "defects": [
                    {"summary": "too short", "severity": "high"},
                    {"summary": "no sources", "severity": "medium"},
                ],
            },
            "evaluation": {
                "per_metric": {"a": 0.5, "b": 0.8, "c": 0.9, "d": 0.5},
                "thresholds": {"a": 0.75, "b": 0.9, "c": 0.8, "d": 0.75},
            },
            "models": {"manager": "x:1", "worker": "y:2"},
            **more,
        },
    )
    put_rows(
        folder / "events.jsonl",
        *(
            {"type": "gate.reject", "gate": name, "reason": f"{name} said no", "ts": f"t{n}"}
            for n, name in enumerate(("l0", "eval", "critique", "placeholder"))
        ),
    )
    (folder / "FINAL").mkdir(exist_ok=True)
    (folder / "FINAL" / "out.md").write_text("text\n")
    return folder


def perfect_run(folder: Path) -> Path:
    synthetic_run(
        folder,
        critique={"score": 1.0, "defects": []},
        evaluation={"per_metric": {"a": 0.9}, "thresholds": {"a": 0.75}},
    )
    (folder / "events.jsonl").unlink()
    return folder
