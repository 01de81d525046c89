"""A test suite as evaluator: every test a case, and files that may change."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.adapters import pytest as kept_pytest

pytestmark = [pytest.mark.slow]

WRONG = "def double(n):\n    return n + 2\n"
RIGHT = "def double(n):\n    return n * 2\n"
TESTS = """
import pytest
from code_under_test import double

@pytest.mark.parametrize("n", range(1, 6))
def test_double(n):
    assert double(n) == 2 * n

@pytest.mark.xfail
def test_what_nobody_can():
    assert double(1) == 7
"""


def suite(folder: Path) -> Path:
    project = folder / "project"
    (project / "tests").mkdir(parents=True)
    (project / "conftest.py").write_text("")
    (project / "code_under_test.py").write_text(WRONG)
    (project / "tests" / "test_double.py").write_text(TESTS)
    return project


PLAIN = [f"-pno:{one.name}" for one in entry_points(group="pytest11")]
"""Plugins of the environment that runs these tests: to import them takes a second each time."""


def run(folder: Path, *tries: str, **more: Any) -> kept.Result:
    options: dict[str, Any] = {"home": folder / "home", "workers": 2, "options": PLAIN, **more}
    options["budget"] = kept.Budget(max_iterations=max(1, len(tries)))
    if tries:
        options["proposers"] = list(tries)
    project = folder / "project" if (folder / "project").exists() else suite(folder)
    return kept_pytest.optimize(project, ["code_under_test.py"], **options)


def outcomes(result: kept.Result, text: str) -> list[Any]:
    with kept.read_run(result.folder) as found:
        return [
            outcome
            for _, job, outcome in found.rollouts()
            if found.candidate(job.candidate_id).text == text
        ]


def test_what_passes_more_tests_is_kept_and_the_folder_stays_as_it_is(tmp_path: Path):
    broken = "def double(n):\n    return n *\n"
    result = run(tmp_path, broken, RIGHT)
    assert result.best.text == RIGHT
    assert result.best_value == 1.0
    assert (tmp_path / "project" / "code_under_test.py").read_text() == WRONG
    assert sorted(p.name for p in (tmp_path / "project").iterdir()) == [
        *("code_under_test.py", "conftest.py", "tests")
    ]
    failures = {o.failure.blame for o in outcomes(result, broken) if o.failure is not None}
    assert failures == {"candidate"}
    assert all(o.failure is not None for o in outcomes(result, broken))
    started = result.state.started
    assert started is not None
    assert started.settings.cases == {"train": 2, "holdout": 3, "test": 1}


def test_ways_not_to_be_tested_are_no_ways_to_pass(tmp_path: Path):
    skips = "import pytest\npytest.skip('not today', allow_module_level=True)\n"
    leaves = "import os\nos._exit(0)\n"
    skips_later = "import pytest\ndef double(n):\n    pytest.skip('no')\n"
    result = run(tmp_path, skips, leaves, skips_later)
    assert not result.improved
    for text in (skips, leaves, skips_later):
        assert not any(o.metrics.get("score") for o in outcomes(result, text))


def test_a_model_reads_what_pytest_said_and_writes_the_file_anew(tmp_path: Path):
    asked: list[str] = []

    def lm(prompt: str) -> str:
        asked.append(prompt)
        return f"It adds where it should multiply.\n```python\n{RIGHT}```\n"

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "component.md").write_text("Mend it.\n")
    result = run(tmp_path, reflection_lm=lm, prompts=tmp_path / "mine")
    assert result.best.text == RIGHT
    assert asked[0].startswith("Mend it.\n\n")
    assert "assert double(" in asked[0]
    assert WRONG.strip() in asked[0]


@pytest.mark.parametrize("name", ["conftest.py", "pyproject.toml", "setup.cfg", "sub/pytest.ini"])
def test_what_tells_pytest_what_to_do_is_not_up_for_change(tmp_path: Path, name: str):
    project = suite(tmp_path)
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("")
    with pytest.raises(kept.SetupError, match=f"could change {name}, which tells pytest"):
        kept_pytest.optimize(
            project, ["code_under_test.py", name], proposers=["a"], home=tmp_path / "home"
        )
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("files", "tests", "words"),
    [
        ("code_under_test.py", (), "`files` is a text, and not a list"),
        (["code_under_test.py"], "tests", "`tests` is a text, and not a list"),
        (["/etc/passwd"], (), "`/etc/passwd` is no pattern of files below"),
        (["../outside.py"], (), "`../outside.py` is no pattern of files below"),
        ([""], (), "`` is no pattern of files below"),
    ],
)
def test_files_that_cannot_be_meant_are_told(tmp_path: Path, files: Any, tests: Any, words: str):
    (tmp_path / "outside.py").write_text("")
    with pytest.raises(kept.SetupError) as told:
        kept_pytest.optimize(suite(tmp_path), files, tests, proposers=["a"], home=tmp_path / "home")
    assert told.value.message.startswith(words)


@pytest.mark.parametrize(
    ("folder", "more", "words"),
    [
        ("nowhere", {}, "there is no folder"),
        ("", {"timeout": -1}, "`timeout` is -1"),
        ("", {"budget": "4"}, "`budget` is '4'"),
    ],
)
def test_arguments_that_cannot_be_meant_are_told_before_a_test_is_collected(
    tmp_path: Path, folder: str, more: dict[str, Any], words: str
):
    where = suite(tmp_path) / folder
    with pytest.raises(kept.SetupError) as told:
        kept_pytest.optimize(where, ["code_under_test.py"], proposers=["a"], **more)
    assert told.value.message.startswith(words)


def test_a_suite_that_cannot_be_run_is_told_before_anything_is_spent(tmp_path: Path):
    project = suite(tmp_path)
    with pytest.raises(kept.SetupError, match="pytest collects no tests"):
        kept_pytest.optimize(project, ["code_under_test.py"], ["tests/nowhere.py"], proposers=["a"])
    with pytest.raises(kept.SetupError, match="there is no file"):
        kept_pytest.optimize(project, ["nothing.py"], proposers=["a"])
    with pytest.raises(kept.SetupError, match="could change the test"):
        kept_pytest.optimize(project, ["tests/*.py"], proposers=["a"], home=tmp_path / "home")
    with pytest.raises(kept.SetupError, match="`retries` is no argument"):
        run(tmp_path, "a", retries=3)
    with pytest.raises(kept.SetupError, match="`testset` means nothing here"):
        run(tmp_path, "a", testset=["tests"])


def test_a_run_dir_does_not_go_on_where_the_tests_are_others(tmp_path: Path):
    project = suite(tmp_path)

    def again() -> kept.Result:
        return kept_pytest.optimize(
            project,
            ["code_under_test.py"],
            proposers=[RIGHT],
            budget=kept.Budget(max_iterations=1),
            run_dir=tmp_path / "runs",
        )

    first = again()
    assert again().folder == first.folder
    for file, text in (("tests/test_double.py", "# other\n"), ("conftest.py", "import os\n")):
        before = (project / file).read_text()
        (project / file).write_text(before + text)
        with pytest.raises(kept.JournalError, match="changed since it started"):
            again()
        (project / file).write_text(before)
    assert again().folder == first.folder
