"""A copy of a tree, put right between two commands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kept.errors import RunError
from kept.sandbox import tree_copies
from kept.sandbox.command import View
from kept.sandbox.tree_copies import Copies

DEEP = """
import os
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    for path in ("src/a.py", "src/deep/b.py", ".git/HEAD", ".venv/bin/tool", "run.sh", "score.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    return folder


def candidate(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "candidate"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def seen(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".venv" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_a_copy_has_the_tree_without_what_is_hidden(tree: Path, tmp_path: Path):
    made = Copies(tmp_path / "scratch" / "copies")
    with made.lend(View(tree, (tree / "score.py",)), candidate(tmp_path, new="n")) as copy:
        assert seen(copy) == {
            "src/a.py": "src/a.py",
            "src/deep/b.py": "src/deep/b.py",
            "run.sh": "run.sh",
            "link": "run.sh",
            "new": "n",
        }
        assert os.access(copy / "run.sh", os.X_OK)
        assert (copy / ".venv" / "bin" / "tool").read_text() == ".venv/bin/tool"
        assert not (copy / ".git").exists()


def test_a_copy_is_put_right_whatever_a_command_did_to_it(tree: Path, tmp_path: Path):
    made = Copies(tmp_path / "scratch" / "copies")
    nothing = candidate(tmp_path)
    with made.lend(View(tree), nothing) as first:
        clean = seen(first)
        (first / "src" / "a.py").write_text("changed")
        (first / "src" / "deep" / "b.py").unlink()
        (first / "src" / "deep").rmdir()
        (first / "src" / "deep").symlink_to("/")
        (first / "run.sh").unlink()
        (first / "run.sh").mkdir()
        (first / "run.sh" / "inner").write_text("x")
        (first / "score.py").chmod(0o777)
        (first / "added" / "more").mkdir(parents=True)
        (first / "link").unlink()
        (first / "link").symlink_to("/etc/passwd")
        mode = first.stat().st_mode
        first.chmod(0)
    with made.lend(View(tree), nothing) as second:
        assert second == first
        assert second.stat().st_mode == mode
        assert seen(second) == clean
        assert not (second / "added").exists()
        assert (second / "link").readlink() == Path("run.sh")
        assert (second / "score.py").stat().st_mode == (tree / "score.py").stat().st_mode


def test_the_files_of_one_candidate_are_gone_before_the_next(tree: Path, tmp_path: Path):
    made = Copies(tmp_path / "scratch" / "copies")
    with made.lend(View(tree), candidate(tmp_path, **{"run.sh": "one", "extra": "e"})) as copy:
        assert (copy / "run.sh").read_text() == "one"
    with made.lend(View(tree), candidate(tmp_path)) as copy:
        assert (copy / "run.sh").read_text() == "run.sh"
        assert not (copy / "extra").exists()


@pytest.mark.parametrize("name", ["__pycache__", ".git", ".kept", "src/__pycache__"])
def test_what_a_command_makes_under_a_name_that_is_not_copied_goes_too(
    name: str, tree: Path, tmp_path: Path
):
    made = Copies(tmp_path / "scratch" / "copies")
    with made.lend(View(tree), candidate(tmp_path)) as copy:
        (copy / name).mkdir()
        (copy / name / "a.pyc").write_text("of the last candidate")
    with made.lend(View(tree), candidate(tmp_path)) as copy:
        assert not (copy / name).exists()


def test_a_folder_of_a_command_may_be_deeper_than_python_can_go(tree: Path, tmp_path: Path):
    made = Copies(tmp_path / "scratch" / "copies")
    with made.lend(View(tree), candidate(tmp_path)) as copy:
        subprocess.run([sys.executable, "-c", DEEP], cwd=copy, check=True)
    with made.lend(View(tree), candidate(tmp_path)) as copy:
        assert not (copy / "d").exists()


def test_two_at_a_time_have_a_copy_each(tree: Path, tmp_path: Path):
    made = Copies(tmp_path / "scratch" / "copies")
    nothing = candidate(tmp_path)
    with made.lend(View(tree), nothing) as one, made.lend(View(tree), nothing) as two:
        assert one != two
    with made.lend(View(tree), nothing) as three:
        assert three in (one, two)


def test_copies_that_lie_in_the_tree_are_not_copied(tree: Path, tmp_path: Path):
    made = Copies(tree / "scratch" / "copies")
    with made.lend(View(tree), candidate(tmp_path)) as copy:
        assert "src/a.py" in seen(copy)
        assert not (copy / "scratch").exists()


def test_a_folder_that_is_no_project_is_not_copied(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tree_copies, "MAX_FILES", 3)
    with (
        pytest.raises(RunError, match="too many to copy"),
        Copies(tmp_path / "c" / "c").lend(View(tree), candidate(tmp_path)),
    ):
        pass
