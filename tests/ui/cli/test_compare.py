"""`kept compare` on real commands: its answers, what it refuses, how it stops and goes on."""

import asyncio
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.verdict import ANSWERS, Verdict, View
from kept.recipes.compare.compile import compile_comparison
from kept.recipes.compare.request import Comparing
from kept.results.compare import comparison_of
from kept.run import start
from kept.store import codec
from kept.store.home import Home
from kept.ui.cli.main import cli
from tests.processes import start_kept
from tests.ui.cli.comparing import RUN, SPEC, STEADY, write_cases, write_comparison
from tests.ui.cli.tasks import Called, kept

CASES = ("--cases", "cases.jsonl")


def compare(*words: str) -> Called:
    return kept("compare", *words, *CASES)


def answers(called: Called) -> dict[str, str]:
    assert called.code == 0, called.stderr
    return {row["label"]: row["answer"] for row in called.json["comparison"]["challengers"]}


@pytest.mark.slow
def test_a_better_text_is_found_better_through_noise(here: Path):
    write_comparison(here)
    called = compare("prompt.md", "better.md")
    assert called.code == 0
    first, *_ = called.stdout.splitlines()
    assert first.startswith("better.md is better than prompt.md for cases like these: +0.")
    assert "12 cases, at most 384 rollouts" in called.stderr
    told = kept("show", "--json").json["comparison"]["challengers"][0]
    assert (told["answer"], told["here"]) == ("better", "better")
    assert told["low"] > 0
    assert told["value"] - told["seed_value"] == pytest.approx(told["difference"])


@pytest.mark.slow
def test_three_challengers_get_an_answer_each(here: Path):
    write_comparison(here)
    called = compare("prompt.md", "worse.md", "better.md", "alike.md", "--json", "--passes", "4")
    found = answers(called)
    assert found["better.md"] == "better"
    assert found["worse.md"] == "worse"
    # luck decides on this one; how seldom it does so wrongly is tested on the gate
    assert found["alike.md"] in ANSWERS
    rows = called.json["comparison"]["challengers"]
    assert [row["label"] for row in rows] == ["worse.md", "better.md", "alike.md"]
    assert [row["step"] for row in rows] == [0, 1, 2]


@pytest.mark.slow
def test_without_noise_nothing_is_repeated_and_the_answer_is_exact(here: Path):
    write_comparison(here, cases=18, run=STEADY)
    called = compare("prompt.md", "better.md", "--json", "--passes", "1")
    (row,) = called.json["comparison"]["challengers"]
    assert row["answer"] == "better"
    # chances above 128 pass: 2 of 9 as it is, all of them with 200 more
    assert (row["seed_value"], row["value"]) == (pytest.approx(4 / 18), 1)
    assert called.json["spend"]["rollouts"] == 36


@pytest.mark.slow
def test_the_answer_is_in_words_and_in_a_table(here: Path):
    write_comparison(here, cases=9, run=STEADY)
    shown = compare("prompt.md", "worse.md", "-q", "--passes", "1")
    words, table, about = shown.stdout.split("\n\n")
    assert words == (
        "Cannot tell with these 9 cases whether worse.md is better than prompt.md: -0.222 (-0.55\n"
        "… +0.283). Were the true difference as measured, it would take about 50 more cases (118\n"
        "rollouts in all) to find, four times out of five, that it is not better by more than\n"
        "0.05."
    ), words
    header, row = table.splitlines()
    assert header.split() == [
        "challenger",
        "score",
        "prompt.md",
        "difference",
        "cases",
        "rollouts",
        "answer",
    ]
    assert row.split()[:3] == ["worse.md", "0", "0.222222"]
    assert row.endswith("cannot tell")
    assert "18 rollouts" in about
    assert "cannot tell whether worse.md is better than prompt.md" in kept("show").stdout
    assert "# cannot tell whether worse.md is better" in kept("report").stdout


@pytest.mark.slow
def test_what_these_very_cases_show_is_told_apart_from_what_new_ones_would(here: Path):
    write_comparison(here, cases=20, run=STEADY)
    (here / "few.md").write_text("good\n")
    spread = ({"id": str(n), "chance": 60 if n < 4 else 0} for n in range(20))
    (here / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in spread))
    said = compare("prompt.md", "few.md", "-q").stdout
    assert "Cannot tell with these 20 cases" in said
    assert " ".join(said.split()).count(
        "Answers do not vary, so repeats would show nothing. On these very cases it is better; for "
        "new ones that is not shown."
    )


