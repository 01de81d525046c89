"""Kill -9 while the results file or the candidate folder is written: a resume makes both whole."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.recipes.task.test_task_keys import write

pytestmark = pytest.mark.kill

ROOT = Path(__file__).parent.parent.parent
DRAFTS = ["bad\n", "good good\n", "bad bad\n", "good good good\n"]
VIEWS = "logging: {results_file: out/r.jsonl, candidate_dir: out/candidates}\n"


def go(task: Path, where: str, *more: str) -> int:
    command = [sys.executable, "-m", "tests.recipes.views_target", str(task), where, *more]
    return warm.Popen(command, cwd=ROOT).wait(timeout=60)


def views(task: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The lines without times and ids of the run, and the candidates' files."""
    lines = (task.parent / "out" / "r.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        del row["stages"], row["run"]
    (shelf,) = (task.parent / "out" / "candidates").iterdir()
    files = {str(p.relative_to(shelf)): p for p in sorted(shelf.rglob("*")) if p.is_file()}
    return rows, {name: path.read_text() for name, path in files.items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = write(tmp_path_factory.mktemp("whole"), DRAFTS, VIEWS)
    assert go(task, "nowhere") == 0
    return task


PLACES = (["half a line"], ["half a folder"], ["half a line", "half a rebuild"])


@pytest.mark.parametrize("places", PLACES)
def test_a_resume_makes_the_views_whole(places: list[str], whole: Path, tmp_path: Path):
    task = write(tmp_path, DRAFTS, VIEWS)
    for number, where in enumerate(places):
        assert go(task, where, *(["--resume"] if number else [])) == -9
    assert go(task, "nowhere", "--resume") == 0
    assert views(task) == views(whole)
    assert not list((task.parent / "out").rglob(".*"))
