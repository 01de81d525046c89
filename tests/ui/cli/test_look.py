"""`runs`, `show`, `diff`, `report`: reading a run, whatever state it is in."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import kept as library
from kept.store.journal import RunJournal
from kept.ui.cli.main import cli
from tests.ui.cli.tasks import kept, write_task


def score(candidate: library.Candidate, case: object) -> tuple[float, str]:
    if "crash" in candidate.text:
        raise RuntimeError("it fell over")
    return candidate.text.count("good") / 10, f"seen: {candidate.text!r}"


@pytest.fixture
def run(here: Path) -> library.Result:
    texts = ["no\n", "good\ngood\n", "crash\n", "good\ngood\ngood\n"]
    cases = [{"id": name} for name in "abcdef"]
    return library.optimize(
        "good\n", score, cases, proposers=texts, bounds=(0, 1), home=here / ".kept", width=1
    )


def test_runs_lists_the_newest_first(run: library.Result, here: Path):
    library.optimize("x", always_one, proposers=["y"], home=here / ".kept")
    lines = kept("runs").stdout.splitlines()
    assert len(lines) == 3
    assert run.run in lines[2]
    assert "finished" in lines[2]
    assert "score 0.1 → 0.3" in lines[2]


def test_runs_shows_as_many_as_asked_for(run: library.Result, here: Path):
    library.optimize("x", always_one, proposers=["y"], home=here / ".kept")
    called = kept("runs", "-n", "1", "--json")
    assert len(called.json) == 1
    assert called.json[0]["seed_value"] == 1.0
    assert "1 older runs are not shown" in kept("runs", "-n", "1").stderr


def test_looking_for_runs_makes_no_folder(here: Path):
    called = kept("runs")
    assert called.code == 0
    assert called.stdout == ""
    assert "there are no runs" in called.stderr
    assert kept("runs", "--json").json == []
    assert not (here / ".kept").exists()


@pytest.mark.parametrize("command", ["show", "diff", "report", "resume"])
def test_no_run_at_all_is_told_with_a_hint(command: str):
    called = kept(command)
    assert called.code == 2
    assert "there is no run in" in called.stderr
    assert "hint: " in called.stderr


@pytest.mark.parametrize("command", ["show", "diff", "report"])
def test_a_run_may_be_named_by_id_by_its_end_by_its_folder_or_as_last(
    command: str, run: library.Result
):
    outputs = {
        kept(command, *name).stdout
        for name in ((), ("last",), (run.run,), (run.run[-12:],), (str(run.folder),))
    }
    assert len(outputs) == 1
    assert outputs != {""}


@pytest.mark.usefixtures("run")
def test_show_has_a_line_for_every_step():
    lines = kept("show").stdout.splitlines()
    assert lines[0] == "score 0.1 → 0.3 on 3 holdout cases"
    start = next(at for at, line in enumerate(lines) if line.startswith("step  "))
    steps = [line.split()[:3] for line in lines[start + 1 :]]
    assert steps == [
        ["0", "variants", "discard"],
        ["1", "variants", "keep"],
        ["2", "variants", "crash"],
        ["3", "variants", "keep,"],
        ["4", "variants", "skip"],
    ]


@pytest.mark.usefixtures("run")
def test_show_tells_a_crash_without_a_score():
    told = kept("show", "--json").json
    assert told["closed"][2]["verdict"] == "crash"
    assert told["closed"][2]["value"] is None
    assert told["closed"][3]["value"] == pytest.approx(0.3)


@pytest.mark.usefixtures("run")
def test_show_step_has_proposal_edits_change_verdict_and_rollouts():
    text = kept("show", "--step", "1").stdout
    assert text.startswith("step 1: keep\n")
    assert "variant 2" in text
    assert "strictly better: `score` 0.1 → 0.2" in text
    assert "applied        write text" in text
    assert "+good" in text
    assert "challenger  decide" in text
    assert "score 0.2" in text
    assert "seen: " not in text


@pytest.mark.usefixtures("run")
def test_show_step_with_traces_says_what_happened_in_each_rollout():
    assert "info      seen: 'good\\ngood\\n'" in kept("show", "--step", "1", "-v").stdout
    told = kept("show", "--step", "1", "--traces", "--json").json
    assert told["rollouts"][0]["trace"][0]["text"].startswith("seen: ")


def test_show_step_saves_what_commands_left(here: Path):
    kept("optimize", str(write_task(here)), "-q", "--set", "gate=strict")
    called = kept("show", "--step", "1", "--save", "left")
    assert "left holds what 1 execution left" in called.stderr
    (folder,) = (here / "left").iterdir()
    assert folder.name == "challenger-decide-all-0"
    assert (folder / "prompt.md").read_text() == "good\ngood\n"
    assert (folder / "output.txt").read_text() == ""
    again = kept("show", "--step", "1", "--save", "left")
    assert again.code == 2
    assert "left is there already" in again.stderr
    assert kept("show", "--save", "other").code == 2


@pytest.mark.usefixtures("run")
def test_show_step_names_the_failures():
    text = kept("show", "--step", "2").stdout
    assert "exception, candidate's: RuntimeError: it fell over" in text


@pytest.mark.usefixtures("run")
def test_a_step_that_does_not_exist_is_refused():
    for command in ("show", "diff"):
        called = kept(command, "--step", "99")
        assert called.code == 2
        assert "has no step 99: the last one is 4" in called.stderr


@pytest.mark.usefixtures("run")
def test_traces_without_a_step_are_refused():
    assert kept("show", "-v").code == 2


@pytest.mark.usefixtures("run")
def test_diff_is_a_plain_unified_diff_when_nobody_watches():
    text = kept("diff").stdout
    assert text.startswith("--- a/text\n+++ b/text\n@@ ")
    assert "\x1b" not in text
    assert kept("diff", "--step", "0").stdout.splitlines()[-2:] == ["-good", "+no"]


@pytest.mark.usefixtures("run")
def test_diff_is_a_document_for_programs():
    told = json.loads(kept("diff", "--json").stdout)
    assert told["diff"] == kept("diff").stdout
    assert told["step"] is None
    assert json.loads(kept("diff", "--step", "0", "--json").stdout)["step"] == 0


def test_diff_of_a_run_without_a_gain_is_empty_and_says_so(here: Path):
    library.optimize("x", always_one, proposers=["y"], home=here / ".kept")
    called = kept("diff")
    assert (called.code, called.stdout) == (0, "")
    assert "nothing beat the seed" in called.stderr


def test_diff_gives_bytes_back_as_they_were(here: Path):
    odd = b"caf\xe9 \x1b[31mred\x1b[0m\n".decode("utf-8", "surrogateescape")
    library.optimize("x\n", length, proposers=[odd], home=here / ".kept")
    assert kept_bytes("diff").endswith(b"-x\n+caf\xe9 \x1b[31mred\x1b[0m\n")
    assert "caf\\udce9" in kept("show", "--step", "0", "--json").stdout
    assert kept("report").code == 0


def always_one(candidate: library.Candidate) -> float:
    return 1.0


def length(candidate: library.Candidate) -> float:
    return float(len(candidate.text))


def kept_bytes(*args: str) -> bytes:
    return CliRunner().invoke(cli, args).stdout_bytes


def test_report_is_printed_and_written_anew(run: library.Result):
    page = run.folder / "report.md"
    page.write_text("old")
    text = kept("report").stdout
    assert text.startswith("# score 0.1 → 0.3")
    assert page.read_text() == text


def test_report_is_printed_where_it_cannot_be_written(run: library.Result):
    # a folder in its place: root may write anywhere, so permissions would not do
    (run.folder / "report.md").mkdir()
    called = kept("report")
    assert called.code == 0
    assert called.stdout.startswith("# score 0.1 → 0.3")
    assert "cannot write" in called.stderr
    assert not list(run.folder.glob(".report.md*"))


@pytest.mark.parametrize("command", ["show", "diff", "report", "runs"])
def test_a_torn_last_line_hides_nothing_else(command: str, run: library.Result):
    with (run.folder / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"step_ope')
    with (run.folder / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"kind":"rollout","st')
    called = kept(command)
    assert called.code == 0
    assert called.stdout


@pytest.mark.parametrize("args", [["show"], ["show", "--step", "2"], ["report"], ["runs"]])
def test_a_run_can_be_looked_at_while_it_is_being_written(run: library.Result, args: list[str]):
    lines = (run.folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    # up to the proposal of step 2: it is open
    (run.folder / "journal.jsonl").write_bytes(b"".join(lines[:9]))
    writer = RunJournal(run.folder)
    try:
        called = kept(*args)
    finally:
        writer.close()
    assert called.code == 0
    assert "running" in called.stdout or "step 2: open" in called.stdout


def test_a_killed_run_is_told_as_such(run: library.Result):
    lines = (run.folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (run.folder / "journal.jsonl").write_bytes(b"".join(lines[:9]))
    (run.folder / "steps.idx").unlink()  # it tells how the run was closed
    assert "killed" in kept("runs").stdout
    assert kept("show", "--json").json["status"] == "killed"


def test_a_damaged_journal_is_named_with_its_line(run: library.Result):
    lines = (run.folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = b"what is this\n"
    (run.folder / "journal.jsonl").write_bytes(b"".join(lines))
    called = kept("show")
    assert called.code == 2
    assert "journal.jsonl:3" in called.stderr
    assert kept("runs").code == 0


@pytest.mark.parametrize("command", ["show", "diff", "report", "resume"])
def test_a_run_that_is_not_there_is_a_problem_in_json(command: str):
    called = kept(command, "nosuch", "--json")
    assert called.code == 2
    assert called.json["ok"] is False
    (told,) = called.json["problems"]
    assert told["problem"].startswith("no run `nosuch` in ")
    assert told["hint"] == "`kept runs` lists the runs there are"
    assert called.stderr.startswith("error: no run `nosuch`")


@pytest.mark.parametrize("command", ["show", "diff", "report", "resume", "adopt", "runs"])
def test_runs_one_folder_further_down_are_pointed_at(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch
):
    above = here / "above"
    library.optimize("x", always_one, proposers=["y"], home=above / "my task" / ".kept")
    monkeypatch.chdir(above)
    monkeypatch.setenv("KEPT_HOME", str(above / ".kept"))
    told = "there are runs in 'my task': `cd 'my task'` first"
    assert told in kept(command).stderr
