"""One refinement of a run at a time: two would pay twice for the same findings.

The lock lies with the seed run, so that it holds in whichever project a refinement is begun; and it
is the kernel's, so that it goes with a process that is killed.
"""

import logging
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kept.errors import JournalError, LockedError, SetupError
from kept.orchestrator.refine.best import BEST, FRESH, OLD, refuse_links
from kept.orchestrator.refine.session import SESSIONS
from kept.store.lock import Lock

LOCK = ".refining.lock"

log = logging.getLogger("kept")


@contextmanager
def refining(folders: Iterable[Path], session: str) -> Generator[None]:
    """Hold what a session refines; raises `LockedError` where another one does."""
    with ExitStack() as held:
        for folder in folders:
            _check_links(folder)
            if (lock := _lock(folder, session)) is not None:
                held.callback(lock.remove)
        yield


def _check_links(folder: Path) -> None:
    """Refuse to refine where what a session writes would end up elsewhere."""
    try:
        refuse_links(folder, BEST, FRESH, OLD, SESSIONS, LOCK)
    except OSError as error:
        raise SetupError(
            f"cannot refine {folder}: `{Path(error.filename).name}` is a link, and its session "
            "and its best are written beside it",
            hint="remove the link, or refine a copy of the run",
        ) from error


def _lock(folder: Path, session: str) -> Lock | None:
    """None where there can be no lock: its folder may be one that only others write to."""
    try:
        while (lock := Lock(folder, LOCK, session)).lost:
            lock.release()
        return lock
    except LockedError as error:
        which = f"session {error.note}" if error.note else "another session"
        stop = f", or stop it with `kill -INT {error.pid}`" if error.pid else ""
        raise LockedError(
            f"`{folder.name}` is being refined already: {which}, process {error.pid or 'unknown'}",
            hint=f"wait until it has ended{stop}; `kept resume` goes on with what was stopped",
            pid=error.pid,
            note=error.note,
        ) from error
    except JournalError as error:
        log.warning("%s; nothing keeps another session from it", error.message)
        return None
