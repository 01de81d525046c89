"""Home folder of runs: `.kept/` of a project, found in parent folders as git finds `.git`."""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from kept.errors import JournalError, SetupError
from kept.settings import kept_home
from kept.store.candidate_files import make_folder, unwritable, write_private

log = logging.getLogger("kept")


class Home:
    """A `.kept` folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def find(cls, start: Path) -> "Home":
        """Find the nearest `.kept` in a folder or its parents; else return one to be made there.

        `KEPT_HOME` takes precedence.
        """
        named = kept_home()
        if named is not None:
            return cls(named)
        start = start.resolve()
        for folder in (start, *start.parents):
            if (folder / ".kept").is_dir():
                return cls(folder / ".kept")
        return cls(start / ".kept")

    @property
    def runs(self) -> Path:
        """Folder of all runs."""
        return self.path / "runs"

    @classmethod
    def around(cls, folder: Path) -> "Home":
        """Home of a run's folder; for a run outside any home, a home with only this run."""
        parent = folder.resolve().parent
        return cls(parent.parent) if parent.name == "runs" else _Loose(folder.resolve())

    def moved(self, path: Path) -> Path:
        """Map a path of a project that was copied or moved to the same place in this home.

        A path without a counterpart here is returned unchanged.
        """
        parts = path.parts
        if self.path.name not in parts:
            return path
        name = len(parts) - parts[::-1].index(self.path.name)
        here = self.path.joinpath(*parts[name:])
        return here if here.exists() else path

    @property
    def index(self) -> Path | None:
        """Path of the index of runs (a cache); None if nothing may be written."""
        return self.path / "index.db"

    def obstacle(self) -> str | None:
        """Reason why no run can be written here, to follow the path in a message; else None."""
        path = self.path.absolute()
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        if not there.is_dir():
            return f"and {there} is no folder"
        if not os.access(there, os.W_OK | os.X_OK):
            return "which cannot be written to: point KEPT_HOME at a folder that can"
        return None

    def new_run(self, inputs: Mapping[str, str], now: float) -> Path:
        """Make a run folder, named by the time and a hash of the run's inputs."""
        self.make()
        digest = hashlib.sha256(repr(sorted(inputs.items())).encode()).hexdigest()[:8]
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
        while True:
            # if a run of this second exists, use the next second, so that ids sort by start
            while any(self.runs.glob(f"{stamp}-*")):
                now += 1
                stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
            folder = self.runs / f"{stamp}-{digest}"
            try:
                folder.mkdir(0o700)
            except FileExistsError:
                continue  # another process made it at the same moment
            except OSError as error:
                raise unwritable(self.runs, error) from error
            return folder

    def find_run(self, name: str, of_use: Callable[[Path], bool] | None = None) -> Path:
        """Find the folder of a run by a path, an id, the start or end of an id, or `last`.

        `last` is the newest run that `of_use` accepts, else the newest of all.
        """
        as_path = Path(name)
        if (as_path / "journal.jsonl").is_file():
            return as_path
        for folder in (as_path, self.runs / name):
            if _lost_journal(folder):
                raise JournalError(
                    f"{folder / 'journal.jsonl'} is missing", hint="restore the file from a copy"
                )
        ids = sorted(folder.name for folder in self.folders())
        if name == "last" and ids:
            newest = [self.runs / id_ for id_ in reversed(ids)]
            return next(filter(of_use, newest), newest[0]) if of_use else newest[0]
        hits = [id_ for id_ in ids if id_.startswith(name) or id_.endswith(name)]
        if name in ids:
            hits = [name]
        if len(hits) == 1:
            return self.runs / hits[0]
        if hits:
            raise SetupError(
                f"`{name}` may be any of {', '.join(hits)}", hint="give more of the id"
            )
        raise SetupError(
            f"no run `{name}` in {self.runs}", hint="`kept runs` lists the runs there are"
        )

    def folders(self) -> list[Path]:
        """All run folders, oldest first; warns of runs without a journal."""
        if not self.runs.is_dir():
            return []
        found: list[Path] = []
        for folder in sorted(self.runs.iterdir()):
            if (folder / "journal.jsonl").is_file():
                found.append(folder)
            elif _lost_journal(folder):
                _warn_of_lost_journal(folder)
        return found

    def make(self) -> None:
        """Make the folder, with a `.gitignore` for all of it."""
        try:
            make_folder(self.path.parent)
            for folder in (self.path, self.runs):
                folder.mkdir(0o700, exist_ok=True)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                write_private(ignore, b"*\n")
        except OSError as error:
            raise unwritable(self.path, error) from error


class _Loose(Home):
    """Home of a single run outside any `.kept`; other folders beside it are ignored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.parent)
        self._folder = folder

    @property
    def runs(self) -> Path:
        return self._folder.parent

    @property
    def index(self) -> Path | None:
        return None

    def folders(self) -> list[Path]:
        return [self._folder]


def _lost_journal(folder: Path) -> bool:
    """True for a run without a journal: the journal is made first, so it was removed."""
    return (folder / "rollouts.jsonl").is_file() and not (folder / "journal.jsonl").exists()


@cache
def _warn_of_lost_journal(folder: Path) -> None:
    """Warn once that a run is skipped."""
    text = "%s is missing: restore the file from a copy; the run is left out"
    log.warning(text, folder / "journal.jsonl")
