"""`kept resume`: going on, and saying why not."""

from pathlib import Path

import kept as library
from kept.store.journal import RunJournal
from tests.cli.tasks import kept, write_task


def test_a_run_that_used_its_steps_goes_on_with_more(here: Path):
    write_task(here, iterations=2)
    first = kept("optimize", "task.yaml", "--json").json
    assert (first["steps"], first["best"]["value"]) == (2, 2)
    more = kept("resume", "--json", "--set", "budget.max_iterations=4").json
    assert more["run"] == first["run"]
    assert (more["steps"], more["best"]["value"]) == (4, 3)
    assert more["spend"]["rollouts"] == 5


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
    assert "nothing more to do: all 1 iterations are used" in called.stderr
    assert "--set budget.max_iterations=N" in called.stderr


def test_a_run_from_python_is_sent_back_to_python(here: Path):
    result = library.optimize("a", len_of, proposers=["aa"], home=here / ".kept")
    called = kept("resume")
    assert called.code == 2
    assert "was started from Python" in called.stderr
    assert f'kept.optimize(..., resume="{result.run}")' in called.stderr


def test_a_spec_that_means_something_else_by_now_is_refused(here: Path):
    write_task(here, iterations=1)
    kept("optimize", "task.yaml")
    (here / "prompt.md").write_text("good good good good\n")
    called = kept("resume", "--set", "budget.max_iterations=4")
    assert called.code == 2
    assert "artifacts changed since it started" in called.stderr
    assert "goes on where it stopped" not in called.stderr


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
