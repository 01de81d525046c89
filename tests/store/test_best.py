"""`best/` after a run was moved about."""

import shutil
from pathlib import Path

from kept.core.artifact import Candidate
from kept.store.best import swap_best


def test_a_run_that_was_copied_without_its_links_goes_on(tmp_path: Path):
    swap_best(tmp_path / "run", Candidate({"a.md": "old"}))
    shutil.copytree(tmp_path / "run", tmp_path / "copy", symlinks=False)
    assert not (tmp_path / "copy" / "best").is_symlink()
    swap_best(tmp_path / "copy", Candidate({"a.md": "new"}))
    assert (tmp_path / "copy" / "best" / "a.md").read_text() == "new"
    assert (tmp_path / "run" / "best" / "a.md").read_text() == "old"
