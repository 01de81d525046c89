"""`kept agent optimize` and `kept agent artifacts` as a person types them, on the example."""

import json
import shutil
from pathlib import Path

import pytest

from kept.orchestrator.prompt_registry import PromptRegistry
from kept.orchestrator.toolkit import own_artifacts
from kept.sandbox.capabilities import abilities
from tests.ui.cli.tasks import Called, kept

EXAMPLE = Path(__file__).parents[3] / "examples" / "improve-prompts"
HINT = "experiment_context_hint_template"

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]


@pytest.fixture
def suite(here: Path) -> Path:
    shutil.copytree(EXAMPLE, here, dirs_exist_ok=True)
    return here / "suite.yaml"


def optimize(*words: str) -> Called:
    return kept("agent", "optimize", "suite.yaml", *words)


def registry(path: Path) -> PromptRegistry:
    return PromptRegistry(path, own_artifacts())


def report(here: Path, name: str) -> str:
    config = here / "run.yaml"
    config.write_text(
        "models: {manager: scripted/manager.jsonl, worker: scripted/worker.jsonl, "
        "critic: scripted/critic.jsonl}\n"
    )
    words = ("agent", "run", "Write a report on may.csv to report.md", "--input", "may.csv")
    called = kept(*words, "--config", "run.yaml", "-o", name, "-q")
    assert called.code == 0, called.stderr
    return (here / name / "report.md").read_text()


def test_the_example_keeps_one_update_and_rolls_one_back_and_runs_use_it(suite: Path, here: Path):
    before = report(here, "before")
    called = optimize()
    assert called.code == 0, called.stderr
    assert called.stdout.startswith("loss 0.117 → 0.042")
    assert f"{HINT} version 1: kept" in called.stdout
    assert f"{HINT} version 2: rolled back" in called.stdout
    after = report(here, "after")
    assert ("by the file" in before, "by the file" in after) == (False, True)
    listed = kept("agent", "artifacts", "list").stdout
    assert f"{HINT}  0, *1, 2" in listed
    assert "where its figures come from" in kept("agent", "artifacts", "show", HINT).stdout
    assert "+What there is:" in kept("agent", "artifacts", "diff", HINT).stdout
    told = kept("agent", "artifacts", "diff", HINT, "1", "2").stdout
    assert "leave the figures out" in told and f"--- {HINT} 1" in told
    shown = kept("agent", "artifacts", "diff", HINT, "1", "2", "--json").json
    assert (shown["before"], shown["after"], shown["diff"]) == (1, 2, told)
    chosen = kept("agent", "artifacts", "activate", HINT, "0", "--json").json
    assert chosen == {"format": 1, "artifact": HINT, "version": 0, "before": 1}
    assert report(here, "again") == before
    # what somebody chose stays, and goes on with the run do nothing about it
    assert kept("resume", "-q", registry_run(here)).code == 0
    assert f"{HINT}  *0, 1, 2" in kept("agent", "artifacts", "list").stdout


def test_an_optimizer_of_no_use_is_told_and_is_no_success(suite: Path, here: Path):
    """It said that all epochs were done, with code 0."""
    row = {"when": " ", "text": "I would rather not."}  # what anybody asks has one
    (here / "optimizer.jsonl").write_text(json.dumps(row) + "\n")
    called = optimize()
    assert called.code == 3, called.stdout + called.stderr
    assert "in 3 of 3 turns no reply of the optimizer could be used; the last: " in called.stderr
    assert "kept agent optimize" in called.stderr and "starts again" in called.stderr


def registry_run(here: Path) -> str:
    """The run that optimized."""
    found = [f for f in (here / ".kept" / "runs").iterdir() if _is_suite(f)]
    return found[0].name


def _is_suite(folder: Path) -> bool:
    first = (folder / "journal.jsonl").read_text().splitlines()[0]
    return json.loads(first)["recipe"] == "suite"


def test_optimize_knows_a_suite_and_goes_on_for_more_epochs(suite: Path, here: Path):
    called = kept("optimize", "suite.yaml", "--set", "epochs=1", "--json")
    assert called.code == 0, called.stderr
    told = called.json
    assert [one["outcome"] for one in told["artifacts"]["updates"]] == ["kept"]
    assert told["artifacts"]["active"][HINT] == 1
    more = kept("resume", "--set", "epochs=2", "--json")
    assert more.code == 0, more.stderr
    outcomes = [one["outcome"] for one in more.json["artifacts"]["updates"]]
    assert outcomes == ["kept", "rolled back"]


