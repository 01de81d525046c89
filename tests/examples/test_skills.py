"""The skill of `examples/skills`, trained as its page says, and measured by hand."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.examples.by_hand import EXAMPLES

pytestmark = pytest.mark.slow


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("stand_in", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def solved(module: ModuleType, skill: str, folder: Path) -> float:
    """How much of the data the student gets right, asked without Kept."""
    rows = [json.loads(line) for line in (folder / "dates.jsonl").read_text().splitlines()]
    right = [module.student(skill, row["question"], 7) == row["answer"] for row in rows]
    return sum(right) / len(rows)


def test_the_lines_of_the_page_train_a_better_skill(tmp_path: Path):
    shutil.copytree(EXAMPLES / "skills", tmp_path / "examples/skills")
    folder = tmp_path / "examples/skills/dates"
    # as where somebody has used Kept further up: runs are kept there
    (tmp_path / ".kept").mkdir()
    (block,) = re.findall(r"```sh\n(.*?)```", (EXAMPLES / "skills/README.md").read_text(), re.S)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(tmp_path), "KEPT_CACHE": str(tmp_path / "cache")}
    script = f"set -e\n{block}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cases that nothing was tuned on" in done.stdout
    module = loaded(folder / "stand_in.py")
    before, after = (EXAMPLES / "skills/dates/SKILL.md").read_text(), (folder / "SKILL.md")
    best = after.read_text()
    assert solved(module, before, folder) == 0.0
    assert solved(module, best, folder) >= 0.5, best
    assert module.WORDS not in best and module.YEARLESS not in best, "no rule that harms is kept"
