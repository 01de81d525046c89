"""`BEST/` beside a seed run: the best deliverable of all its sessions, and its origin.

It is replaced in one move, and only by a strictly better deliverable. It holds copies, so edits
there change nothing else. Losses are compared only if measured alike. A race may still update its
own entry as more readings arrive: with a new mean, with another deliverable, or by removing it. If
a deliverable is itself called `manifest.json`, Kept's manifest is `manifest.kept.json`.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from kept.errors import RunError
from kept.orchestrator.loss import first_number
from kept.orchestrator.run_folder.read import read_object, text_in
from kept.store.candidate_files import link_error, write_below
from kept.store.home import Home

BEST = "BEST"
MANIFEST = "manifest.json"
MANIFEST_ASIDE = "manifest.kept.json"
FRESH, OLD = f".{BEST}.new", f".{BEST}.old"

FOLLOW = "follow"
"""Measure of a loss that comes from one run alone; the default if none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Origin of the best deliverable."""

    best_run_id: str
    best_loss: float
    seed_loss: float
    session_id: str
    winning_run_dir: str
    loss_breakdown: Mapping[str, float]
    measure: str = FOLLOW
    """Kind of measure of the losses; only losses of one kind are compared."""
    seed_run_id: str = ""
    start_run_id: str = ""
    """Run that its session started from: the seed run, or what BEST held then."""
    start_loss: float | None = None
    """Loss of that run, by the same measure."""


class Held(NamedTuple):
    """Content of BEST."""

    run_id: str
    loss: float | None
    measure: str
    session: str = ""
    """Session that put it there; empty if none did."""

    def beaten_by(self, loss: float, measure: str) -> bool:
        """True if a loss is less than its own; False if the measures differ."""
        return self.loss is None or (measure == self.measure and loss < self.loss)

    def is_of(self, session: str, measure: str) -> bool:
        """True if this race put it there; only that race may correct its loss."""
        return measure == self.measure != FOLLOW and session == self.session != ""

    def stays(self, measure: str) -> str:
        """Return the reason why a session with this measure left it unchanged."""
        if self.loss is not None and measure != self.measure:
            return (
                f"it holds run {self.run_id}, whose loss of {self.loss:.4f} was measured otherwise "
                f"(`{self.measure}`, not `{measure}`), so that the two cannot be compared; "
                "move it away to have another session put its own there"
            )
        return f"it holds run {self.run_id}, whose loss of {self.loss or 0.0:.4f} is not more"


def held_in(seed: Path) -> Held | None:
    """Return the best so far; None if there is none."""
    told = manifest_in(seed)
    if told is None:
        return None
    return Held(
        text_in(told.get("best_run_id")),
        first_number(told.get("best_loss")),
        text_in(told.get("measure")) or FOLLOW,
        text_in(told.get("session_id")),
    )


def winning_run(seed: Path) -> Path | None:
    """Return the folder of the run whose deliverable BEST holds; None if unknown."""
    told = manifest_in(seed)
    where = text_in(told.get("winning_run_dir")) if told is not None else ""
    return Home.find(seed).moved(Path(where)) if where else None


def manifest_in(seed: Path) -> Mapping[str, Any] | None:
    """Read the manifest of BEST; None if there is none."""
    for name in (MANIFEST_ASIDE, MANIFEST):
        told = read_object(seed / BEST / name)
        # a deliverable may have that name, but has no such key
        if told is not None and "best_run_id" in told:
            return told
    return None


def best_loss(seed: Path) -> float | None:
    """Return the loss of the best so far; None if there is none."""
    held = held_in(seed)
    return None if held is None else held.loss


def write_best(seed: Path, winner: Winner, files: Mapping[str, bytes]) -> bool:
    """Put these files in BEST if they are better than its content; True if they were."""
    if not files:
        raise RunError(f"run `{winner.best_run_id}` left no file that BEST could hold")
    with alone(seed):
        recover(seed)
        held = held_in(seed)
        if held is not None and not _yields(held, winner):
            return False
        replace_best(seed, best_files(winner, files))
        return True


def best_files(winner: Winner, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of BEST: those of the winner, and the manifest."""
    text = json.dumps(asdict(winner), indent=2, ensure_ascii=False)
    return {**files, manifest_name(files): text.encode() + b"\n"}


def manifest_name(files: Collection[str]) -> str:
    """Return the name of the manifest, which avoids a deliverable of that name."""
    return MANIFEST_ASIDE if MANIFEST in files else MANIFEST


def _yields(held: Held, winner: Winner) -> bool:
    if held.is_of(winner.session_id, winner.measure):
        return (held.run_id, held.loss) != (winner.best_run_id, winner.best_loss)
    if winner.start_loss is not None and held.run_id == winner.start_run_id != "":
        # its session started from what BEST holds, and measured both alike
        return winner.best_loss < winner.start_loss
    return held.beaten_by(winner.best_loss, winner.measure)


def withdraw_best(seed: Path, session: str, measure: str) -> None:
    """Remove the content of BEST if this race put it there."""
    with alone(seed):
        recover(seed)
        held = held_in(seed)
        if held is not None and held.is_of(session, measure):
            shutil.rmtree(seed / FRESH, ignore_errors=True)
            (seed / BEST).rename(seed / FRESH)
            shutil.rmtree(seed / FRESH, ignore_errors=True)


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Lock BEST of a folder, because another session may end at the same time.

    The lock is on the folder itself: it leaves no file, and ends with the process.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # on a file system without locks go on; the session's own lock has warned already
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def replace_best(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace the content of BEST of a folder by these files, in one move."""
    refuse_links(folder, BEST, FRESH, OLD)
    fresh = folder / FRESH
    shutil.rmtree(fresh, ignore_errors=True)  # left by a killed process
    write_below(fresh, files, folder)
    _swap(fresh, folder / BEST)
    shutil.rmtree(fresh, ignore_errors=True)


def refuse_links(folder: Path, *names: str) -> None:
    """Raise `OSError` if a name in a folder is a link, which would be written elsewhere."""
    for name in names:
        if (folder / name).is_symlink():
            raise link_error(folder / name)


def recover(seed: Path) -> None:
    """Restore BEST after a kill between the two moves of a non-atomic replacement."""
    refuse_links(seed, BEST, FRESH, OLD)
    if (seed / OLD).is_dir():
        if not (seed / BEST).exists():
            (seed / OLD).rename(seed / BEST)
        shutil.rmtree(seed / OLD, ignore_errors=True)


def _swap(fresh: Path, place: Path) -> None:
    """Replace a folder by another in one move, so that readers find one or the other."""
    if not place.exists():
        fresh.rename(place)
    elif not exchange(fresh, place):
        # no atomic exchange on this file system; `recover` handles a kill in between
        old = place.with_name(OLD)
        place.rename(old)
        fresh.rename(place)
        shutil.rmtree(old, ignore_errors=True)


def exchange(one: Path, two: Path) -> bool:
    """Exchange two paths atomically; False if the system cannot."""
    # imported here: few commands refine
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    move = getattr(library, "renameat2", None)
    here, flag = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return move is not None and move(here, os.fsencode(one), here, os.fsencode(two), flag) == 0
