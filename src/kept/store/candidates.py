"""The candidates of a run as files: a diff for each, and all files of those that were kept.

RUN/0003-discard.diff
RUN/0004-keep.diff
RUN/0004-keep/...
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from kept.core.edit import diff
from kept.core.ports import Journal
from kept.core.stage import StepRecords
from kept.store.files import link_error, link_in, write_files
from kept.store.views import View


class CandidateFolder(View):
    """Writes each candidate when its step closes."""

    def __init__(self, path: Path, below: Path, journal: Journal) -> None:
        """No folder between `below`, the folder of the task, and a file may be a link."""
        super().__init__(journal)
        self._where = path
        self._below = below

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write what is missing or was changed."""
        folder = self._where / self.run
        if (link := link_in(folder, self._below)) is not None:
            raise link_error(link)
        if folder.is_dir():
            for left in folder.glob(".*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        for step in steps:
            self.closed(step)

    def closed(self, step: StepRecords) -> None:
        """Write the diff, and for a keep the files."""
        outcome = step.closed.verdict.outcome
        name = f"{step.closed.step:04}-{outcome}"
        folder = self._where / self.run
        patch, kept = folder / f"{name}.diff", folder / name
        sides = self.sides(step)
        if sides is None:
            return
        self.put(patch, diff(*sides).encode("utf-8", "surrogateescape"), self._below)
        if outcome == "keep" and not kept.exists():
            fresh = folder / f".{name}.{os.getpid()}"
            write_files(fresh, sides[1], below=self._below)
            fresh.rename(kept)
        if outcome == "keep":
            for path, text in sides[1].texts.items():
                self.put(kept / path, text.encode("utf-8", "surrogateescape"), self._below)
