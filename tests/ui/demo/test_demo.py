"""The task without a model: its data, and that its run is what its scripts say by hand."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.state import State
from kept.errors import SetupError
from kept.recipes.registry import compile_spec
from kept.results.summary import values
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.demo import copy_demo


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, State]:
    """Where the task and its run are, and what came of it."""
    folder = tmp_path_factory.mktemp("demo")
    task = copy_demo("redact", folder / "redact")
    run, state = asyncio.run(start(compile_spec(task).plan, Home(folder)))
    return task, run, state


def by_hand(task: Path, candidate: Candidate, cases: list[str], folder: Path) -> float:
    """The mean score of a candidate, by calling the demo's two scripts as anyone could."""
    rules = folder / "candidate"
    rules.mkdir(parents=True)
    for path, text in candidate.texts.items():
        (rules / path).write_text(text, encoding="utf-8")
    rows = [json.loads(line) for line in (task.parent / "cases.jsonl").read_text().splitlines()]
    scores: list[float] = []
    for case in (row for row in rows if row["id"] in cases):
        output = folder / case["id"]
        output.mkdir()
        (output / "case.json").write_text(json.dumps(case))
        env = {
            "KEPT_CANDIDATE": str(rules),
            "KEPT_CASE": str(output / "case.json"),
            "KEPT_OUTPUT": str(output),
            "PATH": os.defpath,
        }
        for script in ("run.py", "score.py"):
            done = subprocess.run(
                [sys.executable, script],
                cwd=task.parent,
                env=env,
                capture_output=True,
                text=True,
                check=True,
            )
        scores.append(json.loads(done.stdout)["score"])  # pyright: ignore[reportPossiblyUnbound] # two scripts ran
    assert len(scores) == len(cases)
    return sum(scores) / len(scores)


def test_a_copy_of_the_demo_is_a_whole_task(tmp_path: Path):
    task = copy_demo("redact", tmp_path / "new" / "folder")
    assert task == tmp_path / "new" / "folder" / "task.yaml"
    compiled = compile_spec(task)
    assert compiled.warnings == ()
    cases = compiled.plan.cases
    assert len(cases.by_id) >= 40
    assert min(len(cases.train), len(cases.holdout), len(cases.test)) >= 10
    assert "__pycache__" not in {path.name for path in task.parent.iterdir()}


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(SetupError, match="is not empty"):
        copy_demo("redact", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="cannot write the demo"):
        copy_demo("redact", tmp_path / "file" / "demo")


def test_every_case_of_the_demo_asks_for_what_is_in_its_message():
    task = Path(copy_demo.__globals__["__file__"]).parent / "redact"
    for line in (task / "cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        for words in (*case["private"], *case["keep"]):
            assert words in case["message"], case["id"]


@pytest.mark.slow
def test_the_demo_shows_keeps_discards_and_a_crash(ended: tuple[Path, Path, State]):
    _, folder, state = ended
    steps = {
        (step.proposal.why if step.proposal else "").rpartition("/")[2]: step.verdict
        for step in state.history
    }
    del steps[""]
    assert {name: verdict.outcome for name, verdict in steps.items()} == {
        "1-tidied.txt": "discard",
        "2-any-address.txt": "keep",
        "3-all-digits.txt": "discard",
        "4-half-a-group.txt": "crash",
        "5-phones.txt": "keep",
        "6-capitals.txt": "discard",
        "7-money.txt": "keep",
        "8-by-context.txt": "keep",
    }
    assert steps["1-tidied.txt"].reason.startswith("tied")
    run = Run(folder)
    assert any("redact.txt:4: not a pattern" in row.reason for row in run.steps)
    run.close()


@pytest.mark.slow
def test_the_gain_of_the_demo_is_what_its_scripts_say_by_hand(
    ended: tuple[Path, Path, State], tmp_path: Path
):
    task, folder, state = ended
    run = Run(folder)
    cases = compile_spec(task).plan.cases
    holdout = [case.id for case in cases.holdout]
    told = values(state)
    seed = by_hand(task, run.seed, holdout, tmp_path / "seed")
    best = by_hand(task, run.best, holdout, tmp_path / "best")
    assert told == (pytest.approx(seed), pytest.approx(best))
    assert best > seed + 0.3
    # nobody looked at these cases, and the gain is there all the same
    unseen = [case.id for case in cases.test]
    gain = by_hand(task, run.best, unseen, tmp_path / "best-unseen") - by_hand(
        task, run.seed, unseen, tmp_path / "seed-unseen"
    )
    assert gain > 0.2
    run.close()