@pytest.mark.slow
def test_a_metric_that_is_to_be_low_is_told_in_its_own_direction(here: Path):
    write_comparison(here, run=STEADY, spec=SPEC.replace("maximize", "minimize"))
    called = compare("better.md", "worse.md", "--json", "--passes", "1")
    (row,) = called.json["comparison"]["challengers"]
    assert (row["answer"], row["difference"], row["low"], row["high"]) == ("better", -1, -1, -1)
    assert row["numbers"]["gain"] == 1


@pytest.mark.slow
def test_a_plan_runs_the_seed_twice_and_says_what_could_be_found(here: Path):
    write_comparison(here)
    called = kept("compare", "prompt.md", *CASES, "--plan")
    assert called.code == 0
    assert (
        "With these 12 cases, one pass of each side (24 rollouts) finds a gain of" in called.stdout
    )
    assert "is unknown before a challenger has run" in " ".join(called.stdout.split())
    told = kept("show", "--json").json
    assert told["spend"]["rollouts"] == 24
    plan = told["comparison"]["plan"]
    assert [row["passes"] for row in plan["forecasts"]] == [1, 2, 4, 8, 16]
    assert all(row["alike"] <= row["worst"] for row in plan["forecasts"])
    assert plan["noise"] > 0.2
    assert told["comparison"]["challengers"] == []
    assert "could show" in kept("report").stdout
    again = kept("resume")
    assert (again.code, again.stdout.splitlines()[0]) == (0, called.stdout.splitlines()[0])


@pytest.mark.slow
def test_a_plan_without_noise_has_one_row_and_says_so(here: Path):
    write_comparison(here, run=STEADY)
    called = kept("compare", "prompt.md", "better.md", *CASES, "--plan", "-q")
    assert "Answers of prompt.md do not vary" in called.stdout
    assert "At least 5 cases must get better, and none worse" in " ".join(called.stdout.split())
    rows = called.stdout.split("\n\n")[1].splitlines()
    assert [row.split()[:3] for row in rows[1:]] == [["1", "24", "any"]]
    assert "| 1 | 24 | any | " in kept("report").stdout


@pytest.mark.slow
def test_a_seed_that_never_runs_leaves_nothing_to_plan_and_a_challenger_that_never_does_no_better(
    here: Path,
):
    write_comparison(
        here, cases=8, run=f'grep -q bad "$KEPT_CANDIDATE/prompt.md" && exit 3\n{STEADY}'
    )
    called = kept("compare", "worse.md", *CASES, "--plan", "-q")
    assert "The noise of worse.md was not measured: every rollout failed: c" in called.stdout
    assert called.code == 3
    called = compare("prompt.md", "worse.md", "-q")
    assert "worse.md is no better than prompt.md: every rollout failed" in called.stdout
    assert called.code == 0
    assert answers(compare("worse.md", "better.md", "--json")) == {"better.md": "better"}


@pytest.mark.slow
def test_money_is_told_where_a_price_is_known(here: Path):
    write_comparison(here, run=STEADY)
    price = ("--set", "budget.usd_per_rollout=0.01", "--set", "budget.max_usd=5")
    called = compare("prompt.md", "worse.md", *price)
    assert "at most 384 rollouts, $11.52" in called.stderr
    assert "rollouts in all, $" in called.stdout
    assert "cost" in kept("compare", "prompt.md", *CASES, "--plan", *price).stdout


