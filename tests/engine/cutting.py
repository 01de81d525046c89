"""A run cut anywhere: what it had written at every moment, and the run as it was then."""

import shutil
from collections import Counter
from pathlib import Path

from kept.core.event import Event
from kept.core.rollout import Job
from kept.core.score import Outcome
from kept.core.state import State
from kept.store import codec
from kept.store.home import Home

FILES = ("journal.jsonl", "rollouts.jsonl", "blobs.pack", "steps.idx")


class Moments:
    """Remembers how large each file was after everything that was written."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.sizes: list[tuple[int, ...]] = []

    def on_event(self, event: Event, state: State) -> None:
        self._note()

    def on_rollout(self, job: Job, outcome: Outcome) -> None:
        self._note()

    def _note(self) -> None:
        assert self.folder is not None
        sizes = tuple((self.folder / name).stat().st_size for name in FILES)
        if not self.sizes or sizes != self.sizes[-1]:
            self.sizes.append(sizes)


class Home1(Home):
    """A home that tells a sink the folder of its run before the run begins."""

    def __init__(self, path: Path, moments: Moments) -> None:
        super().__init__(path)
        self._moments = moments

    def new_run(self, inputs: object, now: float) -> Path:
        folder = super().new_run({"run": "1"}, now)
        self._moments.folder = folder
        return folder


def cut(folder: Path, sizes: tuple[int, ...], to: Path) -> Path:
    """The run as it was when its files had these sizes."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for name, size in zip(FILES, sizes, strict=True):
        (to / name).write_bytes((folder / name).read_bytes()[:size])
    return to


Rows = list[codec.Line]


def rows(folder: Path) -> Rows:
    lines = (folder / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    return [codec.decode_line(line) for line in lines if line.endswith(b"\n")]


def calls(rows: Rows) -> Counter[tuple[str, str]]:
    return Counter((row.scope, row.key) for row in rows if isinstance(row, codec.CallLine))
