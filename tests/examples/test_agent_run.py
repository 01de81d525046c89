"""The agent run of `examples/agent-run`, as its first line has it typed: it needs no key."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities
from tests.examples.by_hand import EXAMPLES
from tests.ui.cli.tasks import Called, kept

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

REPORT = "There were 45 orders from May to July."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "agent-run"
    shutil.copytree(EXAMPLES / "agent-run", place)
    monkeypatch.chdir(place)
    for name in ("KEPT_HOME", "KEPT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return place


def _run(folder: Path, *words: str) -> Called:
    typed = shlex.split((folder / "run.yaml").read_text().splitlines()[0].removeprefix("# "))
    assert typed[:3] == ["kept", "agent", "run"]
    return kept(*typed[1:], *words)


def test_it_is_refused_twice_repaired_and_complete(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    called = _run(folder, "--output", "made")
    assert called.code == 0, called.stderr
    assert REPORT in (folder / "made" / "report.md").read_text()
    figures = json.loads((folder / "made" / "figures.json").read_text())
    assert figures == {"total": 45, "growth": [0.25, 0.2]}
    story = kept("show").stdout
    assert story.count("refused by l0") == 2 and "repair-1 is to repair report" in story
    assert "complete (completed), 2 deliverables" in story
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_cut_anywhere_its_script_goes_on_where_it_stopped(folder: Path) -> None:
    assert _run(folder).code == 0
    (run,) = (folder / ".kept" / "runs").iterdir()
    spine = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    opened = next(n for n, line in enumerate(spine) if b'"kind":"proposed"' in line) + 1
    lines = (run / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    for cut in range(3, len(lines), 5):
        (run / "journal.jsonl").write_bytes(b"".join(spine[:opened]))
        (run / "rollouts.jsonl").write_bytes(b"".join(lines[:cut]))
        shutil.rmtree(run / "FINAL", ignore_errors=True)
        again = kept("resume", "last", "-q")
        assert again.code == 0, f"cut behind {cut}: {again.stderr}"
        assert REPORT in (run / "FINAL" / "report.md").read_text()


def test_with_too_few_turns_it_is_partial_and_goes_on_with_more(folder: Path) -> None:
    called = _run(folder, "--max-loops", "4", "-q")
    assert called.code == 1 and "partial (max_loops)" in called.stdout
    called = kept("resume", "last", "--set", "budget.max_loops=12", "-q")
    assert called.code == 0, called.stderr
    assert REPORT in next(folder.rglob("FINAL/report.md")).read_text()