def test_a_target_has_a_registry_of_its_own(suite: Path, here: Path):
    made = kept("experiment", "create", "Sales", "--json").json
    exp = made["experiment_id"]
    kept("experiment", "task", "create", exp, "Write a report on may.csv to report.md")
    assert (
        "no versions of its own" in kept("agent", "artifacts", "list", "--experiment", exp).stderr
    )
    called = optimize("--target", f"{exp}:001", "--epochs", "1")
    assert called.code == 0, called.stderr
    folder = Path(made["folder"])
    assert registry(folder / "outer_loop.db").active()[HINT].number == 1
    assert not (here / ".kept" / "artifacts.db").exists()
    (page,) = folder.glob("tasks/001-*/optimizations/suite_*/optimization.json")
    told = json.loads(page.read_text())
    assert [one["kept"] for one in told["epochs"]] == [True]
    assert told["artifacts"][HINT] == 1
    assert f"{HINT}  0, *1" in kept("agent", "artifacts", "list", "--experiment", exp).stdout
    # runs of the project itself are told what they were, those of the task what was learned
    assert "by the file" not in report(here, "plain")
    words = ("--target", f"{exp}:001", "--input", "may.csv", "--config", "run.yaml")
    ran = kept("agent", "run", *words, "-o", "of_task", "-q")
    assert ran.code == 0, ran.stderr
    assert "by the file" in (here / "of_task" / "report.md").read_text()
    chosen = kept("agent", "artifacts", "activate", HINT, "0", "--experiment", exp)
    assert f"runs with a --target of {exp} use {HINT} 0" in chosen.stdout


@pytest.mark.parametrize(
    ("target", "said"),
    [("nothing", "names no task"), ("exp_0:001", "there is no experiment")],
)
def test_a_target_that_is_none_is_refused(suite: Path, target: str, said: str):
    called = optimize("--target", target)
    assert called.code == 2
    assert said in called.stderr


def test_the_environment_names_another_registry(
    suite: Path, here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_ARTIFACTS", str(here / "elsewhere" / "mine.db"))
    assert optimize("--epochs", "1", "-q").code == 0
    assert registry(here / "elsewhere" / "mine.db").active()[HINT].number == 1
    assert "by the file" in report(here, "made")
    monkeypatch.delenv("KEPT_ARTIFACTS")
    assert "by the file" not in report(here, "plain")


def test_a_registry_that_is_none_is_told_before_anything_is_asked(suite: Path, here: Path):
    (here / ".kept").mkdir()
    (here / ".kept" / "artifacts.db").write_text("no database at all, but a text of some length")
    for words in (("agent", "optimize", "suite.yaml"), ("agent", "artifacts", "list")):
        called = kept(*words)
        assert called.code == 2
        assert "cannot use the prompt artifacts in" in called.stderr
        assert "KEPT_ARTIFACTS" in called.stderr


def test_check_tells_what_a_suite_would_do_and_makes_nothing(suite: Path, here: Path):
    called = kept("check", "suite.yaml")
    assert called.code == 0, called.stderr
    assert "2, all of them shown and deciding" in called.stdout
    assert not (here / ".kept").exists()
    told = kept("check", "suite.yaml", "--json").json
    assert (told["recipe"], told["ok"]) == ("suite", True)


def test_adopt_says_where_the_updates_are(suite: Path):
    assert optimize("--epochs", "1", "-q").code == 0
    called = kept("adopt")
    assert called.code == 2
    assert "kept agent artifacts list" in called.stderr


def test_the_report_says_what_the_tasks_cannot_show(suite: Path):
    assert optimize("--epochs", "1", "-q").code == 0
    assert "nothing here says that it is on others" in kept("report").stdout
    assert "update" in kept("show").stdout
    assert "+What there is" in kept("diff").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "rubric"), "`rubric` is no prompt artifact"),
        (("show", HINT, "--version", "7"), f"`{HINT}` has no version 7"),
        (("activate", HINT, "7"), "there are 0"),
        (("diff", HINT, "0", "3"), f"`{HINT}` has no version 3"),
        (("list", "--experiment", "exp_0"), "there is no experiment"),
    ],
)
def test_a_version_that_is_not_there_is_told(here: Path, words: tuple[str, ...], said: str):
    called = kept("agent", "artifacts", *words)
    assert called.code == 2
    assert said in called.stderr


def test_eval_measures_the_tasks_and_is_no_epoch(suite: Path, here: Path):
    called = kept("eval", "suite.yaml", "--json")
    assert called.code == 0, called.stderr
    assert [row["test_name"] for row in called.json["results"]] == ["may", "june"]
    assert not (here / ".kept" / "artifacts.db").exists()
