"""`kept refine --target EXP:TASK`: the best run of a task is refined, and the task has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from kept.orchestrator.refine.session import refining
from kept.sandbox.capabilities import abilities
from kept.testing.server import ModelServer
from tests.orchestrator.run_folder.made import perfect_run, synthetic_run
from tests.recipes.refine.world import TASK, scores
from tests.ui.cli.tasks import kept
from tests.ui.cli.test_refine import MODEL, Stage, server, stage

__all__ = ["server", "stage"]  # fixtures

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]


class Made:
    """A task of an experiment whose seed run lies where runs of it lie."""

    def __init__(self, **more: object) -> None:
        experiment = kept("experiment", "create", "Sales", "--json").json["experiment_id"]
        task = kept("experiment", "task", "create", experiment, "Write a report", "--json").json
        self.target = f"{experiment}:001"
        self.folder = Path(task["folder"])
        self.run = self.folder / "seed" / "workspace" / "runs" / "first"
        synthetic_run(self.run, task=TASK, models={"manager": MODEL}, run_id="first", **more)
        assert kept("experiment", "task", "set-best", self.target, "--auto").code == 0

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "BEST" / "manifest.json").read_text())

    def told(self, name: str) -> dict[str, Any]:
        return json.loads((self.folder / "refinements" / name).read_text())


def test_the_sessions_of_a_task_and_its_best_lie_with_the_task(here: Path):
    made = Made()
    called = kept("refine", "--target", made.target, "--iterations", "2", "--json")
    assert called.code == 0, called.stderr
    latest = made.told("session.json")
    name = latest["latest"]
    assert latest["path"] == f"{name}/session.json" and latest["stop_reason"] == "max_iterations"
    session = made.told(f"{name}/session.json")
    assert session == made.told(f"{name}.json")
    assert (session["seed_run_id"], session["best_iter"]) == ("first", 2)
    folder = made.folder / "refinements" / name
    assert {path.name for path in folder.iterdir()} == {"session.json", "iter_1", "iter_2"}
    for k, row in enumerate(session["iterations"], 1):
        run = folder / f"iter_{k}" / "workspace" / "runs" / row["run_id"]
        assert json.loads((run / "run_completion.json").read_text())["run_id"] == row["run_id"]
        assert (folder / f"iter_{k}" / "output" / row["run_id"] / "report.md").is_file()
        assert (folder / f"iter_{k}" / "gradient_input.json").is_file()
    winner = made.manifest
    assert winner["winner_run_id"] == session["iterations"][1]["run_id"]
    assert (winner["reason"], winner["loss"]) == ("auto_loss", session["iterations"][1]["loss"])
    assert (made.folder / "BEST" / "report.md").read_text() == "# Report\n\nVersion 2.\n"
    assert Path(called.json["session"]) == folder / "session.json"
    # nothing is left beside the seed: it was not what was named
    assert not (made.run / "BEST").exists() and not (made.run / "refinement_sessions").exists()
    assert not [*made.run.glob(".*"), *made.folder.glob(".*")]
    for held in (made.folder, Path(winner["winner_source"])):
        with refining((held,), "other"):
            assert kept("refine", "--target", made.target).code == 2


def test_the_next_refinement_of_a_task_starts_from_its_best_and_is_the_latest(
    here: Path, stage: Stage
):
    made = Made()
    assert kept("refine", "--target", made.target, "--iterations", "1").code == 0
    first = made.told("session.json")["latest"]
    won = made.manifest
    stage.loops = 5  # half of the half
    pair = f"{MODEL}:{MODEL}"
    words = ("--iterations", "1", "--tier-high", pair)
    assert kept("refine", "--target", made.target, *words).code == 0
    latest = made.told("session.json")["latest"]
    assert latest != first
    session = made.told(f"{latest}.json")
    assert session["seed_run_id"] == won["winner_run_id"]
    assert (session["tier_plan_used"], session["iterations"][0]["tier"]) == (True, "high")
    assert made.manifest["loss"] < won["loss"]


def test_a_task_is_refined_from_its_first_run_on_request(here: Path):
    made = Made()
    assert kept("refine", "--target", made.target, "--iterations", "1").code == 0
    won = made.manifest
    called = kept("refine", "--target", made.target, "--iterations", "1", "--from", "seed")
    session = made.told(f"{made.told('session.json')['latest']}.json")
    assert (session["seed_run_id"], session["iterations"][0]["parent_run_id"]) == ("first", "first")
    # the same again is no better than what BEST holds
    assert (called.code, made.manifest) == (1, won)
    assert "BEST did not move: it holds run" in called.stderr


def test_fault_9_a_target_without_a_gain_ends_with_1_and_one_without_findings_with_0(
    here: Path, stage: Stage
):
    made = Made(eval={"score": 1.0}, critique={"score": 1.0, "defects": [{"summary": "x"}]})
    before = made.manifest
    called = kept("refine", "--target", made.target, "--iterations", "1")
    assert called.code == 1, called.stdout + called.stderr
    assert "no gain" in called.stdout
    assert made.manifest == before
    perfect = perfect_run(here / "perfect")
    words = ("experiment", "task", "set-best", made.target, "--run", str(perfect))
    assert kept(*words).code == 0
    called = kept("refine", "--target", made.target)
    assert (called.code, "nothing to refine" in called.stdout) == (0, True), called.stderr
    assert made.told("session.json")["stop_reason"] == "empty_gradient"


def test_what_somebody_chose_stays_the_best_of_a_task_and_a_person_hears_of_it(here: Path):
    made = Made()
    words = ("experiment", "task", "set-best", made.target, "--run", str(made.run))
    assert kept(*words).code == 0
    called = kept("refine", "--target", made.target, "--iterations", "1")
    assert called.code == 1, called.stderr
    assert "BEST did not move: a person chose what it holds" in called.stderr
    assert made.manifest["winner_run_id"] == "first"
    assert f"set-best {made.target.partition(':')[0]}" in called.stdout
    assert kept("experiment", "task", "set-best", made.target, "--auto").code == 0
    assert made.manifest["winner_run_id"] != "first"


def test_a_run_from_elsewhere_that_nobody_chose_for_good_is_replaced_by_what_is_better(here: Path):
    experiment = kept("experiment", "create", "Sales", "--json").json["experiment_id"]
    kept("experiment", "task", "create", experiment, "Write a report")
    run = synthetic_run(here / "run", task=TASK, models={"manager": MODEL}, run_id="first")
    target = f"{experiment}:001"
    words = ("experiment", "task", "set-best", target, "--auto", "--run", str(run), "--json")
    best = Path(kept(*words).json["best"])
    called = kept("refine", "--target", target, "--iterations", "1", "--json")
    assert called.code == 0, called.stderr
    manifest = json.loads((best / "manifest.json").read_text())
    assert manifest["winner_run_id"] == called.json["iterations"][0]["run_id"]


@pytest.mark.parametrize(
    "words",
    [(), ("seed", "--target", "exp_0:001"), ("--target", "exp_0"), ("--target", "exp_0:001")],
)
def test_what_names_no_task_or_two_things_is_refused(here: Path, words: tuple[str, ...]):
    called = kept("refine", *words)
    assert called.code == 2
    assert "hint:" in called.stderr and "Traceback" not in called.stderr


def test_a_task_without_a_run_is_refused_with_what_to_do(here: Path):
    experiment = kept("experiment", "create", "Sales", "--json").json["experiment_id"]
    kept("experiment", "task", "create", experiment, "Write a report")
    called = kept("refine", "--target", f"{experiment}:001")
    assert called.code == 2 and "set-best" in called.stderr


def test_a_refinement_of_a_task_goes_on_after_an_error(
    here: Path, stage: Stage, server: ModelServer
):
    made = Made()
    stage.gone = True
    assert kept("refine", "--target", made.target, "--iterations", "1").code == 3
    assert str(made.told("session.json")["stop_reason"]).startswith("error:")
    stage.gone = False
    stage.plays = [one.play() for one in scores(0.9)]
    again = kept("resume")
    assert again.code == 0, again.stderr
    assert made.told("session.json")["stop_reason"] == "max_iterations"
    assert (made.folder / "BEST" / "report.md").is_file()
