"""Files of whole runs, each held to the shape that its source gives it."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kept.models.structured_output import problem_with
from kept.orchestrator.record import AgentRun
from kept.orchestrator.run_folder.write import Layout, run_files
from tests.orchestrator.play import (
    REPORT,
    Came,
    Play,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    run_agent,
    say,
    with_limits,
    write,
)

ID = "20261117-101500-0a1b2c3d"
Shape = Mapping[str, Any]
NUMBER, TEXT, COUNT = {"type": "number"}, {"type": "string"}, {"type": "integer", "minimum": 0}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"}


def shape(*more: str, **fields: object) -> Shape:
    """An object with these fields, all of them there; `more` may be."""
    needed = [name for name in fields if name not in more]
    return {"type": "object", "properties": fields, "required": needed}


def many(item: Shape) -> Shape:
    return {"type": "array", "items": item}


BUDGET = shape(
    loops=shape(used=COUNT, max=COUNT),
    workers=shape(spawned=COUNT, max=COUNT),
    tokens=shape(consumed=COUNT, max=COUNT),
    tool_calls=shape(used=COUNT, max=COUNT),
    wall_time=shape(elapsed_s=NUMBER, max_s=NUMBER),
    budget_remaining_pct={"type": "number", "minimum": 0, "maximum": 100},
    phase=shape(current=TEXT, phase_remaining_pct=NUMBER),
)
STATUS = {"enum": ["complete", "partial", "failed", "aborted"]}
MODELS = shape(manager=TEXT, worker=TEXT)
CAPS = shape(
    **dict.fromkeys(
        [
            "max_loops",
            "max_total_workers",
            "max_total_tokens",
            "max_tool_calls",
            "max_depth",
            "max_concurrent_submanagers",
            "max_total_submanagers_per_run",
            "max_parallel_workers",
            "max_workers_per_iteration",
            "max_rejected_completions",
            "min_loops_per_subtask",
        ],
        COUNT,
    ),
    max_wall_time=NUMBER,
)
DEFECT = shape(
    category={
        "enum": [
            "missing_data",
            "wrong_format",
            "incomplete",
            "hallucinated",
            "stale",
            "policy_violation",
        ]
    },
    location=TEXT,
    description=TEXT,
    severity={"enum": ["critical", "warning", "info"]},
)
CRITIQUE = shape(
    worker_id=TEXT,
    score=SHARE,
    defects=many(DEFECT),
    prescriptions=many(TEXT),
    reusable_patterns=many(TEXT),
    effort_estimate={"enum": ["trivial", "moderate", "major"]},
    summary=TEXT,
    critical_count=COUNT,
    warning_count=COUNT,
)
COMPLETION = shape(
    run_id={"const": ID},
    status=STATUS,
    reason=TEXT,
    total_iterations=COUNT,
    final_budget=BUDGET,
    completed={"type": "boolean"},
    parent_run_id={"type": ["string", "null"]},
    tags=many(TEXT),
    task=TEXT,
    induced_tools=many({}),
    # what the source reads and forgets to write
    eval={"type": ["object", "null"]},
    evaluation={"type": ["object", "null"]},
    critique={"anyOf": [{"type": "null"}, CRITIQUE]},
    models=MODELS,
    config_used=CAPS,
    loss_total=NUMBER,
    loss_breakdown=shape(
        eval=NUMBER,
        critique=NUMBER,
        gate_reject=NUMBER,
        budget_burn=NUMBER,
        terminal=NUMBER,
        total=NUMBER,
    ),
)
FILES: Mapping[str, Shape] = {
    "run_completion.json": COMPLETION,
    "run_manifest.json": shape(
        run_id={"const": ID}, task=TEXT, started=TIME, models=MODELS, budget=CAPS
    ),
    "iterations/*/manager_decision.json": shape(
        iteration=COUNT, decision={"enum": ["plan", "delegate", "complete", "fail", "diagnose"]}
    ),
    "iterations/*/critique.json": shape(
        critiques=many(CRITIQUE),
        summary=shape(patterns={}, repair_history=many({}), total_repair_tokens=COUNT),
    ),
    "iterations/*/delegations/*/critique.json": CRITIQUE,
    "iterations/*/delegations/*/envelope.json": shape(worker_id=TEXT, instructions=TEXT),
    "gates/*/*.json": shape(
        iteration=COUNT,
        gate=TEXT,
        passed={"type": "boolean"},
        timestamp=TIME,
        findings=many(shape(file=TEXT, detail=TEXT, rule=TEXT)),
    ),
}
METRICS: Mapping[str, Shape] = {
    "metric.budget": BUDGET,
    "metric.gate": shape(
        iteration=COUNT, gate=TEXT, verdict={"enum": ["rejected", "passed"]}, reason=TEXT
    ),
    "metric.critique": shape(
        iteration=COUNT,
        score=SHARE,
        defect_count=COUNT,
        pattern_count=COUNT,
        defects_by_category={"type": "object"},
        worker_count=COUNT,
    ),
    "metric.eval": shape(
        iteration=COUNT, worker_id=TEXT, score=SHARE, action=TEXT, metric_scores={}
    ),
}
EVENT = shape(
    ts=TIME,
    level=TEXT,
    category={
        "enum": [
            "run",
            "iteration",
            "manager",
            "worker",
            "tool",
            "critique",
            "gate",
            "budget",
            "delegation",
            "repair",
            "eval",
            "completion",
        ]
    },
    msg=TEXT,
    fields={"type": "object"},
)

BLANK = {"category": "incomplete", "location": "a", "description": "a blank", "severity": "warning"}


def _repaired() -> Came:
    play = Play(
        [plan("report.md"), delegate("w1", "w2"), complete()],
        {
            "w1": [write(content="# Report\n\nTODO\n"), done("w1")],
            "w2": ["no", "no"],
            "repair-1": [write(), done("repair-1")],
        },
        critic=say({"score": 0.8, "defects": [BLANK], "summary": "nearly"}),
    )
    return finished(run_agent(kit_of(play)))


def _partial() -> Came:
    play = Play([plan("report.md"), delegate("w1")], {"w1": [write(), done("w1")]})
    return finished(run_agent(kit_of(play, limits=with_limits(loops=2))))


def _failed() -> Came:
    return finished(run_agent(kit_of(Play([say({"decision": "fail", "reason": "no"})]))))


def _garbage() -> Came:
    return finished(run_agent(kit_of(Play(["hello"]))))


def _files(record: AgentRun, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return run_files(replace(record, run_id=ID), files, Layout())


def _rows(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def _like(names: Iterable[str], pattern: str) -> list[str]:
    parts = pattern.split("/")
    return [
        name
        for name in names
        if len(name.split("/")) == len(parts)
        and all(
            want in ("*", part) or (want == "*.json" and part.endswith(".json"))
            for want, part in zip(parts, name.split("/"), strict=True)
        )
    ]


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (_repaired, "complete"),
        (_partial, "partial"),
        (_failed, "failed"),
        (_garbage, "failed"),
    ],
)
def test_every_file_of_a_run_has_the_shape_of_its_source(
    made: Callable[[], Came], status: str
) -> None:
    came = made()
    assert came.record.status == status
    files = _files(came.record, came.files)
    for pattern, wanted in FILES.items():
        for name in _like(files, pattern):
            assert problem_with(json.loads(files[name]), wanted) is None, name
    assert "run_completion.json" in files and "run_manifest.json" in files
    rows = _rows(files["metrics.jsonl"])
    assert files[f"logs/{ID}/metrics.jsonl"] == files["metrics.jsonl"]
    for row in rows:
        assert problem_with(row, METRICS[row["kind"]]) is None, row
        assert problem_with(row, shape(ts=TIME)) is None
    for row in _rows(files[f"logs/{ID}/events.jsonl"]):
        assert problem_with(row, EVENT) is None, row


def test_a_repaired_run_has_a_file_of_every_kind_and_each_refusal_once() -> None:
    came = _repaired()
    files = _files(came.record, came.files)
    assert [pattern for pattern in FILES if not _like(files, pattern)] == []
    assert {row["kind"] for row in _rows(files["metrics.jsonl"])} == set(METRICS)
    gates = [
        row["fields"]
        for row in _rows(files[f"logs/{ID}/events.jsonl"])
        if row["category"] == "gate" and row["fields"]["triggered"]
    ]
    assert [one["gate"] for one in gates] == ["l0", "l0"]
    (repair,) = (
        row["fields"]
        for row in _rows(files[f"logs/{ID}/events.jsonl"])
        if row["category"] == "repair"
    )
    assert (repair["attempt"], repair["worker"]) == (1, "repair-1")
    # nobody asked the manager in the turn of the repair
    asked = [row for row in _rows(files[f"logs/{ID}/events.jsonl"]) if row["category"] == "manager"]
    assert [row["fields"]["iteration"] for row in asked] == [1, 2, 3, 4, 6]
    summary = json.loads(files["iterations/005/critique.json"])["summary"]
    (told,) = summary["repair_history"]
    assert (told["worker_id"], told["attempt"]) == ("repair-1", 1)
    sent = came.record.iterations[4].delegations[0].usage
    assert summary["total_repair_tokens"] == sent.tokens_in + sent.tokens_out > 0
    assert json.loads(files["iterations/002/critique.json"])["summary"]["repair_history"] == []
    for place in ("FINAL", "output/FINAL", f"output/{ID}"):
        assert files[f"{place}/report.md"] == REPORT.encode()


def test_r34_the_event_of_a_refusal_by_l0_names_check_reason_and_path() -> None:
    came = _repaired()
    files = _files(came.record, came.files)
    fields = next(
        row["fields"]
        for row in _rows(files[f"logs/{ID}/events.jsonl"])
        if row["fields"].get("gate") == "l0" and row["fields"]["triggered"]
    )
    assert fields["l0_check"] == "no_placeholder" and fields["violating_path"] == "report.md"
    assert "TODO" in fields["l0_reason"]
