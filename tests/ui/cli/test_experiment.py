"""`kept experiment` as a person types it."""

import json
from pathlib import Path

import pytest

from tests.orchestrator.run_folder.made import synthetic_run
from tests.ui.cli.tasks import kept


@pytest.fixture
def made(here: Path) -> str:
    return kept("experiment", "create", "Sales", "--goal", "know the sales", "--json").json[
        "experiment_id"
    ]


def add(made: str, *words: str) -> str:
    called = kept("experiment", "task", "create", made, *words, "--json")
    assert called.code == 0, called.stderr
    return called.json["task_id"]


def test_an_experiment_is_made_listed_shown_and_deleted(made: str):
    add(made, "Write a report")
    assert made in kept("experiment", "list").stdout
    shown = kept("experiment", "show", made)
    assert "001-write-a-report" in shown.stdout
    (task,) = kept("experiment", "task", "list", made, "--json").json["tasks"]
    assert task["task_id"] in kept("experiment", "task", "list", made).stdout
    assert kept("experiment", "delete", made).code == 2
    told = kept("experiment", "delete", made, "--yes", "--json")
    assert (told.code, told.json["removed"]) == (0, made)
    assert made not in kept("experiment", "list").stdout


def test_r37_is_enforced_when_a_continuation_is_made(made: str):
    add(made, "Write a report")
    for words in ((), ("--from-task", "001"), ("--from-task", "009")):
        called = kept("experiment", "task", "create", made, "Shorter", "--continuation", *words)
        assert called.code == 2
        assert "hint:" in called.stderr
    assert kept("experiment", "task", "list", made).stdout.count("\n") == 1


def test_a_best_that_was_named_can_be_gone_on_from_and_primary_means_what_it_says(
    made: str, here: Path
):
    add(made, "Write a report")
    run = synthetic_run(here / "run")
    called = kept("experiment", "task", "set-best", f"{made}:001", "--run", str(run), "--json")
    assert called.code == 0, called.stderr
    best = Path(called.json["best"])
    assert json.loads((best / "manifest.json").read_text())["reason"] == "user_override"
    words = ("--continuation", "--from-task", "001", "--primary", "001/out.md")
    second = add(made, "Shorter", *words)
    shown = kept("experiment", "task", "show", f"{made}:{second}", "--json").json
    wanted = {"from_task": "001-write-a-report", "role": "primary", "paths": ["out.md"]}
    assert shown["inputs"] == [wanted]


def test_set_best_without_any_run_changes_nothing(made: str, here: Path):
    add(made, "Write a report")
    run = synthetic_run(here / "run")
    kept("experiment", "task", "set-best", f"{made}:001", "--run", str(run))
    called = kept("experiment", "task", "set-best", f"{made}:001", "--auto")
    assert called.code == 2
    shown = kept("experiment", "task", "show", f"{made}:001", "--json").json
    assert (Path(shown["best"]) / "manifest.json").is_file()
    assert (shown["winner_run_id"], shown["reason"]) == ("seed_1", "user_override")


def test_a_run_may_be_the_first_best_of_a_task_without_being_chosen_for_good(made: str, here: Path):
    add(made, "Write a report")
    words = ("experiment", "task", "set-best", f"{made}:001")
    missing = kept(*words, "--auto")
    assert missing.code == 2 and f"set-best {made}:001" in missing.stderr
    assert "--auto --run RUN_DIR" in missing.stderr
    called = kept(*words, "--auto", "--run", str(synthetic_run(here / "run")), "--json")
    assert called.code == 0, called.stderr
    manifest = json.loads((Path(called.json["best"]) / "manifest.json").read_text())
    assert manifest["reason"] == "auto_loss" and manifest["winner_source"] == str(here / "run")


def test_what_a_person_is_told_stands_in_columns_and_in_words(made: str, here: Path):
    first = kept("experiment", "create", "Costs").stdout
    assert first.startswith("experiment_id  exp_")
    add(made, "Write a report")
    assert "None" not in kept("experiment", "task", "show", f"{made}:001").stdout
    run = synthetic_run(here / "run", eval={"score": 1 - 0.1 - 0.2})
    best = kept("experiment", "task", "set-best", f"{made}:001", "--run", str(run)).stdout
    rows = dict(line.split(maxsplit=1) for line in best.splitlines())
    assert len(rows["loss"]) == len("0.0000") and rows["winner_run_id"]
    words = ("--continuation", "--from-task", "001", "--primary", "001/out.md")
    second = add(made, "Shorter", *words)
    shown = kept("experiment", "task", "show", f"{made}:{second}").stdout
    assert "001-write-a-report as primary (out.md)" in shown and "{" not in shown


@pytest.mark.parametrize("words", [("create", ""), ("create", " "), ("task", "create", "EXP", "")])
def test_what_has_no_name_or_no_text_is_refused(made: str, words: tuple[str, ...]):
    before = kept("experiment", "list").stdout
    called = kept("experiment", *(made if word == "EXP" else word for word in words))
    assert called.code == 2 and "is empty" in called.stderr and "hint:" in called.stderr
    assert kept("experiment", "list").stdout == before


def test_git_leaves_experiments_alone(made: str, here: Path):
    assert (here / ".kept" / ".gitignore").read_text() == "*\n"
