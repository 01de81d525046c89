"""`kept refine` as a person types it: what it says, what it leaves, with which code it ends."""

import gc
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kept.orchestrator.refine.best import winning_run
from kept.orchestrator.refine.session import refining
from kept.orchestrator.run_folder.read import read_loss
from kept.results.summary import values
from kept.sandbox.capabilities import abilities
from kept.store.home import Home
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.testing.server import Fault, ModelServer, Seen
from kept.ui.web.run_page import headline
from kept.ui.web.templates import figure
from tests.orchestrator.play import Play, Say, say
from tests.orchestrator.run_folder.made import perfect_run, synthetic_run
from tests.recipes.refine.world import TASK, Attempted, scores
from tests.ui.cli.tasks import Called, kept

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

MODEL = "openai_compatible/m"
GONE = Fault("status", 400)


class Stage:
    """Plays one after the other: the next begins with the brief of the next iteration."""

    def __init__(self, attempts: Sequence[Attempted]) -> None:
        self.plays = [one.play() for one in attempts]
        self.at = 0
        self.gone = False
        self.briefs: dict[str, int] = {}
        self.loops = 10
        """Of an iteration: half of what the seed had."""
        self.frozen: list[int] = []
        """Objects that nobody looks for garbage among, at each call."""

    def __call__(self, seen: Seen) -> Say:
        self.frozen.append(gc.get_freeze_count())
        text = "\n".join(line.text for line in seen.lines)
        if "## REFINEMENT CONTEXT" in text:
            # who asks again after a kill is told the same
            self.at = self.briefs.setdefault(text, len(self.briefs))
        if self.gone:
            return GONE
        play: Play = self.plays[min(self.at, len(self.plays) - 1)]
        play.loops = self.loops
        return play.of_server(seen)


@pytest.fixture
def stage() -> Stage:
    return Stage(scores(0.7, 0.8, 0.9))


