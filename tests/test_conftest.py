"""The closing lines of a session: time per mark, and what was skipped by name."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import peer, pytest_xdist_auto_num_workers

ROOT = Path(__file__).parent.parent

# A pytest of its own each.
pytestmark = pytest.mark.slow

TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.git
def test_with_git(): pass

@pytest.mark.slow
@pytest.mark.git
def test_slow_with_git(): pass

@pytest.mark.kill
def test_not_chosen(): pass
"""


def run_session(folder: Path, *options: str) -> list[str]:
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    (folder / "tests" / "test_marked.py").write_text(TESTS, encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-m", "not kill", "-p", "no:cacheprovider", *options]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_session_ends_with_the_time_per_mark_and_the_counts_last(tmp_path: Path):
    lines = run_session(tmp_path, "--stage", "ruff check:1234:FAILED")
    start = next(number for number, line in enumerate(lines) if "time per mark" in line)
    table = [" ".join(line.split()) for line in lines[start + 1 : -1]]
    assert "ruff check 1.23 s FAILED" in table
    rows = {re.sub(r"[\d.]+ s ", "", row) for row in table if row.endswith("tests")}
    assert rows == {"fast 1 tests", "git 1 tests", "git + slow 1 tests"}
    assert "3 passed, 1 deselected" in lines[-1]


def test_inspect_is_passed_over_by_name_where_dspy_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "peers" / "inspect").mkdir(parents=True)
    versions = tmp_path / "peers" / "inspect" / "versions"
    versions.write_text(f"inspect_ai {sys.implementation.cache_tag}")
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "dspy", ModuleType("dspy"))
    with pytest.raises(pytest.skip.Exception, match="dspy is loaded, which needs another version"):
        peer("inspect", "a_module_of_inspect")


def test_a_missing_tool_is_counted_by_its_mark(tmp_path: Path):
    lines = run_session(tmp_path, "--missing", "git:git")
    assert "skipped marks: git (needs git), 2 tests" in lines
    assert "1 passed, 2 skipped, 1 deselected" in lines[-1]


def test_files_of_long_tests_come_first_and_their_tests_stay_together(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    for name, marks in {"a": ("",), "b": ("", "slow"), "c": ("", "model")}.items():
        lines = [f"@pytest.mark.{mark}\n" * bool(mark) for mark in marks]
        tests = [f"{line}def test_{n}(): pass\n" for n, line in enumerate(lines)]
        path = tmp_path / "tests" / f"test_{name}.py"
        path.write_text("import pytest\n" + "".join(tests), encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = [line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line]
    assert found == [f"tests/test_{name}.py" for name in ("c", "c", "b", "b", "a")]


def test_there_are_workers_where_nothing_says_which_cores_are_ours(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    assert pytest_xdist_auto_num_workers() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert pytest_xdist_auto_num_workers() == 1
