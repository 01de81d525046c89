"""The task.yaml of the seed, character for character but for its indentation, runs as it is."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kept.core.objective import Constraint, TieBreaker
from kept.errors import SpecError
from kept.proposers.llm import ModelProposer
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run

HERE = Path(__file__).parent
RUN = """\
import os, pathlib, shutil, sys
text = pathlib.Path(os.environ["KEPT_CANDIDATE"], "skills/writing/SKILL.md").read_text()
if "CRASH" in text:
    sys.exit("the skill cannot be loaded")
pathlib.Path(os.environ["KEPT_OUTPUT"], "skill.md").write_text(text)
"""
SCORE = """\
import json, os, pathlib
text = pathlib.Path(os.environ["KEPT_OUTPUT"], "skill.md").read_text()
metrics = {"violation_count": text.count("very"), "length_tokens": len(text.split())}
print(json.dumps({"score": text.count("- "), "metrics": metrics}))
"""
VARIANTS = "proposers=[{kind: variants, files: [drafts/*.md]}]"
DRAFTS = {
    "1-crash.md": "CRASH\n",
    "2-violates.md": "- one\n- two\n- three\n- a very long list\n",
    "3-better.md": "- one\n- two and some more words\n",
    "4-tied-and-shorter.md": "- one\n- two\n",
    "5-tied-and-longer.md": "- one\n- two, again\n",
    "6-too-long.md": "- a\n" * 3 + "word " * 2600,
    "7-too-many-lines.md": "- a\n" * 3 + "\n" * 200,
}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    files = {
        "skills/writing/SKILL.md": "- one\n",
        "scripts/run_skill_eval.py": RUN,
        "scripts/score_skill.py": SCORE,
        **{f"drafts/{name}": text for name, text in DRAFTS.items()},
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(HERE / "seed_task.yaml", tmp_path / "task.yaml")
    return tmp_path / "task.yaml"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_key_of_the_seeds_example_reaches_the_plan(task: Path):
    plan = compile_task(task, [VARIANTS]).plan
    assert plan.spec.id == "skill-quality"
    assert plan.spec.description == "Optimize a skill markdown file against a rubric."
    assert list(plan.rules.artifacts) == ["skills/writing/SKILL.md"]
    assert (plan.rules.max_files, plan.rules.max_changed_lines) == (2, 120)
    assert plan.objective.constraints == (
        Constraint("violation_count", "<=", 0),
        Constraint("length_tokens", "<=", 2500),
    )
    assert plan.objective.tie_breakers == (
        TieBreaker("violation_count"),
        TieBreaker("length_tokens"),
    )
    assert plan.gate.name == "strict"
    assert (plan.budget.max_iterations, plan.budget.max_failures) == (50, 10)
    assert len(plan.views) == 2


def test_direct_edit_without_a_model_is_told_with_what_to_do(
    task: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("KEPT_MODEL", raising=False)
    with pytest.raises(SpecError, match=r"task.yaml:10 mutation.mode: `direct_edit` needs a model"):
        compile_task(task)
    monkeypatch.setenv("KEPT_MODEL", "some/model")
    with pytest.raises(SpecError, match=r"mutation.mode: KEPT_MODEL: `some` is no provider"):
        compile_task(task)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SpecError, match=r"models.optimizer: .*: OPENAI_API_KEY is not set"):
        compile_task(task, ["models.optimizer=openai/other"])


def test_direct_edit_has_a_model_propose(task: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KEPT_MODEL", "openai_compatible/m")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9/v1")
    (proposer,) = compile_task(task).plan.proposers
    assert isinstance(proposer, ModelProposer)
    assert proposer.name == "edit"


@pytest.mark.slow
def test_the_seeds_example_decides_as_the_seed_says(task: Path):
    plan = compile_task(task, [VARIANTS, "workers=2", "width=1"]).plan
    folder, state = asyncio.run(start(plan, Home(task.parent / ".kept")))
    closed = [step for step in state.history if step.candidate]
    assert [(step.verdict.outcome, step.verdict.code) for step in closed] == [
        ("crash", "judged"),
        ("discard", "constraint"),
        ("keep", "judged"),
        ("keep", "judged"),
        ("discard", "judged"),
        ("discard", "constraint"),
        ("discard", "over limit"),
    ]
    run = Run(folder)
    reasons = [row.reason for row in run.steps if row.candidate]
    run.close()
    assert "the skill cannot be loaded" in reasons[0]
    assert reasons[1] == "constraint broken: violation_count <= 0: it is 1"
    assert reasons[2] == "strictly better: `score` 1 → 2"
    assert reasons[3] == "tied (`score` 2 → 2), but lower `length_tokens`: 8 → 4"
    assert reasons[4].startswith("tied: ")
    assert reasons[5].startswith("constraint broken: length_tokens <= 2500")
    assert "120 allowed" in reasons[6]
    assert (task.parent / "skills/writing/SKILL.md").read_text() == "- one\n"

    rows = read(task.parent / "work/results.jsonl")
    assert [row["decision"] for row in rows] == [s.verdict.outcome for s in state.history]
    assert {row["run"] for row in rows} == {folder.name}
    assert rows[0]["on_failure"] == "discard"
    assert rows[1]["constraints"][0] | {"value": 0.0} == {
        "metric": "violation_count",
        "op": "<=",
        "value": 0,
        "measured": 1,
        "holds": False,
    }
    assert rows[3]["metrics"] == {"score": 2, "violation_count": 0, "length_tokens": 4}
    (change,) = rows[3]["diff"]
    assert change["path"] == "skills/writing/SKILL.md"
    assert (change["removed"], change["added"]) == (1, 1)
    assert change["before"] == rows[2]["diff"][0]["after"]
    assert list(rows[3]["stages"]) == [
        "load_task",
        "snapshot_baseline",
        "mutate_artifacts",
        "run_candidate",
        "score_candidate",
        "validate_constraints",
        "decide",
        "log_iteration",
    ]
    for row in rows:
        reached = [s["t"] for s in row["stages"].values() if s["what"] != "not reached"]
        assert None not in reached and reached == sorted(reached)
    names = sorted(p.name for p in (task.parent / "work/candidates" / folder.name).iterdir())
    kept = ["0002-keep", "0002-keep.diff", "0003-keep", "0003-keep.diff"]
    others = ["0000-crash.diff", "0001-discard.diff"]
    assert names == [*others, *kept, *(f"000{n}-discard.diff" for n in (4, 5, 6))]
