"""`kept optimize`: what it prints, writes and exits with."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kept.engine import rollout
from kept.store.reader import Run
from tests.ui.cli.tasks import RUN, SCORE, kept, write_task

pytestmark = pytest.mark.slow


def test_the_answer_is_on_stdout_and_the_steps_are_on_stderr(here: Path):
    write_task(here)
    called = kept("optimize", "task.yaml")
    assert called.code == 0
    lines = called.stdout.splitlines()
    assert lines[0] == "score 1 → 3"
    assert "2 kept, 1 discarded, 1 crashed" in called.stdout
    assert "step" not in lines[0]
    assert called.stderr.splitlines()[0] == "task.yaml is a task"
    steps = [line for line in called.stderr.splitlines() if line.startswith("step ")]
    assert [line.split()[2] for line in steps] == ["discard", "keep", "crash", "keep", "skip"]
    assert "strictly better: `score` 2 → 3  (variant alternatives/4-best.md)" in steps[3]


def test_turns_of_a_dry_proposer_are_not_counted_as_proposals(here: Path):
    write_task(here)
    called = kept("optimize", "task.yaml", "--set", "width=4")
    counts = "2 kept, 1 discarded, 1 crashed; 4 turns proposed nothing"
    assert f"proposals  4: {counts}" in called.stdout
    assert f"4 proposals: {counts}." in kept("report").stdout
    assert "  2 of 4  " in kept("runs").stdout
    told = kept("show", "--json").json
    assert (told["steps"], told["proposals"], told["keeps"]) == (8, 4, 2)
    (row,) = kept("runs", "--json").json
    assert (row["steps"], row["proposals"]) == (8, 4)


def test_a_list_of_runs_made_by_an_older_version_is_made_anew(here: Path):
    write_task(here)
    kept("optimize", "task.yaml")
    with closing(sqlite3.connect(here / ".kept" / "index.db")) as database, database:
        database.execute("CREATE TABLE runs (id, steps, PRIMARY KEY (id))")
    for _ in range(2):
        assert [row["proposals"] for row in kept("runs", "--json").json] == [4]


def test_the_commands_that_the_answer_names_work(here: Path):
    write_task(here)
    answer = kept("optimize", "task.yaml").stdout
    named = [line.partition("kept ")[2].split() for line in answer.splitlines() if "kept " in line]
    assert [words[0] for words in named if words[0] in ("report", "diff")] == ["report", "diff"]
    for words in (words for words in named if words[0] in ("report", "diff")):
        assert kept(*words).code == 0


def test_a_run_of_another_folder_is_named_by_its_path(here: Path):
    write_task(here / "deep" / "task")
    answer = kept("optimize", "deep/task").stdout
    (report,) = [line for line in answer.splitlines() if "kept report" in line]
    name = report.split()[-1]
    assert name.startswith("deep/task/.kept/runs/")
    assert kept("report", name).stdout.startswith("# score 1 → 3")


def test_the_sources_are_not_touched_and_the_best_is_in_the_folder(here: Path):
    write_task(here)
    folder = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    assert (here / "prompt.md").read_text() == "good\n"
    assert (folder / "best" / "prompt.md").read_text() == "good good\ngood\n"


def test_json_is_one_document(here: Path):
    write_task(here)
    told = kept("optimize", "task.yaml", "--json").json
    assert told["status"] == "finished"
    assert told["stopped"]["kind"] == "nothing left to propose"
    assert told["improved"] is True
    assert (told["seed"]["value"], told["best"]["value"]) == (1, 3)
    assert told["seed"]["candidate"] != told["best"]["candidate"]
    assert (told["steps"], told["keeps"], told["spend"]["rollouts"]) == (5, 2, 5 + 2 + 1 * 2)
    assert Path(told["folder"]).name == told["run"]


def test_a_report_is_left_in_the_folder(here: Path):
    write_task(here)
    folder = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    assert (folder / "report.md").read_text().startswith("# score 1 → 3")
    assert not list(folder.glob(".report.md*"))


def test_quiet_leaves_only_the_answer(here: Path):
    write_task(here)
    called = kept("optimize", "task.yaml", "-q")
    assert called.stderr == ""
    assert called.stdout.startswith("score 1 → 3")


def test_set_changes_a_value_of_the_spec_for_this_run(here: Path):
    write_task(here)
    told = kept("optimize", "task.yaml", "--json", "--set", "budget.max_iterations=1").json
    assert told["steps"] == 1
    assert told["stopped"]["kind"] == "iterations"


def test_workers_is_a_value_of_the_spec_too(here: Path):
    write_task(here)
    folder = Path(kept("optimize", "task.yaml", "--json", "--workers", "3").json["folder"])
    assert Run(folder).settings.workers == 3


def test_max_usd_is_a_value_of_the_spec_too_and_is_kept_to(here: Path):
    write_task(here)
    price = ("--set", "budget.usd_per_rollout=0.1")
    told = kept("optimize", "task.yaml", "--max-usd", "0.25", *price, "--json").json
    assert told["stopped"]["kind"] == "usd"
    assert told["spend"]["usd"] <= 0.25


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--fail-if-no-gain"], 1)])
def test_no_gain_is_an_error_only_when_asked_for(here: Path, flags: list[str], code: int):
    write_task(here, texts={"worse": "nothing\n"})
    called = kept("optimize", "task.yaml", *flags)
    assert called.code == code
    assert called.stdout.startswith("nothing beat the seed: score 1")
    assert "best  " not in called.stdout


def test_a_gain_is_no_error_with_the_flag(here: Path):
    write_task(here)
    assert kept("optimize", "task.yaml", "--fail-if-no-gain").code == 0


def test_every_problem_of_a_spec_is_told_at_once(here: Path):
    spec = write_task(here)
    spec.write_text(spec.read_text().replace("maximize", "upwards").replace("width", "widht"))
    called = kept("optimize", "task.yaml")
    assert called.code == 2
    assert called.stdout == ""
    problems = called.stderr.splitlines()
    assert len(problems) == 2
    assert all(line.startswith("error: task.yaml:") for line in problems)
    assert not (here / ".kept").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["optimize", "absent.yaml"], "error: there is no absent.yaml\n\nhint: "),
        (["optimize"], "error: missing argument 'SPEC'\n\nhint: `kept optimize --help`"),
        (["optimize", "x", "--wat"], "error: no such option"),
        (["optimise"], "error: there is no command `optimise`; `optimize` may be meant"),
        (["task.yaml"], "`kept optimize task.yaml` may be meant"),
    ],
)
def test_what_cannot_run_exits_with_2_and_a_hint(args: list[str], message: str):
    called = kept(*args)
    assert called.code == 2
    assert called.stdout == ""
    assert message in called.stderr
    assert "hint: " in called.stderr


@pytest.mark.parametrize(
    ("run", "score"),
    [("exec no-such-command-anywhere", SCORE), (RUN, "echo fine"), ("exit 1", SCORE)],
    ids=["no such command", "no JSON", "not even the seed runs"],
)
def test_a_command_that_never_worked_is_mended_and_the_run_begun_anew(
    run: str, score: str, here: Path
):
    write_task(here, run=run, score=score)
    called = kept("optimize", "task.yaml", "--set", "budget.max_iterations=9")
    assert called.code == 3
    assert kept("optimize", "task.yaml", "--json").json["ok"] is False
    assert "\n\nhint: mend what failed, then `kept optimize task.yaml" in called.stderr
    command = called.stderr.partition("then `kept ")[2].partition("`")[0]
    report = (here / ".kept" / "runs" / run_ids()[-1] / "report.md").read_text()
    assert f"* `kept {command}` starts again, when what failed is mended." in report
    # what a candidate is to blame for is not asked for again
    assert ("kept resume" in report) is (run == RUN)
    write_task(here)
    again = kept(*command.split())
    assert again.code == 0
    assert again.stdout.startswith("score 1 → 3")
    assert len(run_ids()) == 3


def test_a_seed_that_never_runs_is_named_with_its_cause_however_few_candidates_there_are(
    here: Path,
):
    write_task(here, run="echo no key in the config >&2; exit 1", texts={"other": "good good\n"})
    called = kept("optimize", "task.yaml")
    assert called.code == 3
    assert called.stdout.startswith("nothing was kept, and the seed has no score\n")
    cause = "(every proposer has run dry): exit 1: no key in the config\n"
    assert f"error: the seed fails, and nothing was kept {cause}" in called.stderr
    assert "hint: mend what failed, then `kept optimize task.yaml` starts again" in called.stderr
    assert "kept resume" not in called.stderr, "what failed is not tried again"


@pytest.mark.parametrize(
    ("proposer", "why"),
    [
        (
            "{kind: edit, model: scripted/editor.jsonl}",
            "nothing changes (outside scope: ",
        ),
        ('{kind: command, command: "true"}', "the command changed nothing\n"),
    ],
)
def test_a_run_that_rolled_out_no_candidate_says_that_nothing_was_judged_and_why(
    proposer: str, why: str, here: Path
):
    write_task(here)
    edit = {"op": "append", "path": "other.md", "target": "", "text": "good"}
    reply = json.dumps({"why": "more", "cases": [], "edits": [edit]})
    (here / "editor.jsonl").write_text(f"{json.dumps({'text': reply})}\n" * 2)
    settings = (f"proposers=[{proposer}]", "budget.max_iterations=2")
    called = kept("optimize", "task.yaml", *(word for one in settings for word in ("--set", one)))
    assert called.stdout.startswith(f"nothing was judged: {why}")
    assert called.code == 0, "the seed may be fine: nothing was compared with it"


JUDGED = """\
artifacts: {include: [prompt.md]}
models: {judge: scripted/judge.jsonl}
runner: {command: "cat $KEPT_CANDIDATE/prompt.md"}
scorer: {type: judge, criteria: [{name: kind, means: It is kind.}]}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: command, command: "true"}, {kind: variants, files: [alternatives/*.md]}]
schedule: in_turn
sandbox: {walls: "off"}
width: 1
"""


@pytest.mark.parametrize(("iterations", "more"), [(20, ""), (2, " --set budget.max_iterations=N")])
def test_a_judge_that_never_answers_ends_a_run_however_idle_the_turns_in_between(
    iterations: int, more: str, here: Path
):
    write_task(here).write_text(f"{JUDGED}budget: {{max_iterations: {iterations}}}\n")
    (here / "judge.jsonl").write_text('{"text": "It is fine."}\n' * 200)
    called = kept("optimize", "task.yaml")
    assert called.code == 3
    (run,) = run_ids()
    assert kept("show", run, "--json").json["steps"] == 2
    assert "hint: mend what failed, then `kept optimize task.yaml` starts again" in called.stderr
    assert "there is no JSON in it" in called.stderr
    assert f"and has passed, `kept resume {run}{more}` goes on" in called.stderr


@pytest.mark.parametrize(
    ("said", "more", "hint"),
    [
        (
            "KeyError: 'SOME_API_KEY'",
            (),
            "`SOME_API_KEY` is set here, and commands do not get it: `sandbox: {env: "
            "[SOME_API_KEY]}`",
        ),
        ("KeyError: 'SOME_API_KEY'", ("--set", "sandbox.env=[SOME_API_KEY]"), ""),
        ("KeyError: 'NO_SUCH_KEY'", (), ""),
        (
            "urlopen error [Errno 101] Network is unreachable",
            (),
            "commands have no network here: `sandbox: {network: on}` in the task opens it",
        ),
        ("[Errno 101] Network is unreachable", ("--set", "sandbox.network=on"), ""),
    ],
)
def test_what_the_walls_keep_from_a_command_is_told_where_it_fails_for_it(
    said: str, more: tuple[str, ...], hint: str, here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SOME_API_KEY", "x")
    write_task(here, run=f'echo "{said}" >&2; exit 1', texts={"other": "good good\n"})
    called = kept("optimize", "task.yaml", *more)
    assert called.code == 3
    assert [line for line in called.stderr.splitlines() if "sandbox:" in line] == (
        [f"hint: {hint}"] if hint else []
    )


def test_an_error_is_told_once(here: Path):
    write_task(here, score="echo no rubric >&2; exit 1")
    called = kept("optimize", "task.yaml", "-q")
    assert called.code == 3
    assert (called.stdout + called.stderr).count("no rubric") == 1
    assert ", stopped by an error\n" in called.stdout
    assert "no rubric" in kept("show").stdout


def test_the_answer_says_where_the_run_is(here: Path):
    (here / ".kept").mkdir()
    below = here / "deep" / "task"
    write_task(below)
    called = kept("optimize", "deep/task/task.yaml")
    (folder,) = (here / ".kept" / "runs").iterdir()
    assert f"\nfolder     .kept/runs/{folder.name}\n" in called.stdout
    assert not (below / ".kept").exists()


def test_a_seed_that_fails_on_some_cases_needs_bounds(here: Path):
    write_task(here, run=f"grep -q 3 $KEPT_CASE && exit 1; {RUN}")
    (here / "cases.jsonl").write_text("".join(f"{n}\n" for n in range(10)))
    cases = ("--set", "cases={file: cases.jsonl, split: '0:1:0'}")
    free = kept("optimize", "task.yaml", *cases, "--set", "objective.bounds=")
    assert free.code == 3
    assert "error: 1 of 10 rollouts of the seed failed, and `score` has no bounds" in free.stderr
    assert "hint: give `objective.bounds`, of which a failure counts as the worst" in free.stderr
    assert kept("optimize", "task.yaml", *cases).code == 0


def test_after_an_outage_the_run_goes_on(here: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rollout, "BACKOFF", 0.001)
    write_task(here, run=f"ls u[p] || exit 75; {RUN}")
    called = kept("optimize", "task.yaml", "--set", "runner.retry_exit=75")
    assert called.code == 3
    assert "error: the evaluator does not answer" in called.stderr
    assert "mend what failed" not in called.stderr
    resume = called.stderr.partition("hint: `kept ")[2].partition("`")[0]
    (here / "up").touch()
    again = kept(*resume.split())
    assert again.code == 0
    assert again.stdout.startswith("score 1 → 3")
    assert len(run_ids()) == 1


def run_ids() -> list[str]:
    return [row["id"] for row in kept("runs", "--json").json]


def test_kept_home_says_where_runs_go(here: Path, monkeypatch: pytest.MonkeyPatch):
    write_task(here)
    monkeypatch.setenv("KEPT_HOME", str(here / "elsewhere"))
    folder = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    assert folder.parent == here / "elsewhere" / "runs"
    assert kept("show").code == 0
