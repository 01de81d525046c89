import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.rollout import Failure
from kept.errors import RunError
from kept.sandbox.temp_dirs import OWNER, remove_abandoned, remove_tree
from kept.sandbox.workspace import Output, Scratch, Workspace, write_below

CANDIDATE = Candidate({"prompt.md": "one\r\ntwo\n", "deep/er/b.txt": "\udcff"})


def output_of(folder: Path, limit: int = 1000) -> Output:
    found = Workspace(folder).read_output(limit)
    assert isinstance(found, Output)
    return found


def make_output(tmp_path: Path) -> Path:
    (tmp_path / "output").mkdir()
    return tmp_path / "output"


def test_a_workspace_holds_candidate_case_and_an_empty_output_folder():
    scratch = Scratch()
    with scratch.workspace(CANDIDATE, Case("a", {"x": "ü"})) as workspace:
        assert (workspace.candidate / "prompt.md").read_bytes() == b"one\r\ntwo\n"
        assert (workspace.candidate / "deep/er/b.txt").read_bytes() == b"\xff"
        assert json.loads(workspace.case.read_text("utf-8")) == {"x": "ü"}
        assert list(workspace.output.iterdir()) == []
        assert workspace.variables() == {
            "KEPT_CANDIDATE": str(workspace.candidate),
            "KEPT_CASE": str(workspace.case),
            "KEPT_OUTPUT": str(workspace.output),
        }
    scratch.close()


def test_a_run_without_cases_has_no_case_file():
    scratch = Scratch()
    with scratch.workspace(CANDIDATE, IMPLICIT_CASE) as workspace:
        assert "KEPT_CASE" not in workspace.variables()
        assert not workspace.case.exists()
    scratch.close()


def test_a_workspace_is_gone_when_its_block_ends_or_raises():
    scratch = Scratch()
    folders: list[Path] = []
    with pytest.raises(ZeroDivisionError), scratch.workspace(CANDIDATE, Case("a")) as workspace:
        folders.append(workspace.folder)
        raise ZeroDivisionError
    assert not folders[0].exists()
    scratch.close()
    assert not folders[0].parent.exists()


def test_a_workspace_is_gone_when_its_task_is_cancelled():
    scratch = Scratch()
    folders: list[Path] = []

    async def wait() -> None:
        with scratch.workspace(CANDIDATE, Case("a")) as workspace:
            folders.append(workspace.folder)
            await asyncio.sleep(100)

    async def cancel() -> None:
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel())
    assert not folders[0].exists()
    scratch.close()


def test_a_folder_without_permissions_is_removed_too():
    scratch = Scratch()
    with scratch.workspace(CANDIDATE, Case("a")) as workspace:
        locked = workspace.output / "locked"
        (locked / "inner").mkdir(parents=True)
        (locked / "inner" / "file").write_text("x")
        (locked / "inner").chmod(0)
        locked.chmod(0)
    assert not workspace.folder.exists()
    scratch.close()


def test_closing_twice_is_closing_once():
    scratch = Scratch()
    with scratch.workspace(CANDIDATE, Case("a")):
        pass
    scratch.close()
    scratch.close()


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "", "a//b", "./a", "a\\b", "c:/x"])
def test_a_path_that_leaves_the_folder_is_not_written(path: str, tmp_path: Path):
    with pytest.raises(RunError, match="not a path below"):
        write_below(tmp_path / "inside", {path: b"x"})
    assert list(tmp_path.rglob("x")) == []


def test_output_files_are_read_back_by_their_paths(tmp_path: Path):
    output = make_output(tmp_path)
    write_below(output, {"b.txt": b"2", "a/z/c.bin": b"\x00\xff", "a/empty": b""})
    assert dict(output_of(tmp_path).files) == {
        "b.txt": b"2",
        "a/z/c.bin": b"\x00\xff",
        "a/empty": b"",
    }
    assert output_of(tmp_path).skipped == ()


def test_more_output_than_allowed_is_the_candidates_failure(tmp_path: Path):
    output = make_output(tmp_path)
    write_below(output, {"a": b"x" * 400, "b": b"x" * 700})
    assert output_of(tmp_path, 1102).skipped == ()
    failure = Workspace(tmp_path).read_output(1101)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("limit", "candidate")


