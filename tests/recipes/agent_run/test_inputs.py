"""What a task comes with: found, and never a part of itself."""

import os
from pathlib import Path

import pytest

from kept.errors import SetupError
from kept.recipes.agent_run.make_toolkit import find_inputs


def test_files_and_folders_are_found_binaries_too(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a.png").write_bytes(b"\x89\xff")
    (tmp_path / "b.txt").write_text("b")
    found = find_inputs(tmp_path, ["in", "b.txt"])
    assert found.read() == {"in/deep/a.png": b"\x89\xff", "b.txt": b"b"}


def test_what_the_run_writes_to_is_left_out_where_it_lies_in_an_input(tmp_path: Path) -> None:
    for name in ("a", "out/b", ".kept/runs/c", ".git/d", "node_modules/e", "sub/.kept/f"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = find_inputs(tmp_path, ["in"], [tmp_path / "in" / "out"])
    assert sorted(found.files) == ["in/a"]


def test_links_and_pipes_are_named_and_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("a")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "loop").symlink_to(folder)
    found = find_inputs(folder, ["."])
    assert sorted(found.files) == ["in/a"]
    assert sorted(found.left_out) == ["in/link", "in/loop"]


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no input"):
        find_inputs(tmp_path, ["nope"])


def test_what_is_named_and_cannot_be_given_is_refused_all_at_once(tmp_path: Path):
    """A pipe that was named was left out with a warning, and the run went on without it."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SetupError) as refused:
        find_inputs(tmp_path, ["nope", "pipe", "/dev/zero", "gone"])
    assert refused.value.message.split("; ") == [
        "there is no input `nope`",
        "there is no input `gone`",
        "the input `pipe` is no file and no folder",
        "the input `/dev/zero` is no file and no folder",
    ]


def test_two_inputs_of_one_name_are_told(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text(folder)
    with pytest.raises(SetupError, match=r"two inputs would be `input/x\.txt`"):
        find_inputs(tmp_path, ["a/x.txt", "b/x.txt"])


def test_too_much_is_told_before_anything_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(70 * 1024 * 1024)
    with pytest.raises(SetupError, match="the inputs are 70 MiB"):
        find_inputs(tmp_path, ["huge"])


def test_a_secret_of_our_environment_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-canary-0123456789")
    (tmp_path / ".env").write_bytes(b"\xffKEY=sk-canary-0123456789\n")
    assert find_inputs(tmp_path, [".env"]).read() == {".env": b"\xffKEY=[secret]\n"}
