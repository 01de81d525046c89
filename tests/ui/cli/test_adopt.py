"""`kept adopt`: the only command that changes a file that was there."""

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kept as library
from kept.errors import SetupError
from kept.store.reader import Run
from kept.ui.adopt import Repository, adoption_of, replace_all
from tests.ui.cli.tasks import kept, write_task

pytestmark = pytest.mark.slow

BEST = "good good\ngood\n"


@pytest.fixture
def run(here: Path) -> Path:
    write_task(here)
    return Path(kept("optimize", "task.yaml", "--json").json["folder"])


def git(here: Path, *words: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(here), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "A")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@example.org")
    write_task(here)
    git(here, "init", "-q")
    git(here, "add", ".")
    git(here, "commit", "-qm", "first")
    assert kept("optimize", "task.yaml").code == 0
    return here


@pytest.mark.usefixtures("run")
def test_adopt_shows_the_change_and_makes_it(here: Path):
    called = kept("adopt", "--yes")
    assert called.code == 0
    assert "+good good\n" in called.stdout
    assert called.stderr == "changed prompt.md\n"
    assert (here / "prompt.md").read_text() == BEST
    assert not list(here.glob(".prompt*"))


def test_adopt_refuses_a_best_that_is_not_what_the_run_stored(run: Path, here: Path):
    pack = run / "blobs.pack"
    data = pack.read_bytes()
    assert BEST.encode() in data
    pack.write_bytes(data.replace(BEST.encode(), BEST.replace("g", "q", 1).encode()))
    for words in (("adopt", "--yes"), ("diff",)):
        called = kept(*words)
        assert (called.code, called.stdout) == (2, ""), words
        assert "does not match its digest" in called.stderr and "blobs.pack" in called.stderr
    assert (here / "prompt.md").read_text() == "good\n"


def test_adopt_in_a_copy_of_the_folder_does_not_change_the_original(
    run: Path, here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
):
    copy = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(here, copy)
    before = (here / "prompt.md").read_text()
    monkeypatch.chdir(copy)
    called = kept("adopt", "--yes")
    assert called.code == 2
    assert f"was started in {here}, and its folder was copied since" in called.stderr
    assert (here / "prompt.md").read_text() == (copy / "prompt.md").read_text() == before


@pytest.mark.usefixtures("run")
def test_nobody_is_asked_for_what_was_not_shown():
    called = kept("adopt", "--json")
    assert called.code == 2 and "nobody is here to say yes" in called.stderr
    assert "+good good" in called.stderr


@pytest.mark.usefixtures("run")
def test_adopt_twice_changes_nothing_the_second_time(here: Path):
    told = kept("adopt", "--yes", "--json").json
    assert (told["changed"], told["commit"]) == ([str(here / "prompt.md")], None)
    assert "+good good\n" in told["diff"]
    before = (here / "prompt.md").stat().st_mtime_ns
    again = kept("adopt", "--yes")
    assert (again.code, again.stdout) == (0, "")
    told = kept("adopt", "--yes", "--json").json
    assert (told["changed"], told["why"]) == ([], "its best is what is there")
    assert "nothing to adopt: its best is what is there" in again.stderr
    assert (here / "prompt.md").stat().st_mtime_ns == before


def test_without_a_gain_there_is_nothing_to_adopt(here: Path):
    write_task(here, texts={"worse": "nothing\n"})
    kept("optimize", "task.yaml")
    called = kept("adopt", "--yes")
    assert (called.code, called.stderr) == (0, "nothing to adopt: nothing beat the seed\n")


@pytest.mark.usefixtures("run")
def test_without_a_terminal_and_without_yes_nothing_is_changed(here: Path):
    called = kept("adopt")
    assert called.code == 2
    assert "nobody is here to say yes" in called.stderr
    assert "--yes" in called.stderr
    assert (here / "prompt.md").read_text() == "good\n"


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("answer", "text"), [(b"y\n", BEST), (b"n\n", "good\n"), (b"\n", "good\n")]
)
def test_on_a_terminal_it_asks_and_no_is_the_default(answer: bytes, text: str, here: Path):
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "kept", "adopt"]
    process = subprocess.Popen(command, cwd=here, stdin=child, stderr=subprocess.PIPE)
    os.write(parent, answer)
    _, said = process.communicate(timeout=120)
    os.close(parent)
    os.close(child)
    assert process.returncode == 0
    assert b"change 1 file in" in said
    assert (here / "prompt.md").read_text() == text


@pytest.mark.usefixtures("run")
def test_a_source_that_drifted_is_refused_by_name(here: Path):
    (here / "prompt.md").write_text("mine now\n")
    called = kept("adopt", "--yes")
    assert called.code == 2
    assert "`prompt.md` changed since it started" in called.stderr
    assert (here / "prompt.md").read_text() == "mine now\n"
    (here / "prompt.md").unlink()
    assert "`prompt.md` changed since it started" in kept("adopt", "--yes").stderr
    assert not (here / "prompt.md").exists()


def two_files(here: Path) -> Path:
    spec = write_task(here, texts={})
    (here / "notes.md").write_text("old\n")
    spec.write_text(spec.read_text().replace("[prompt.md]", "[prompt.md, notes.md, third.md]"))
    (here / "third.md").write_text("as it is\n")
    mirror = here / "alternatives" / "both.md"
    mirror.mkdir(parents=True)
    (mirror / "prompt.md").write_text(BEST)
    (mirror / "notes.md").write_text("new\n")
    folder = Path(kept("optimize", "task.yaml", "--json").json["folder"])
    assert (folder / "best" / "notes.md").read_text() == "new\n"
    return folder


