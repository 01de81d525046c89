"""`kept init`: a task that runs at once."""

from pathlib import Path

import pytest

from kept.ui.scaffold import KINDS
from tests.ui.cli.tasks import kept


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_init_writes_the_files_and_says_what_to_type_next(here: Path):
    called = kept("init")
    assert called.code == 0
    listed = called.stdout.splitlines()
    assert "my-prompt/task.yaml" in listed
    assert all((here / name).is_file() for name in listed)
    assert called.stderr == ("\nnext: cd my-prompt\n      kept optimize .\n      kept adopt\n")
    assert not [name for name in listed if "pycache" in name]
    told = kept("init", "prompt", "other", "--json").json
    assert told["folder"] == str(here / "other")
    assert [Path(name).name for name in told["written"]] == [Path(name).name for name in listed]


def test_init_overwrites_nothing(here: Path):
    (here / "mine").mkdir()
    (here / "mine" / "score.py").write_text("mine")
    before = files(here)
    called = kept("init", "skill", "mine")
    assert called.code == 2
    assert "mine already has score.py" in called.stderr
    assert files(here) == before


def test_init_goes_beside_files_that_are_not_in_its_way(here: Path):
    (here / "notes.txt").write_text("mine")
    assert kept("init", "skill", ".").code == 0
    assert (here / "notes.txt").read_text() == "mine"
    assert (here / "SKILL.md").is_file()


def test_init_knows_four_kinds():
    called = kept("init", "novel")
    assert called.code == 2
    assert "prompt" in called.stderr


@pytest.mark.parametrize(
    "kind",
    # `check` of an agent looks for the weights of the model it names
    [pytest.param(kind, marks=pytest.mark.model if kind == "agent" else ()) for kind in KINDS],
)
def test_every_scaffold_is_in_order(kind: str):
    kept("init", kind)
    called = kept("check", f"my-{kind}")
    assert called.code == 0, called.stderr
    assert "warning: case" not in called.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "verdicts"),
    [
        ("prompt", {"keep": 1, "discard": 2}),  # a near miss, which is proven at the end
        ("skill", {"keep": 2, "discard": 1}),
        ("config", {"keep": 1, "discard": 3}),
        ("code", {"keep": 1, "crash": 1}),
    ],
)
def test_every_scaffold_runs_and_finds_something_better(
    kind: str, verdicts: dict[str, int], here: Path
):
    assert kept("init", kind).code == 0
    before = files(here / f"my-{kind}")
    told = kept("optimize", f"my-{kind}", "--json", "--set", "width=1").json
    assert told["improved"]
    found = {name: n for name, n in told["verdicts"].items() if name != "skip"}
    assert found == verdicts
    after = files(here / f"my-{kind}")
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_what_init_says_to_type_next_works_from_beginning_to_end(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    go, *commands = kept("init").stderr.split("next: ")[1].splitlines()
    monkeypatch.chdir(here / go.removeprefix("cd "))
    before = (here / "my-prompt" / "prompt.md").read_text()
    for command in commands:
        words = command.split()[1:]
        called = kept(*words, *(["--yes"] if words == ["adopt"] else []))
        assert called.code == 0, called.stderr
    assert (here / "my-prompt" / "prompt.md").read_text() != before


def test_init_in_this_folder_needs_no_cd(here: Path):
    assert kept("init", "skill", ".").stderr.startswith("\nnext: kept optimize .\n")
