"""`best/` after a run was moved about."""

import shutil
from pathlib import Path

from kept.core.artifact import Candidate
from kept.store.candidate_files import swap_best


def test_a_run_that_was_copied_without_its_links_goes_on(tmp_path: Path):
    swap_best(tmp_path / "run", Candidate({"a.md": "old"}))
    shutil.copytree(tmp_path / "run", tmp_path / "copy", symlinks=False)
    assert not (tmp_path / "copy" / "best").is_symlink()
    swap_best(tmp_path / "copy", Candidate({"a.md": "new"}))
    assert (tmp_path / "copy" / "best" / "a.md").read_text() == "new"
    assert (tmp_path / "run" / "best" / "a.md").read_text() == "old"


def test_mode_bits_are_those_of_the_source(tmp_path: Path):
    swap_best(tmp_path, Candidate({"run.sh": "true\n", "a.md": "a"}), {"run.sh": 0o755})
    assert (tmp_path / "best" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "best" / "a.md").stat().st_mode & 0o111 == 0