def test_a_drifted_file_that_would_not_change_is_refused_too(here: Path):
    two_files(here)
    (here / "third.md").write_text("other\n")
    assert "`third.md` changed since it started" in kept("adopt", "--yes").stderr
    assert (here / "notes.md").read_text() == "old\n"


def test_an_adoption_that_was_killed_half_way_is_finished_by_the_next(here: Path):
    two_files(here)
    (here / "notes.md").write_text("new\n")
    called = kept("adopt", "--yes")
    assert called.stderr == "changed prompt.md\n"
    assert (here / "prompt.md").read_text() == BEST


def test_modes_links_and_bytes_survive(here: Path, tmp_path: Path):
    folder = two_files(here)
    os.chmod(here / "prompt.md", 0o755)  # noqa: PTH101 # beside os.stat below
    (here / "notes.md").rename(here / "real.md")
    (here / "notes.md").symlink_to("real.md")
    assert kept("adopt", str(folder), "--yes").code == 0
    assert (here / "prompt.md").stat().st_mode & 0o777 == 0o755
    assert (here / "notes.md").is_symlink()
    assert (here / "real.md").read_text() == "new\n"


def test_when_one_file_cannot_be_changed_none_is(here: Path):
    folder = two_files(here)
    adoption = adoption_of(Run(folder))
    # a folder cannot be replaced by a file
    files = {here / path: data for path, data in adoption.after.items()}
    with pytest.raises(SetupError, match=r"nothing was changed"):
        replace_all({**files, here / "alternatives": b"x"})
    assert (here / "prompt.md").read_text() == "good\n"
    assert (here / "notes.md").read_text() == "old\n"
    assert not list(here.glob(".*.kept"))


def test_what_a_killed_adoption_left_beside_the_files_goes_with_the_next(here: Path):
    (here / ".a[1].md.k2_x9qpz.kept").write_text("half of it")
    (here / ".a1.md.k2_x9qpz.kept").write_text("of another file")
    replace_all({here / "a[1].md": b"new\n"})
    assert [path.name for path in here.glob(".*.kept")] == [".a1.md.k2_x9qpz.kept"]
    assert (here / "a[1].md").read_text() == "new\n"


def test_a_run_from_python_has_no_source(here: Path):
    def length(candidate: library.Candidate) -> int:
        return len(candidate.text)

    result = library.optimize("x", length, proposers=["yy"], home=here / ".kept")
    called = kept("adopt", str(result.folder), "--yes")
    assert called.code == 2
    assert "has no source to change" in called.stderr


@pytest.mark.git
def test_commit_commits_those_files_with_the_evidence(repository: Path):
    (repository / "other.txt").write_text("not mine")
    called = kept("adopt", "--yes", "--commit")
    assert called.code == 0, called.stderr
    assert "committed as " in called.stderr
    message = git(repository, "log", "-1", "--format=%B")
    assert message.startswith(f"Improve score of {repository.name}: 1 → 3\n")
    assert "strictly better: `score` 2 → 3" in message
    assert git(repository, "show", "--name-only", "--format=").split() == ["prompt.md"]
    assert "?? other.txt" in git(repository, "status", "--porcelain")


@pytest.mark.git
def test_a_file_that_is_named_like_a_pattern_is_that_file_alone(repository: Path):
    for name in ("a[1].md", "a1.md"):
        (repository / name).write_text("old\n")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "second")
    (repository / "a1.md").write_text("not mine\n")
    Repository(repository).check(["a[1].md"])
    (repository / "a[1].md").write_text("new\n")
    Repository(repository).commit(["a[1].md"], "third")
    assert git(repository, "show", "--name-only", "--format=").split() == ["a[1].md"]


@pytest.mark.git
def test_commit_refuses_beside_staged_changes(repository: Path):
    (repository / "other.txt").write_text("not mine")
    git(repository, "add", "other.txt")
    called = kept("adopt", "--yes", "--commit")
    assert called.code == 2
    assert "other changes are staged: other.txt" in called.stderr
    assert (repository / "prompt.md").read_text() == "good\n"


@pytest.mark.git
def test_commit_refuses_a_source_that_is_not_committed(repository: Path):
    (repository / "prompt.md").write_text("good good\n")
    kept("optimize", "task.yaml")
    called = kept("adopt", "--yes", "--commit")
    assert "what the run started from is not committed: prompt.md" in called.stderr
    assert (repository / "prompt.md").read_text() == "good good\n"


@pytest.mark.git
@pytest.mark.usefixtures("run")
def test_commit_outside_a_repository_is_refused_with_what_to_do(here: Path):
    before = (here / "prompt.md").read_text()
    called = kept("adopt", "--yes", "--commit")
    assert called.code == 2
    assert "not a git repository" in called.stderr
    assert "\n\nhint: adopt without --commit, or make it a repository" in called.stderr
    assert (here / "prompt.md").read_text() == before


@pytest.mark.git
def test_a_commit_that_git_refuses_leaves_the_source_as_it_was(repository: Path):
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    called = kept("adopt", "--yes", "--commit")
    assert called.code == 2
    assert "not today" in called.stderr
    assert (repository / "prompt.md").read_text() == "good\n"
    assert git(repository, "status", "--porcelain") == ""


def test_a_file_that_became_a_link_to_elsewhere_is_not_adopted(here: Path, tmp_path: Path):
    write_task(here)
    assert kept("optimize", "task.yaml", "-q").code == 0
    (tmp_path / "elsewhere").write_text((here / "prompt.md").read_text())
    (here / "prompt.md").unlink()
    (here / "prompt.md").symlink_to(tmp_path / "elsewhere")
    called = kept("adopt", "last", "--yes")
    assert called.code == 2
    assert "`prompt.md` is a link that leaves" in called.stderr
    assert (tmp_path / "elsewhere").read_text() == "good\n"
