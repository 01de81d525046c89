"""A file of prompt artifacts with the tables of the source, as an optimization leaves it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from kept.orchestrator.toolkit import own_artifacts

HARM = "<script>window.hacked=1</script>"
TABLES = """
CREATE TABLE artifact_versions (
  id INTEGER PRIMARY KEY, artifact_name TEXT NOT NULL, version INTEGER NOT NULL,
  content TEXT NOT NULL, parent_version INTEGER, created_at TEXT NOT NULL, epoch_id TEXT,
  is_active INTEGER NOT NULL DEFAULT 0, UNIQUE (artifact_name, version));
CREATE TABLE task_suites (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, tasks_json TEXT NOT NULL,
  baseline_artifacts_json TEXT NOT NULL, created_at TEXT NOT NULL);
CREATE TABLE epochs (
  id TEXT PRIMARY KEY, suite_id TEXT NOT NULL, epoch_num INTEGER NOT NULL,
  started_at TEXT NOT NULL, completed_at TEXT, mean_loss REAL,
  parent_artifacts_json TEXT NOT NULL, child_artifacts_json TEXT NOT NULL);
CREATE TABLE epoch_runs (
  epoch_id TEXT NOT NULL, run_id TEXT NOT NULL, task_name TEXT NOT NULL, loss REAL,
  scores_json TEXT NOT NULL, PRIMARY KEY (epoch_id, run_id));
"""
PITFALLS = "worker_pitfalls"


def make_registry(path: Path, harm: str = HARM) -> None:
    """Two versions of one artifact: the first was kept, the second was taken back."""
    own = own_artifacts()[PITFALLS]
    better = f"{own.rstrip()}\n- Say where every figure is from.\n"
    worse = f"{better}- Be long. {harm}\n"
    at = "2026-11-17T09:00:00Z"
    names = dict.fromkeys(own_artifacts(), 0)
    steps: list[tuple[str, int, float, dict[str, int], dict[str, object]]] = [
        ("e1", 1, 0.31, names, {"artifacts": names, "events": []}),
        ("e2", 2, 0.24, names, _child({**names, PITFALLS: 1}, "update", 0, 1)),
        ("e3", 3, 0.29, {**names, PITFALLS: 1}, _child({**names, PITFALLS: 1}, "rollback", 1, 2)),
    ]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(TABLES)
        versions = "INSERT INTO artifact_versions VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
        database.execute(versions, (PITFALLS, 1, better, 0, at, "e2", 1))
        database.execute(versions, (PITFALLS, 2, worse, 1, at, "e3", 0))
        database.execute("INSERT INTO task_suites VALUES ('s', 'reports', '[]', '{}', ?)", (at,))
        for id_, number, loss, before, after in steps:
            row = (id_, "s", number, at, at, loss, json.dumps(before), json.dumps(after))
            database.execute("INSERT INTO epochs VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            for task in ("sales", "costs"):
                run = (id_, f"run-{number}-{task}", task, loss, "{}")
                database.execute("INSERT INTO epoch_runs VALUES (?, ?, ?, ?, ?)", run)


def _child(artifacts: dict[str, int], kind: str, old: int, new: int) -> dict[str, object]:
    event = {"type": kind, "artifact": PITFALLS, "from": old, "to": new}
    why = "loss 0.31 → 0.24" if kind == "update" else "loss rose from 0.24 to 0.29"
    return {"artifacts": artifacts, "events": [event], "reason": why}
