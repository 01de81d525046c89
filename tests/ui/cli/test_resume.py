"""`kept resume`: going on, and saying why not."""

import json
from pathlib import Path

import pytest

import kept as library
from kept.store.journal import RunJournal
from tests.ui.cli.tasks import kept, write_task


def test_a_run_that_used_its_steps_goes_on_with_more(here: Path):
    write_task(here, iterations=2)
    first = kept("optimize", "task.yaml", "--json").json
    assert (first["steps"], first["best"]["value"]) == (2, 2)
    more = kept("resume", "--json", "--set", "budget.max_iterations=4").json
    assert more["run"] == first["run"]
    assert (more["steps"], more["best"]["value"]) == (4, 3)
    assert more["spend"]["rollouts"] == 5 + 2 + 1 * 2


def test_what_was_set_holds_for_the_next_resume_too(here: Path):
    write_task(here)
    kept("optimize", "task.yaml", "--set", "budget.max_iterations=1")
    kept("resume", "--set", "budget.max_iterations=2")
    third = kept("resume")
    assert third.code == 0
    assert "nothing more to do: all 2 iterations are used" in third.stderr
    assert kept("report", "--json").json["asked"]["budget"] == {"max_iterations": 2}


def test_a_run_with_nothing_left_says_so_and_exits_with_0(here: Path):
    write_task(here, iterations=1)
    kept("optimize", "task.yaml")
    called = kept("resume")
    assert called.code == 0
    assert "nothing more to do: the only iteration is used" in called.stderr
    assert "--set budget.max_iterations=N" in called.stderr


def test_a_run_from_python_is_sent_back_to_python(here: Path):
    result = library.optimize("a", len_of, proposers=["aa"], home=here / ".kept")
    called = kept("resume")
    assert called.code == 2
    assert "was started from Python" in called.stderr
    assert f'kept.optimize(..., resume="{result.run}")' in called.stderr


def test_a_diff_of_an_unfinished_run_from_python_says_what_goes_on_with_it(here: Path):
    result = library.optimize("aa", len_of, proposers=["a"], home=here / ".kept")
    spine = result.folder / "journal.jsonl"
    *before, _ = spine.read_text().splitlines(keepends=True)
    spine.write_text("".join(before))  # as if it had been killed before it said that it ended
    (result.folder / "steps.idx").unlink()
    told = kept("diff").stderr
    assert f'(`kept.optimize(..., resume="{result.run}")` goes on)' in told
    assert "kept resume" not in told


def test_a_spec_that_means_something_else_by_now_is_refused(here: Path):
    write_task(here, iterations=1)
    kept("optimize", "task.yaml")
    (here / "prompt.md").write_text("good good good good\n")
    called = kept("resume", "--set", "budget.max_iterations=4")
    assert called.code == 2
    assert "artifacts (prompt.md) changed since it started" in called.stderr
    assert "goes on where it stopped" not in called.stderr


@pytest.mark.parametrize("changed", [["score.sh"], ["run.sh", "score.sh"]])
def test_a_measure_that_changed_is_refused_by_the_names_of_its_files(
    changed: list[str], here: Path
):
    write_task(here, iterations=1)
    folder = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    before = (folder / "journal.jsonl").read_bytes()
    texts = {name: (here / name).read_text() for name in changed}
    for name, text in texts.items():
        (here / name).write_text(f"{text}# another by now\n")
    called = kept("resume", "--set", "budget.max_iterations=4")
    assert called.code == 2
    names = ", ".join(f"`{name}`" for name in changed)
    assert f"cannot resume {folder.name}: {names} changed since it started" in called.stderr
    assert "start a new run: `kept optimize task.yaml --set budget" in called.stderr
    assert (folder / "journal.jsonl").read_bytes() == before
    for name, text in texts.items():
        (here / name).write_text(text)
    assert kept("resume", "--set", "budget.max_iterations=4").code == 0


def test_what_was_set_and_not_written_down_is_asked_for_again(here: Path):
    write_task(here, iterations=1)
    secret = "runner.env={GREETING: sk-canary}"
    folder = Path(kept("optimize", "task.yaml", "--json", "--set", secret).json["folder"])
    assert "sk-canary" not in (folder / "journal.jsonl").read_text()
    called = kept("resume", "--set", "budget.max_iterations=2")
    assert called.code == 2
    assert "was started with --set runner.env=…, which is not written down" in called.stderr
    assert "hint: give --set runner.env=… again" in called.stderr
    more = ("--set", "budget.max_iterations=2", "--json")
    assert kept("resume", "--set", secret, *more).json["steps"] == 2
    other = kept("resume", "--set", "runner.env={GREETING: other}", *more)
    assert other.code == 2
    assert "spec changed since it started" in other.json["problems"][0]["problem"]


def test_a_resume_may_have_other_workers(here: Path):
    write_task(here, iterations=1)
    folder = Path(kept("optimize", "task.yaml", "--workers", "1", "--json").json["folder"])
    told = kept("resume", "--workers", "3", "--set", "budget.max_iterations=2", "--json").json
    assert (told["ok"], told["steps"]) == (True, 2)
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert [line["settings"]["workers"] for line in lines if "settings" in line] == [1, 3]


def test_a_run_that_is_not_there_is_named(here: Path):
    called = kept("resume", "20200101")
    assert called.code == 2
    assert "no run `20200101`" in called.stderr


def test_a_run_that_is_being_written_is_left_alone(here: Path):
    write_task(here, iterations=1)
    folder = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    before = (folder / "journal.jsonl").read_bytes()
    writer = RunJournal(folder)
    try:
        called = kept("resume", "--set", "budget.max_iterations=4")
    finally:
        writer.close()
    assert called.code == 2
    assert "is being written by process" in called.stderr
    assert (folder / "journal.jsonl").read_bytes() == before


def len_of(candidate: library.Candidate) -> float:
    return float(len(candidate.text))


def test_a_limit_below_what_was_used_is_refused_and_the_ending_stays(here: Path):
    write_task(here)
    folder = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    before = (folder / "journal.jsonl").read_bytes()
    called = kept("resume", "--set", "budget.max_iterations=1")
    assert called.code == 2
    assert "has used up a `max_iterations` of 1 already: " in called.stderr
    assert (folder / "journal.jsonl").read_bytes() == before
    assert "every proposer has run dry" in kept("show").stdout
