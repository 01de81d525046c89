"""`best/`: the files of the best candidate, swapped in one move.

The folder is a link to the files of one candidate. Moving the link is atomic, so a reader, and a
process killed at any moment, finds either the old best or the new one, whole.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

from kept.core.artifact import Candidate
from kept.core.event import Event, StepClosed
from kept.core.ports import Journal
from kept.core.state import State
from kept.errors import JournalError
from kept.store.files import SPACE, write_files


class BestFolder:
    """A sink that has `best/` follow the state."""

    def __init__(
        self, folder: Path, journal: Journal, modes: Mapping[str, int] | None = None
    ) -> None:
        self._folder = folder
        self._journal = journal
        self._modes = modes

    def on_event(self, event: Event, state: State) -> None:
        """Move `best/` when the best moved, or when an earlier sitting died before it could."""
        moved = isinstance(event, StepClosed) and event.verdict.best
        if moved or event.kind in ("run_started", "run_resumed"):
            swap_best(self._folder, self._journal.load(state.best), self._modes)


def swap_best(folder: Path, candidate: Candidate, modes: Mapping[str, int] | None = None) -> None:
    """Have `best/` hold this candidate's files."""
    shelf = folder / ".best"
    target = shelf / candidate.id
    link = folder / "best"
    if link.is_symlink() and link.readlink() == Path(".best") / candidate.id:
        return
    try:
        # whatever stands under that name was left by a process killed while writing it
        shutil.rmtree(target, ignore_errors=True)
        write_files(target, candidate, modes)
        fresh = folder / ".best.link"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path(".best") / candidate.id)
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)  # the run was copied by something that follows links
        fresh.replace(link)
        for old in shelf.iterdir():
            if old.name != candidate.id:
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise JournalError(f"cannot write {link}: {error.strerror}", hint=SPACE) from error