@pytest.fixture(autouse=True)
def server(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(stage) as made:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", made.v1)
        yield made


def seed_in(folder: Path, **more: object) -> Path:
    return synthetic_run(folder / "seed", task=TASK, models={"manager": MODEL}, **more)


def refine(seed: Path, *words: str) -> Called:
    return kept("refine", str(seed), *words)


def the_session(seed: Path) -> dict[str, object]:
    (path,) = (seed / "refinement_sessions").iterdir()
    return json.loads(path.read_text())


@pytest.mark.usefixtures("nothing_aside")
def test_a_run_that_gets_better_ends_with_0_and_best_holds_it(here: Path, stage: Stage):
    seed, frozen = seed_in(here), gc.get_freeze_count()
    called = refine(seed)
    assert called.code == 0, called.stderr
    # while it goes on modules are no garbage, as in every sitting
    assert min(stage.frozen) > frozen + 10_000
    assert "better: loss 0." in called.stdout
    lines = called.stderr.splitlines()
    for k in (1, 2, 3):
        (began,) = (n for n, line in enumerate(lines) if f"iteration {k} of 3 starts from" in line)
        (ended,) = (n for n, line in enumerate(lines) if f"iteration {k} of 3  keep" in line)
        assert any(line.startswith("turn 1") for line in lines[began:ended])
        assert f"attempt {k}" in called.stdout and "given: " in called.stdout
    # each loss with its parts: a gain of the budget alone is no better deliverable
    assert called.stdout.count("= eval 0.") == 4
    assert (seed / "BEST" / "report.md").read_text() == "# Report\n\nVersion 3.\n"
    assert the_session(seed)["stop_reason"] == "max_iterations"
    # the models are the seed's, where nobody names others
    told = json.dumps(the_session(seed))
    assert told.count(f'"model_manager": "{MODEL}"') == 3


def test_what_is_better_and_not_in_best_is_told_with_its_own_place(here: Path):
    seed = seed_in(here)
    (seed / "BEST").mkdir()
    told = {"best_run_id": "old", "best_loss": 0.9, "measure": "race:0"}
    (seed / "BEST" / "manifest.json").write_text(json.dumps(told))
    called = refine(seed, "--iterations", "1", "--json")
    assert called.code == 1, called.stderr
    place = Path(called.json["best"])
    assert (place / "report.md").read_text() == "# Report\n\nVersion 1.\n"
    assert "cannot be compared" in called.json["best_left"]
    assert not (seed / "BEST" / "report.md").exists()
    (seed / "BEST" / "manifest.json").write_text(
        json.dumps({"best_run_id": "old", "best_loss": 0.0})
    )
    called = refine(seed, "--iterations", "1")
    assert "BEST is left as it is: it holds run old" in " ".join(called.stdout.split())
    assert "seed/BEST" not in called.stdout


def test_a_second_refinement_starts_from_best_and_the_seed_only_on_request(
    here: Path, stage: Stage
):
    seed = seed_in(here)
    first = refine(seed, "--iterations", "1", "--json").json
    stage.plays = [one.play() for one in scores(0.75, 0.9, 0.95)]
    called = refine(seed, "--iterations", "2", "--json")
    assert called.code == 0, called.stderr
    won = first["iterations"][0]["run_id"]
    assert (called.json["started_from"], called.json["start_run_id"]) == ("BEST", won)
    assert called.json["seed_loss"] == first["best_loss"]
    told = json.loads(Path(called.json["session"]).read_text())
    assert told["start_run_id"] == won != told["seed_run_id"]
    assert told["start_loss"] < told["seed_loss"]
    assert told["iterations"][0]["parent_run_id"] == won
    folder = here / ".kept" / "refinements" / told["session_id"]
    assert (folder / "iter_1" / "input" / "report.md").read_text() == "# Report\n\nVersion 1.\n"
    manifest = json.loads((seed / "BEST" / "manifest.json").read_text())
    assert manifest["best_run_id"] == called.json["iterations"][1]["run_id"]
    assert manifest["seed_loss"] == told["seed_loss"]
    again = refine(seed, "--iterations", "1", "--from", "seed", "--json")
    assert again.json["started_from"] == "seed"
    told = json.loads(Path(again.json["session"]).read_text())
    assert told["iterations"][0]["parent_run_id"] == told["seed_run_id"]


def test_a_second_refinement_without_a_gain_ends_with_1_and_says_why(here: Path, stage: Stage):
    seed = seed_in(here)
    stage.plays = [one.play() for one in scores(0.9, 0.5, 0.7)]
    assert refine(seed, "--iterations", "1").code == 0
    before = (seed / "BEST" / "manifest.json").read_text()
    called = refine(seed, "--iterations", "1")
    assert called.code == 1
    assert "BEST did not move: BEST's loss of 0." in called.stderr
    assert "is still the least" in called.stdout
    # better than the seed is no move of BEST
    called = refine(seed, "--iterations", "1", "--from", "seed")
    assert called.code == 1, called.stdout
    assert "better: loss" in called.stdout
    assert "BEST did not move: it holds run" in called.stderr
    assert (seed / "BEST" / "manifest.json").read_text() == before


def test_in_a_copied_project_best_is_of_the_copy(
    here: Path, stage: Stage, tmp_path_factory: pytest.TempPathFactory
):
    seed = seed_in(here)
    stage.plays = [one.play() for one in scores(0.75, 0.7)]
    assert refine(seed, "--iterations", "1").code == 0
    copied = tmp_path_factory.mktemp("copied") / "project"
    shutil.copytree(here, copied)
    its_own = copied / seed.relative_to(here)
    where = winning_run(its_own)
    assert where is not None and where.is_relative_to(copied)
    first = winning_run(seed)
    assert first is not None and first.is_relative_to(here)
    shutil.rmtree(copied / ".kept" / "refinements")
    assert winning_run(its_own) == first


def test_a_best_without_findings_has_nothing_to_refine(here: Path, stage: Stage):
    seed = seed_in(here)
    stage.plays = [Attempted(0.95, defects=()).play()]
    assert refine(seed, "--iterations", "2").code == 0
    called = refine(seed)
    assert (called.code, len(stage.briefs)) == (0, 1)
    assert "nothing to refine in BEST" in called.stdout


def test_a_session_that_started_from_best_goes_on_after_best_has_moved(here: Path, stage: Stage):
    seed = seed_in(here)
    assert refine(seed, "--iterations", "1").code == 0
    stage.plays = [one.play() for one in scores(0.7, 0.8)]
    stage.plays.append(Play([GONE]))
    assert refine(seed, "--iterations", "3").code == 3
    assert (seed / "BEST" / "report.md").read_text() == "# Report\n\nVersion 2.\n"
    stage.plays[2] = Attempted(0.95, "# Report\n\nVersion 3.\n").play()
    called = kept("resume")
    assert called.code == 0, called.stderr
    assert (seed / "BEST" / "report.md").read_text() == "# Report\n\nVersion 3.\n"


def test_a_best_whose_run_is_gone_is_told_of_and_the_seed_is_refined(here: Path):
    seed = seed_in(here)
    assert refine(seed, "--iterations", "1").code == 0
    shutil.rmtree(here / ".kept" / "refinements")
    called = refine(seed, "--iterations", "1", "--json")
    assert called.json["started_from"] == "seed"
    assert "the run that BEST is from is gone" in called.stderr


def test_nothing_to_refine_ends_with_0_and_asks_nobody(here: Path, server: ModelServer):
    called = refine(perfect_run(here / "seed"))
    assert (called.code, len(server.log)) == (0, 0)
    assert "nothing to refine" in called.stdout
    assert the_session(here / "seed")["stop_reason"] == "empty_gradient"


def test_no_gain_ends_with_1_and_leaves_no_best(here: Path, stage: Stage):
    seed = seed_in(
        here, eval={"score": 1.0}, critique={"score": 1.0, "defects": [{"summary": "x"}]}
    )
    called = refine(seed, "--iterations", "2")
    assert called.code == 1, called.stderr
    assert "no gain" in called.stdout
    assert the_session(seed)["best_iter"] == 0
    assert not (seed / "BEST").exists()


def test_attempts_that_leave_nothing_are_told_and_the_lists_have_the_loss_of_the_seed(
    here: Path, stage: Stage
):
    seed = seed_in(here)
    stage.plays = [Attempted(text=None).play()]
    called = refine(seed, "--iterations", "5")
    assert called.code == 1, called.stderr
    lines = called.stderr.splitlines()
    for k in (1, 2):
        assert any(line.startswith(f"iteration {k} of 5  skip  it left no") for line in lines)
    loss = f"{read_loss(seed).total:.3g}"
    listed = kept("runs").stdout
    assert f"0 of 2       loss {loss}" in listed and "no score" not in listed
    home = Home(here / ".kept")
    (folder,) = home.folders()
    glance = Glance(folder).refresh()
    with Run(folder) as run:
        assert glance.values == values(run.state)
    assert headline(glance) == f"nothing beat the seed: loss {figure(glance.values[0])}"
    assert figure(glance.values[0]) == figure(read_loss(seed).total)


def test_optimize_refines_the_folder_of_a_finished_run(here: Path):
    called = kept("optimize", str(seed_in(here)), "--json")
    assert called.code == 0, called.stderr
    assert the_session(here / "seed")["stop_reason"] == "max_iterations"


def test_optimize_ends_with_1_without_a_gain_where_it_is_told_to(here: Path, stage: Stage):
    stage.plays = [one.play() for one in scores(0.1, 0.1)]
    seed = seed_in(here)
    called = kept("optimize", str(seed))
    assert called.code == 0
    assert called.stderr.splitlines()[0].endswith(" is a finished run, to be refined")
    assert kept("optimize", str(seed), "--fail-if-no-gain").code == 1


@pytest.mark.parametrize("lacking", ["folder", "run_completion.json", "FINAL"])
def test_what_cannot_begin_ends_with_2_and_says_why(here: Path, lacking: str):
    seed = here / "seed"
    if lacking != "folder":
        seed_in(here)
    if lacking == "run_completion.json":
        (seed / lacking).unlink()
    if lacking == "FINAL":
        (seed / "FINAL" / "out.md").unlink()
    called = refine(seed)
    assert called.code == 2
    assert "hint:" in called.stderr
    assert "Traceback" not in called.stderr


def test_an_error_ends_with_3_and_a_resume_goes_on(here: Path, stage: Stage, server: ModelServer):
    seed = seed_in(here)
    stage.gone = True
    called = refine(seed)
    assert called.code == 3, called.stdout + called.stderr
    assert "kept resume" in called.stderr
    assert str(the_session(seed)["stop_reason"]).startswith("error:")
    stage.gone = False
    again = kept("resume")
    assert again.code == 0, again.stderr
    assert the_session(seed)["stop_reason"] == "max_iterations"


def test_a_second_refinement_of_a_run_that_is_being_refined_is_refused(
    here: Path, stage: Stage, server: ModelServer
):
    seed = seed_in(here)
    with refining((seed,), "refine_first"):
        called = refine(seed)
        assert (called.code, len(server.log)) == (2, 0)
        told = f"`seed` is being refined already: session refine_first, process {os.getpid()}"
        assert told in called.stderr and f"kill -INT {os.getpid()}" in called.stderr
        assert not (seed / "refinement_sessions").exists() and not kept("runs", "--json").json
    # what a killed process left holds nobody back
    (seed / ".refining.lock").write_text("1\nrefine_killed")
    stage.gone = True
    assert refine(seed, "--iterations", "1").code == 3
    assert not (seed / ".refining.lock").exists()
    with refining((seed,), "refine_second"):
        assert "session refine_second" in kept("resume").stderr


def test_flags_that_a_refinement_cannot_be_resumed_with_are_refused(here: Path, stage: Stage):
    stage.gone = True
    called = refine(seed_in(here), "--iterations", "1")
    assert called.code == 3
    # nothing was tried to its end, so that nobody knows whether there is a gain
    assert "no attempt came to its end: the seed's loss of" in called.stdout
    assert "no gain" not in called.stdout
    stage.gone = False
    stage.plays = [one.play() for one in scores(0.9)]
    called = kept("resume", "--set", "budget.max_loops=3", "--workers", "2")
    assert called.code == 2, called.stderr
    assert "a refinement is not resumed with --set and --workers" in called.stderr
    assert "hint:" in called.stderr
    called = kept("resume", "--set", "budget.max_usd=3")
    assert called.code == 2 and "no readings that `budget.max_usd` limits" in called.stderr
    # that it does anyway
    assert kept("resume", "--fail-if-no-gain").code == 0


def test_models_that_are_none_are_told_with_where_each_is_from(here: Path, server: ModelServer):
    seed = synthetic_run(here / "seed", task=TASK, models={"manager": "deepseek/v3"})
    called = refine(seed)
    assert (called.code, "--set" in called.stderr) == (2, False)
    assert "the manager of the seed run, `deepseek/v3`: `deepseek` is no" in called.stderr
    assert "name others with --model" in called.stderr
    called = refine(seed, "--tier-low", f"{MODEL}:x", "--tier-high", f"{MODEL}:y")
    assert "--tier-low: `x` is not a model" in called.stderr
    assert "--tier-high: `y` is not a model" in called.stderr
    assert len(server.log) == 0


def test_a_pair_that_can_be_read_in_two_ways_ends_with_2_and_the_way_out(here: Path):
    called = refine(seed_in(here), "--tier-low", "ollama/a:8b:ollama/b:8b")
    assert called.code == 2
    assert "manager=...,worker=..." in called.stderr


def test_tiers_and_plain_models_together_are_told_of_in_the_seeds_words(here: Path):
    pair = f"{MODEL}:{MODEL}"
    words = ("--tier-low", pair, "--tier-high", pair, "--model", "x/y", "--iterations", "1")
    called = refine(seed_in(here), *words)
    assert called.code == 0, called.stderr
    mixed = "refinement.mixed_body: tier_* set; ignoring legacy model/worker_model"
    assert mixed in " ".join(called.stderr.split())


def test_the_answer_for_programs_has_the_losses_with_their_parts(here: Path):
    called = refine(seed_in(here), "--json", "-q", "--iterations", "1")
    told = json.loads(called.stdout)
    assert (told["best_iter"], told["stop_reason"]) == (1, "max_iterations")
    assert set(told["seed_loss_breakdown"]) >= {"eval", "critique", "total"}
    assert Path(told["session"]).is_file()


def test_a_run_of_ours_is_refined_by_its_name(here: Path, monkeypatch: pytest.MonkeyPatch):
    first = scores(0.65)[0].play()
    first.loops = 20
    with ModelServer(first.of_server) as own, monkeypatch.context() as patched:
        patched.setenv("OPENAI_COMPATIBLE_BASE_URL", own.v1)
        made = kept("agent", "run", TASK, "--model", MODEL, "--max-loops", "20")
    assert made.code in (0, 1), made.stderr
    called = kept("refine", "last", "--iterations", "1")
    assert called.code == 0, called.stderr
    (seed,) = (p.parent for p in (here / ".kept" / "runs").glob("*/BEST"))
    assert (seed / "BEST" / "report.md").is_file()
    shown = kept("show", "last").stdout
    assert "from Python" not in shown and seed.name in shown, shown
    assert called.stdout.strip() in shown, "it is told as it was at its end"
    # the refinement is a run, too, and not what a person means
    again = kept("refine", "last", "--iterations", "1")
    assert again.code in (0, 1), again.stderr


@pytest.mark.parametrize(("asked", "done"), [("0", 1), ("-4", 1)])
def test_as_many_iterations_as_a_session_may_have_are_told_of(here: Path, asked: str, done: int):
    called = refine(seed_in(here), f"--iterations={asked}", "--json")
    assert called.code == 0, called.stderr
    assert f"1 to 10 iterations: {done} instead of {asked}" in " ".join(called.stderr.split())
    assert len(called.json["iterations"]) == done


def test_more_iterations_than_ten_are_told_of_where_there_is_nothing_to_do(here: Path):
    called = refine(perfect_run(here / "seed"), "--iterations", "11")
    assert "1 to 10 iterations: 10 instead of 11" in " ".join(called.stderr.split())


def test_help_names_every_flag():
    text = kept("refine", "--help").stdout
    flags = ("--iterations", "--model", "--worker-model", "--tier-low", "--tier-mid", "--tier-high")
    assert all(flag in text for flag in flags)


def test_every_iteration_is_a_run_with_the_run_that_it_started_from(here: Path, stage: Stage):
    stage.plays = [one.play() for one in scores(0.8, 0.7, 0.9)]
    seed = seed_in(here)
    assert refine(seed).code == 0
    rows = kept("runs", "--json").json
    mine = [row for row in rows if row["refinement"]]
    assert [row["iteration"] for row in mine] == [1, 2, 3]
    assert {row["refinement"] for row in mine} == {rows[0]["id"]}
    first, second, third = (row["id"] for row in mine)
    # the second was worse, so the third started from the first as well
    assert [row["parent_run_id"] for row in mine] == ["seed_1", first, first]
    for row in mine:
        told = json.loads((Path(row["folder"]) / "run_completion.json").read_text())
        assert told["run_id"] == row["id"] and told["parent_run_id"] == row["parent_run_id"]
    listed = kept("runs").stdout
    assert second in listed and "iteration 2" in listed and f"from {first}" in listed
    # again from the index, which has them now
    assert kept("runs", "--json").json == rows
    shown = kept("show", third)
    assert shown.code == 0 and "loss: 0." in shown.stdout, shown.stderr
    assert kept("show", third[-8:], "--json").json["parent_run_id"] == first
    again = kept("refine", third, "--iterations", "1", "--json")
    assert again.code in (0, 1), again.stderr
    assert again.json["session"].startswith(str(Path(mine[2]["folder"]).resolve()))


def test_a_race_tells_what_it_read_and_how_noisy_that_was(here: Path, stage: Stage):
    seed = seed_in(here)
    for play in stage.plays:
        play.critic = lambda user: say(
            {"score": 0.9 if "Version" in user else 0.7, "defects": [], "summary": "so"}
        )
    called = refine(seed, "--gate", "race", "--iterations", "1")
    assert called.code == 0, called.stderr
    assert "noise" in called.stdout and "none: 5 readings agree" in called.stdout
    title = called.stdout.partition("\n")[0]
    assert title.endswith("(iteration 1), down from 0.2150, each the mean of its readings")
    (row,) = (line for line in called.stdout.splitlines() if line.startswith("seed "))
    assert " 0.2150 = " in row and row.endswith("(mean of 3 readings)")
    assert "(complete, by its own run)" in called.stdout
    assert (seed / "BEST" / "report.md").is_file()
    told = the_session(seed)
    assert told["gate"] == "race" and told["noise"] == {"deviation": 0.0, "readings": 5}
    once = refine(seed_in(here / "other"), "--iterations", "1")
    assert "not measured: each loss is of one run" in once.stdout
    assert refine(seed, "--cases", "criteria.jsonl").code == 2


def test_a_race_says_which_attempt_nobody_could_judge_and_a_resume_judges_it(
    here: Path, stage: Stage
):
    away = True

    def critic(user: str) -> Say:
        new = "Version" in user
        if new and away and "Everything that was to be delivered" in user:
            return Fault("status", 503, retry_after=0.01)
        return say({"score": 0.9 if new else 0.7, "defects": [], "summary": "so"})

    stage.plays[0].critic = critic
    seed = seed_in(here)
    called = refine(seed, "--gate", "race", "--iterations", "1")
    assert called.code == 3, called.stdout + called.stderr
    assert "attempt 1: the readings had no answer" in called.stdout
    assert "iteration 1 ran, and could not be judged" in called.stderr
    shown = kept("show").stdout
    assert "attempt 1: the readings had no answer" in shown and "measure    mean loss" in shown
    assert kept("show", "--json").json["refinement"]["unread"] == [1]
    away = False
    called = kept("resume", "--json")
    assert called.code == 0, called.stderr
    assert (called.json["best_iter"], called.json["unread"]) == (1, [])
    assert len(stage.briefs) == 1, "it was not run again"


def test_a_race_that_an_error_ended_says_so_in_words(here: Path, stage: Stage):
    stage.gone = True
    seed = seed_in(here)
    called = refine(seed, "--gate", "race", "--iterations", "1")
    assert called.code == 3, called.stderr
    assert "--gate race" not in called.stdout and "no deliverable was read twice" in called.stdout
    assert "after an error" in called.stdout and "error:" not in called.stdout
    assert str(the_session(seed)["stop_reason"]).startswith("error:")
    assert "(by its own run)" in called.stdout


def test_models_whose_price_is_not_known_are_told_of_once_each(
    here: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    one = f"{{provider: openai, model: m, base_url: '{server.v1}'}}"
    known = (
        f"{{provider: openai, model: k, base_url: '{server.v1}', price: {{input: 1, output: 1}}}}"
    )
    text = f"models:\n  manager: {one}\n  worker: {one}\n  critic: {known}\n"
    (here / "run.yaml").write_text(text)
    called = refine(seed_in(here), "--config", "run.yaml", "--iterations", "1")
    assert called.code == 0, called.stderr
    assert called.stderr.count("is not known: what it costs is not counted") == 1, called.stderr
    assert "the price of `openai/m` is not known" in called.stderr


@pytest.mark.parametrize("name", ["BEST", ".BEST.new", "refinement_sessions", ".refining.lock"])
def test_a_link_in_the_seed_is_refused_before_anything_is_asked_or_written(
    here: Path, server: ModelServer, name: str
):
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine").write_text("mine")
    seed = seed_in(here)
    (seed / name).symlink_to(elsewhere / "mine" if name == ".refining.lock" else elsewhere)
    called = refine(seed)
    assert (called.code, len(server.log)) == (2, 0)
    assert f"`{name}` is a link" in called.stderr and "hint: remove the link" in called.stderr
    assert {path.name: path.read_text() for path in elsewhere.iterdir()} == {"mine": "mine"}


def test_a_changed_file_of_an_iteration_is_named_never_refined_and_written_again(here: Path):
    seed = seed_in(here)
    assert refine(seed, "--iterations", "1").code == 0
    (run,) = here.glob(".kept/refinements/*/iter_1/workspace/runs/*")
    iteration = run.parents[2]
    places = [run, iteration / "input", iteration / "output", iteration / "logs"]
    places += [seed / "BEST", seed / "refinement_sessions"]
    files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
    files += [iteration / "gradient_input.json"]
    assert len(files) > 20
    for path in files:
        whole = path.read_bytes()
        at = len(whole) // 2
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        told = kept("doctor", "last").stdout
        assert f"{path}: warning: is not what the journal says" in told, path
        assert f"wrote {path} again" in kept("doctor", "last", "--repair").stdout
        assert path.read_bytes() == whole
    completion = run / "run_completion.json"
    completion.write_bytes(completion.read_bytes().replace(b"0.", b"1.", 1))
    for name in (run.name, str(run)):
        called = kept("refine", name)
        assert called.code == 2
        assert f"{completion} is not what the journal of run " in called.stderr
        assert "--repair` writes it again" in called.stderr
    assert kept("doctor", "last", "--repair").code == 0
    assert kept("refine", run.name, "--iterations", "1").code in (0, 1)
    # of a session that starts from BEST as well, nothing is found that was not changed
    assert refine(seed, "--iterations", "1").code in (0, 1)
    assert "is not what the journal says" not in kept("doctor", "last").stdout