def test_a_huge_sparse_file_is_not_read_into_memory(tmp_path: Path):
    with (make_output(tmp_path) / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert isinstance(Workspace(tmp_path).read_output(), Failure)


def test_very_many_empty_files_are_too_much_too(tmp_path: Path):
    output = make_output(tmp_path)
    for number in range(30):
        (output / f"{number:020}").touch()
    assert isinstance(Workspace(tmp_path).read_output(500), Failure)


def test_links_are_named_and_never_followed(tmp_path: Path):
    output = make_output(tmp_path)
    (output / "deep").mkdir()
    (output / "to-file").symlink_to("plain")
    (output / "to-folder").symlink_to("deep")
    (output / "to-nothing").symlink_to("deep/../nowhere")
    (output / "deep" / "up").symlink_to("../plain")
    (output / "plain").write_text("p")
    found = output_of(tmp_path)
    assert dict(found.files) == {"plain": b"p"}
    assert found.skipped == (
        "`to-file`: a symbolic link",
        "`to-folder`: a symbolic link",
        "`to-nothing`: a symbolic link",
        "`deep/up`: a symbolic link",
    )


@pytest.mark.parametrize("target", ["/etc/passwd", "../case.json", "deep/../../x", "..", "/"])
def test_a_link_that_leaves_the_output_is_the_candidates_failure(target: str, tmp_path: Path):
    (make_output(tmp_path) / "deep").mkdir()
    (tmp_path / "output" / "link").symlink_to(target)
    assert Workspace(tmp_path).read_output() == Failure(
        "limit", "candidate", "`link` in the output folder is a link that leaves it"
    )


def test_an_output_folder_that_became_a_link_is_a_failure_and_one_that_went_away_empty(
    tmp_path: Path,
):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("s3cret")
    (tmp_path / "output").symlink_to("secret")
    assert Workspace(tmp_path).read_output() == Failure(
        "limit", "candidate", "the output folder was replaced by a link"
    )
    (tmp_path / "output").unlink()
    assert dict(output_of(tmp_path).files) == {}


def test_a_pipe_in_the_output_is_named_and_does_not_block(tmp_path: Path):
    os.mkfifo(make_output(tmp_path) / "pipe")
    assert output_of(tmp_path).skipped == ("`pipe`: not a plain file",)


def test_a_file_name_that_is_not_text_is_named(tmp_path: Path):
    (make_output(tmp_path) / os.fsdecode(b"\xff")).write_text("x")
    (skipped,) = output_of(tmp_path).skipped
    assert "not UTF-8" in skipped


KILLED = """
import os, signal, sys
from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.sandbox.workspace import Scratch
with Scratch().workspace(Candidate({"a": "text"}), IMPLICIT_CASE) as workspace:
    (workspace.folder / "shut").mkdir(mode=0)
    (workspace.folder / "away").symlink_to(sys.argv[1])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, for us and for those we start."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def leave_behind(away: Path) -> None:
    """Have a process killed while it has a workspace."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(away)], check=False)
    assert done.returncode == -signal.SIGKILL


def test_what_a_killed_process_left_is_removed_by_the_next(temporary: Path, tmp_path: Path):
    away = tmp_path / "away"
    away.mkdir()
    (away / "mine.txt").write_text("mine")
    leave_behind(away)
    (abandoned,) = temporary.iterdir()
    scratch = Scratch()
    with scratch.workspace(CANDIDATE, IMPLICIT_CASE) as workspace:
        deadline = time.monotonic() + 10
        while abandoned.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not abandoned.exists()
        assert workspace.folder.exists()
    scratch.close()
    assert list(temporary.iterdir()) == []
    assert (away / "mine.txt").read_text() == "mine"


def test_what_somebody_uses_or_else_made_is_left_alone(temporary: Path, tmp_path: Path):
    scratch = Scratch()
    with scratch.workspace(CANDIDATE, IMPLICIT_CASE) as workspace:
        for name in ("kept-demo-1", "kept-2"):
            (temporary / name / "inner").mkdir(parents=True)
        (temporary / "kept-3").write_text("a file")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / OWNER).touch()
        (temporary / "kept-4").symlink_to(elsewhere)
        (temporary / "kept-2" / OWNER).symlink_to(elsewhere / OWNER)
        before = sorted(temporary.rglob("*"))
        remove_abandoned()
        assert sorted(temporary.rglob("*")) == before
        assert workspace.folder.exists()
        assert (elsewhere / OWNER).exists()
    scratch.close()


def test_a_folder_of_any_depth_is_removed(tmp_path: Path):
    deep = tmp_path / "deep"
    deep.mkdir()
    here = os.open(deep, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    try:
        remove_tree(deep)
        assert not deep.exists()
    finally:
        # pytest's own cleaning recurses, and would fail every later session
        subprocess.run(["rm", "-rf", str(deep)], check=True)
