"""Files that no command has any business to change, looked at after it."""

import os
from pathlib import Path

import pytest

from kept.sandbox import tree_copies
from kept.sandbox.tree_copies import Guard


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("gold/deep/a", "gold/b", "score.py", "gold/__pycache__/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def guarded(folder: Path) -> Guard:
    return Guard((folder / "gold", folder / "score.py", folder / "not there"))


def names(folder: Path, found: list[Path]) -> set[str]:
    return {str(path.relative_to(folder)) for path in found}


def test_what_is_as_it_was_is_not_told_a_folder_included(folder: Path):
    made = guarded(folder)
    assert made.changed() == []
    # the same content, written again
    (folder / "score.py").write_text("score.py")
    (folder / "gold" / "__pycache__" / "y").write_text("made by Python")
    assert made.changed() == []


def test_a_change_deep_in_a_folder_is_found_and_so_are_new_files_and_lost_ones(folder: Path):
    made = guarded(folder)
    (folder / "gold" / "deep" / "a").write_text("gold/deep/?")
    (folder / "gold" / "b").unlink()
    (folder / "gold" / "c").write_text("new")
    (folder / "not there").write_text("now it is")
    expected = {"gold/deep/a", "gold/b", "gold/c", "not there"}
    assert names(folder, made.changed()) == expected


def test_a_change_that_hides_its_time_is_found(folder: Path):
    path = folder / "score.py"
    made, before = guarded(folder), path.stat()
    path.write_text("SCORE.PY")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert made.changed() == [path]


def test_of_a_folder_that_is_data_only_so_much_is_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tree_copies, "MAX_WATCHED_FILES", 1)
    made = guarded(folder)
    (folder / "gold" / "deep" / "a").write_text("changed")
    assert made.changed() == []
