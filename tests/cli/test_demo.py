"""`kept demo`: what a person sees first."""

from pathlib import Path

import pytest

from tests.cli.tasks import kept


@pytest.mark.slow
def test_the_demo_says_what_was_kept_and_what_was_refused_and_why(here: Path):
    called = kept("demo", "--keep", "mine")
    assert called.code == 0
    steps = [line for line in called.stderr.splitlines() if line.startswith("step ")]
    verdicts = {line.split()[2] for line in steps}
    assert {"keep", "discard", "crash"} <= verdicts
    assert all("better" in line or "tied" in line for line in steps if " keep " in line)
    assert "→" in called.stdout.splitlines()[0]
    assert called.stdout.rstrip().endswith("kept optimize mine/task.yaml")
    (folder,) = (here / "mine" / ".kept" / "runs").iterdir()
    assert f"kept report mine/.kept/runs/{folder.name}" in called.stdout
    assert (folder / "report.md").is_file()
    assert not (here / ".kept").exists()


def test_the_demo_does_not_write_into_a_folder_that_holds_something(here: Path):
    (here / "mine").mkdir()
    (here / "mine" / "thesis.md").write_text("years of work")
    called = kept("demo", "--keep", "mine")
    assert called.code == 2
    assert "mine is not empty" in called.stderr
    assert [path.name for path in (here / "mine").iterdir()] == ["thesis.md"]