@pytest.mark.slow
def test_a_budget_leaves_as_many_passes_as_fit(here: Path):
    write_comparison(here)
    few = ("--set", "budget.max_rollouts=50", "--json")
    called = compare("prompt.md", "alike.md", *few)
    assert answers(called)["alike.md"] in ANSWERS
    assert called.json["spend"]["rollouts"] <= 48
    assert "at most 48 rollouts" in called.stderr
    called = compare("prompt.md", "alike.md", "better.md", "--set", "budget.max_rollouts=30")
    assert called.code == 2
    assert "room for 30 rollouts, and one pass of each side takes 36" in called.stderr
    assert "--set budget.max_rollouts=36" in called.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("prompt.md",), "there is nothing to compare with A: give B"),
        (("prompt.md", "gone.md"), "`gone.md` is no file or folder here"),
        (("prompt.md", "copy.md"), "`prompt.md` and `copy.md` are the same text"),
        (("prompt.md", "better.md", "again.md"), "`better.md` and `again.md` are the same text"),
        (("prompt.md", "better.md", "--task", "none.yaml"), "there is no none.yaml"),
        (("prompt.md", "better.md", "--set", "cases.split=1:0:0"), "leaves no holdout case"),
        (("prompt.md", "better.md", "--least", "inf"), "the least gain worth knowing of is inf"),
        (("prompt.md", "better.md", "--least", "nan"), "the least gain worth knowing of is nan"),
    ],
)
def test_what_cannot_be_compared_is_told_before_anything_is_spent(
    words: tuple[str, ...], message: str, here: Path
):
    write_comparison(here)
    (here / "copy.md").write_text((here / "prompt.md").read_text())
    (here / "again.md").write_text((here / "better.md").read_text())
    called = compare(*words)
    assert called.code == 2
    assert message in called.stderr
    assert not (here / ".kept").exists()


def test_cases_are_needed_and_enough_of_them(here: Path):
    write_comparison(here, cases=7)
    called = kept("compare", "prompt.md", "better.md")
    assert (called.code, "a comparison needs cases" in called.stderr) == (2, True)
    called = compare("prompt.md", "better.md")
    assert called.code == 2
    assert "7 cases cannot show anything for others like them" in called.stderr
    assert "give 8 or more" in called.stderr
    called = kept("compare", "prompt.md", "better.md", "--cases", "gone.jsonl")
    assert "--cases gone.jsonl cases.file: cannot read" in called.stderr


@pytest.mark.slow
def test_a_task_that_names_its_cases_needs_no_others_and_all_of_them_decide(here: Path):
    named = 'cases: {file: cases.jsonl, split: "3:5:2"}\ngate: race\nproposers: []\n'
    write_comparison(here, run=STEADY, spec=SPEC + named)
    called = kept("compare", "prompt.md", "better.md", "--json", "--passes", "1")
    assert called.json["comparison"]["cases"] == 12
    part = ("--set", "cases.split=1:3:0", "--passes", "1", "--json")
    assert kept("compare", "prompt.md", "better.md", *part).json["comparison"]["cases"] == 9


