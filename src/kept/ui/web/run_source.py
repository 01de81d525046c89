"""List of runs with overviews, and server-sent events about changed runs.

A run is looked up by its exact name among those in the folder. Request data is never joined to a
path. Events come from file stamps alone; the open page then fetches itself again.
"""

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from kept.errors import SetupError
from kept.store.home import Home
from kept.store.lock import holder
from kept.store.overview import Glance
from kept.store.run_index import RunIndex, RunRow

MOST = 6
"""Maximum number of cached glances: one of a very long run takes tens of megabytes."""


class Runs:
    """The runs of a home, with a cache of their overviews."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._lock = threading.RLock()
        self._running: set[str] = set()
        """Names of runs that were being written when last listed."""
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
        """Folder of a run; the name must be in the list."""
        for folder in self.home.folders():
            if folder.name == name:
                return folder
        raise SetupError(f"there is no run `{name}` here", hint="the list of runs has them all")

    def glance(self, name: str) -> Glance:
        """Snapshot of a run for one request, as other requests refresh the cached overview."""
        folder = self.folder(name)
        with self._lock:
            return self._glance_of(folder).still()

    def marks(self) -> dict[str, int]:
        """Change mark of each run: the size of its journal, or -1 once its process was killed."""
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


EVERY = 0.25
"""Seconds between two checks of one run."""
EVERY_LIST = 1.0
"""Seconds between two checks of the list."""
EVERY_REFINE = 0.5
"""Seconds between two checks of a run's refinements."""
ALIVE = 15.0
"""Seconds after which a silent stream sends a keep-alive comment."""

Mark = object


def run_mark(folder: Path) -> Mark:
    """Change mark of a run: differs once it is written, stopped, killed or resumed."""
    sizes = [_size(folder / name) for name in ("journal.jsonl", "rollouts.jsonl")]
    return [*sizes, holder(folder) is not None]


def list_mark(runs: Runs) -> Mark:
    """Change mark of all runs."""
    return runs.marks()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


async def stream(
    look: Callable[[], Mark], every: float, gone: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """Server-sent events, one per change, until the client is gone."""
    before = await asyncio.to_thread(look)
    yield f"retry: 1000\nevent: hello\ndata: {json.dumps(before)}\n\n"
    silent = 0.0
    while not await gone():
        await asyncio.sleep(every)
        now = await asyncio.to_thread(look)
        silent += every
        if now != before:
            yield f"event: change\ndata: {json.dumps(now)}\n\n"
            before, silent = now, 0.0
        elif silent >= ALIVE:
            yield ": here\n\n"
            silent = 0.0
