"""Which runs there are, and each of them at a glance.

A run is found by its exact name among those that the folder holds: nothing that a request says is
ever joined to a path.
"""

import threading
from collections import OrderedDict
from pathlib import Path

from kept.errors import SetupError
from kept.store.glance import Glance
from kept.store.home import Home
from kept.store.lock import holder
from kept.store.run_index import RunIndex, RunRow

MOST = 6
"""Glances that are held: one of a very long run takes tens of megabytes."""


class Runs:
    """The runs of a home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._lock = threading.RLock()
        self._running: set[str] = set()
        """Those that were being written when they were last listed."""
        self._held: OrderedDict[str, Glance] = OrderedDict()

    def rows(self) -> list[RunRow]:
        """Every run, newest first."""
        if not self.home.runs.is_dir():
            return []
        with self._lock:
            rows = RunIndex(self.home, self._glance_of).rows()
        self._running = {row.id for row in rows if row.status == "running"}
        return rows

    def folder(self, name: str) -> Path:
        """The folder of a run."""
        for folder in self.home.folders():
            if folder.name == name:
                return folder
        raise SetupError(f"there is no run `{name}` here", hint="the list of runs has them all")

    def glance(self, name: str) -> Glance:
        """A run as it stands now, for one request: others refresh what is held meanwhile."""
        folder = self.folder(name)
        with self._lock:
            return self._glance_of(folder).still()

    def marks(self) -> dict[str, int]:
        """By name, what changes when a run is written or killed: the size of its journal, or -1."""
        return {
            folder.name: -1
            if folder.name in self._running and holder(folder) is None
            else (folder / "journal.jsonl").stat().st_size
            for folder in self.home.folders()
        }

    def _glance_of(self, folder: Path) -> Glance:
        held = self._held.pop(folder.name, None) or Glance(folder)
        held.refresh()
        self._held[folder.name] = held
        while len(self._held) > MOST:
            self._held.popitem(last=False)
        return held
