"""`kept agent run --target EXP:TASK`: a task is done, and another goes on from it."""

import json
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities
from kept.testing.server import ModelServer
from tests.orchestrator.play import Play, complete, delegate, done, plan, use, write
from tests.ui.cli.tasks import Called, kept

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

TEXT = "# Report\n\nMay 12, June 15.\n"


def play(*first: object) -> Play:
    worker = [*first, write("output/report.md", TEXT), write("output/data.csv", "a,b\n1,2\n")]
    script = {"w1": [*worker, done("w1")]}
    made = Play([plan("report.md", "data.csv"), delegate("w1"), complete()], script)  # pyright: ignore
    made.loops = 100
    return made


def run(target: str, playing: Play, monkeypatch: pytest.MonkeyPatch) -> Called:
    with ModelServer(playing.of_server) as server:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.v1)
        return kept("agent", "run", "--target", target, "--model", "openai_compatible/m", "-q")


def task(experiment: str, *words: str) -> dict[str, str]:
    called = kept("experiment", "task", "create", experiment, *words, "--json")
    assert called.code == 0, called.stderr
    return called.json


def test_a_continuation_is_given_what_primary_and_reference_name_and_nothing_else(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    experiment = kept("experiment", "create", "Sales", "--json").json["experiment_id"]
    first = task(experiment, "Write a report to report.md and data.csv")
    called = run(f"{experiment}:001", play(), monkeypatch)
    assert called.code == 0, called.stderr
    best = Path(first["folder"]) / "BEST"
    told = json.loads((best / "manifest.json").read_text())
    assert told["reason"] == "auto_loss" and (best / "report.md").read_text() == TEXT
    assert Path(told["winner_source"]).is_relative_to(Path(first["folder"]) / "seed")
    words = ("--primary", "001/report.md", "--reference", "001/data.csv", "--from-task", "001")
    second = task(experiment, "Put the months into a table in report.md", "--continuation", *words)
    goes_on = play(use("file_read", path="input/primary/report.md"))
    called = run(f"{experiment}:002", goes_on, monkeypatch)
    assert called.code in (0, 1), called.stderr
    shown = next(text for who, text in goes_on.heard if who == "w1")
    assert "input/primary/report.md" in shown
    assert "input/reference/001-write-a-report-to-report-md-and-data-csv/data.csv" in shown
    assert "primary/data.csv" not in shown and "manifest.json" not in shown
    managed = [text for who, text in goes_on.heard if who == "manager"]
    assert ["## CONTINUATION" in text for text in managed] == [True] + [False] * (len(managed) - 1)
    assert "Put the months into a table" in managed[0]
    assert (Path(second["folder"]) / "BEST" / "report.md").is_file()


def test_a_run_is_asked_for_once_in_words_or_by_its_target(here: Path):
    for words in ((), ("Write", "--target", "exp_0:001"), ("--target", "exp_0")):
        called = kept("agent", "run", *words)
        assert called.code == 2 and "hint:" in called.stderr, called.stderr


def test_what_a_run_deleted_when_it_went_on_is_left_nowhere(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    experiment = kept("experiment", "create", "Sales", "--json").json["experiment_id"]
    folder = Path(task(experiment, "Write a report to report.md")["folder"])
    old = [write("output/report.md", TEXT), write("output/old.md", TEXT), write("output/his.md")]
    away = [use("file_delete", path=f"output/{name}.md") for name in ("old", "his")]
    workers = {"w1": [*old, done("w1")], "w2": [*away, done("w2")]}
    playing = Play([plan("report.md"), delegate("w1"), delegate("w2"), complete()], workers)
    playing.loops = 2
    with ModelServer(playing.of_server) as server:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.v1)
        words = ("--target", f"{experiment}:001", "--model", "openai_compatible/m", "-q")
        called = kept("agent", "run", *words, "--max-loops", "2", "-o", "made")
        assert called.code == 1, called.stderr
        (ours,) = (here / ".kept" / "runs").iterdir()
        seed = folder / "seed"
        run = seed / "workspace" / "runs" / ours.name
        places = [run / "FINAL", seed / "output" / "FINAL", seed / "output" / ours.name]
        places += [ours / "FINAL", ours / "output" / "FINAL", here / "made"]
        assert all((place / "old.md").is_file() for place in places)
        (here / "made" / "his.md").write_text("somebody's now")
        playing.loops = 4
        called = kept("resume", "--set", "budget.max_loops=4", "-q")
    assert called.code == 0, called.stderr
    for place in places[:-1]:
        assert {path.name for path in place.iterdir()} == {"report.md"}, place
    assert {path.name for path in (here / "made").iterdir()} == {"report.md", "his.md"}