def test_files_that_cannot_take_each_others_place_are_told_apart(here: Path):
    write_comparison(here, spec=SPEC.replace("[prompt.md]", '["*.txt"]'))
    for name in ("x/a.txt", "x/b.txt", "y/a.txt", "y/c.txt", "a.txt"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(name)
    called = compare("x", "y")
    assert called.code == 2
    message = "`x` and `y` are not the same files: only `x` has b.txt; only `y` has c.txt"
    assert message in called.stderr


@pytest.mark.slow
def test_copies_among_the_cases_and_of_the_cases_are_warned_of(here: Path):
    write_comparison(here, run=STEADY)
    long = "the invoice of the ninth of May was never paid by anyone at all"
    rows = [{"id": str(n), "chance": 9, "text": long if n == 3 else str(n)} for n in range(11)]
    rows.append({"id": "copy", "chance": 9, "text": "4"})
    (here / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (here / "better.md").write_text(f"good good {long}\n")
    said = compare("prompt.md", "better.md", "--passes", "1").stderr
    assert "warning: `better.md`: prompt.md:1 holds text of the holdout case `3`" in said
    assert "warning: case `4` and case `copy` are the same, and count as two" in said


@pytest.mark.slow
def test_a_comparison_is_marked_among_runs_and_is_not_the_last_one_to_adopt(here: Path):
    write_comparison(here, run=STEADY)
    better = "proposers=[{kind: variants, files: [better.md]}]"
    more = ("--set", better, "--set", "budget={max_iterations: 1}", "--set", "gate=strict")
    cases = ("--set", "cases={file: cases.jsonl}")
    assert kept("optimize", "task.yaml", "-q", *more, *cases).code == 0
    assert compare("prompt.md", "worse.md", "-q", "--passes", "1").code == 0
    newest, oldest = (line.split() for line in kept("runs").stdout.splitlines()[1:])
    assert ("comparison" in newest, "comparison" in oldest) == (True, False)
    assert " ".join(newest[3:]) == "worse.md cannot tell -0.167 task.yaml"
    compared, improved = (row["comparison"] for row in kept("runs", "--json").json)
    assert improved is None
    assert compared == kept("show", newest[0], "--json").json["comparison"]
    (line,) = compared["challengers"]
    assert (line["label"], line["answer"]) == ("worse.md", "cannot tell")
    assert kept("report").stdout.splitlines()[0] != kept("report", oldest[0]).stdout.splitlines()[0]
    assert "+good good\n" in kept("diff").stdout
    assert "+bad bad\n" in kept("diff", "--step", "0").stdout
    assert kept("adopt", "--yes").code == 0
    assert (here / "prompt.md").read_text() == "good good\n"
    assert "a comparison keeps nothing" in kept("adopt", newest[0]).stderr


@pytest.mark.slow
def test_scripts_may_ask_for_a_code_where_nothing_is_better(here: Path):
    write_comparison(here, run=STEADY)
    once = ("--passes", "1", "--fail-if-no-gain", "-q")
    assert compare("prompt.md", "worse.md", *once).code == 1
    assert compare("prompt.md", "better.md", *once).code == 0
    assert "a comparison keeps nothing" in kept("adopt").stderr
    assert "a comparison keeps nothing; `kept diff " in kept("diff").stderr
    assert "-plain\n+good good\n" in kept("diff", "--step", "0").stdout
    # also where neither is the file of the task
    assert compare("worse.md", "better.md", "-q", "--passes", "1").code == 0
    assert "a comparison keeps nothing" in kept("adopt").stderr


@pytest.mark.slow
@pytest.mark.git
def test_two_revisions_are_compared_and_nothing_is_checked_out(here: Path):
    write_two_revisions(here)
    (here / "prompt.md").write_text("not committed\n")
    called = compare("HEAD~1", "HEAD", "--json", "--passes", "1")
    (label,) = answers(called)
    assert label.startswith("HEAD (")
    assert answers(called)[label] == "better"
    assert called.json["comparison"]["seed"].startswith("HEAD~1 (")
    assert (here / "prompt.md").read_text() == "not committed\n"
    again = compare("HEAD", "prompt.md", "HEAD~1:prompt.md", "--json", "--passes", "1")
    assert set(answers(again).values()) == {"worse"}


def write_two_revisions(folder: Path) -> None:
    """A repository whose second commit is better than its first."""
    write_comparison(folder, run=STEADY)
    commit(folder, "first")
    (folder / "prompt.md").write_text("good good\n")
    commit(folder, "second")


def commit(folder: Path, message: str) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    if not (folder / ".git").exists():
        subprocess.run([*git, "init", "-q"], cwd=folder, check=True)
    subprocess.run([*git, "add", "-A"], cwd=folder, check=True)
    subprocess.run([*git, "commit", "-qm", message], cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.git
def test_a_resume_means_by_a_revision_what_it_was(here: Path):
    write_two_revisions(here)
    compare("HEAD~1", "HEAD", "--passes", "1")
    (here / "other.md").write_text("x\n")
    commit(here, "third")
    called = kept("resume", "--json")
    assert called.code == 0, called.stderr
    assert [*answers(called).values()] == ["better"]
    assert "nothing more to do: all that was asked has its answer" in called.stderr


@pytest.mark.slow
def test_a_text_that_changed_since_is_not_gone_on_with(here: Path):
    write_comparison(here, run=STEADY)
    compare("prompt.md", "better.md", "--passes", "1")
    (here / "better.md").write_text("good\n")
    called = kept("resume")
    assert called.code == 2
    assert "`better.md` changed since it started" in called.stderr
    again = "kept compare prompt.md better.md --task task.yaml --cases cases.jsonl --passes 1"
    assert f"`{again}`" in called.stderr


class Started:
    """A comparison in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        walls = ("--set", "sandbox.walls=off")
        self.process = start_kept(folder, "compare", *words, *CASES, *walls)

    def until(self, rollouts: int) -> None:
        """Wait until so many rollouts are written."""
        for _ in range(12000):
            done = sum(file.read_bytes().count(b'"kind":"rollout"') for file in self._files())
            if done >= rollouts:
                return
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        self.process.kill()
        raise AssertionError("never came so far")

    def _files(self) -> list[Path]:
        return [*self.folder.glob(".kept/runs/*/rollouts.jsonl")]


def jobs(folder: Path) -> list[object]:
    (run,) = folder.glob(".kept/runs/*")
    rows = map(codec.decode_line, (run / "rollouts.jsonl").read_bytes().splitlines(keepends=True))
    return [row.entry()[0] for row in rows if isinstance(row, codec.RolloutLine)]


@pytest.mark.kill
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_killed_and_resumed_it_comes_to_the_same_answers_and_repeats_nothing(
    number: signal.Signals, here: Path
):
    write_comparison(here, run=f"sleep 0.05\n{STEADY}", cases=16)
    words = ("prompt.md", "better.md", "worse.md", "--passes", "2")
    started = Started(here, *words)
    started.until(12)
    os.killpg(started.process.pid, number)
    _, said = started.process.communicate(timeout=120)
    if number == signal.SIGINT:
        assert started.process.returncode == 130
        assert "goes on where it stopped" in said
    before = jobs(here)
    assert 12 <= len(before) < 3 * 2 * 16
    called = kept("resume", "--json")
    after = jobs(here)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after)
    whole = compare(*words, "--json", "--set", "sandbox.walls=off")
    parts = [one.json["comparison"]["challengers"] for one in (called, whole)]
    assert parts[0] == parts[1]
    assert answers(called)["better.md"] == "better"


class Indifferent:
    """Stands in the place of the gate, to show that the tests here would notice."""

    name = "indifferent"

    def __init__(self, likes: bool) -> None:
        self._likes = likes

    def decide(self, view: View) -> Verdict:
        return Verdict("skip", "whatever", "better" if self._likes else "not better")


@pytest.mark.slow
@pytest.mark.parametrize("likes", [True, False])
def test_with_another_gate_in_its_place_the_answers_are_wrong(likes: bool, here: Path):
    write_comparison(here, run=STEADY)
    words = ("prompt.md", "better.md", "worse.md")
    asked = Comparing(words=words, here=str(here), cases="cases.jsonl", passes=1)
    plan = compile_comparison(here / "task.yaml", asked).plan
    right = answers(compare(*words, "--json", "--passes", "1"))
    assert right == {"better.md": "better", "worse.md": "cannot tell"}
    ended = asyncio.run(start(replace(plan, gate=Indifferent(likes)), Home(here / "other")))
    told = comparison_of(ended.state)
    assert told is not None
    found = {line.label: line.answer for line in told.lines}
    assert (found["better.md"] == "better") == likes
    assert (found["worse.md"] == "better") == likes


@pytest.mark.slow
def test_an_outage_is_no_answer_and_is_asked_again(here: Path):
    flaky = f'test -e "$KEPT_CANDIDATE/../down" || exit 75\n{RUN}'
    spec = SPEC.replace('"sh run.sh"}', '"sh run.sh", retry_exit: 75}')
    write_comparison(here, run=flaky, spec=spec, cases=8)
    called = compare("prompt.md", "better.md", "--set", "sandbox.walls=off", "--passes", "1")
    assert called.code == 3
    assert "the evaluator does not answer" in called.stderr
    assert "better.md could not be compared" in called.stdout


def test_help_says_what_a_and_b_may_be():
    assert "HEAD~1" in kept("compare", "--help").stdout
    assert "compare" in cli.list_commands(None)  # pyright: ignore[reportArgumentType] # not looked at


@pytest.mark.slow
def test_the_cases_are_found_from_where_they_were_named(here: Path):
    (here / "task").mkdir()
    write_comparison(here / "task", run=STEADY)
    (here / "task/cases.jsonl").unlink()
    write_cases(here, 10)
    once = ("--task", "task", *CASES, "--passes", "1", "--json")
    called = kept("compare", "task/prompt.md", "task/better.md", *once)
    assert called.json["comparison"]["cases"] == 10
    assert kept("resume", called.json["folder"], "--json").json["comparison"]["cases"] == 10


def test_a_task_beside_the_first_version_is_named_where_there_is_none_here(here: Path):
    (here / "mine").mkdir()
    write_comparison(here / "mine")
    called = kept("compare", "mine/prompt.md", "mine/better.md", "--cases", "mine/cases.jsonl")
    assert called.code == 2
    assert "hint: `--task mine/task.yaml` takes the one beside mine/prompt.md\n" in called.stderr
