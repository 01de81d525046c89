"""`BEST/` beside a seed run: the best deliverable of all its sessions, and where it is from.

It is replaced in one move, never by something that is not strictly better, and holds copies: who
edits a file there changes nothing else. Losses are compared only where they were measured alike.
What a race has put there moves with the readings that it still makes: it may put another mean or
another deliverable in the place of its own, or take back what all readings no longer show.
A deliverable may itself be called `manifest.json`; then that is what lies there, and what Kept has
to say stands in `manifest.kept.json`.
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
"""The measure of a loss that is the account of one run; it is meant where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """Where the best deliverable is from."""

    best_run_id: str
    best_loss: float
    seed_loss: float
    session_id: str
    winning_run_dir: str
    loss_breakdown: Mapping[str, float]
    measure: str = FOLLOW
    """What the losses are: compared with no others."""
    seed_run_id: str = ""
    start_run_id: str = ""
    """The run that its session started from: the seed run, or what BEST held then."""
    start_loss: float | None = None
    """The loss of that, by the same measure."""


class Held(NamedTuple):
    """What BEST holds."""

    run_id: str
    loss: float | None
    measure: str
    session: str = ""
    """Which put it there; empty where none did."""

    def beaten_by(self, loss: float, measure: str) -> bool:
        """Whether a loss is less than its own; never where the two were measured otherwise."""
        return self.loss is None or (measure == self.measure and loss < self.loss)

    def is_of(self, session: str, measure: str) -> bool:
        """Whether this race put it there, which knows best what it is worth by now."""
        return measure == self.measure != FOLLOW and session == self.session != ""

    def stays(self, measure: str) -> str:
        """Why it was left as it is, by what was measured so."""
        if self.loss is not None and measure != self.measure:
            return (
                f"it holds run {self.run_id}, whose loss of {self.loss:.4f} was measured otherwise "
                f"(`{self.measure}`, not `{measure}`), so that the two cannot be compared; "
                "move it away to have another session put its own there"
            )
        return f"it holds run {self.run_id}, whose loss of {self.loss or 0.0:.4f} is not more"


def held_in(seed: Path) -> Held | None:
    """The best so far; None where there is none."""
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
    """The folder of the run whose deliverable BEST holds; None without BEST, or without one."""
    told = manifest_in(seed)
    where = text_in(told.get("winning_run_dir")) if told is not None else ""
    return Home.find(seed).moved(Path(where)) if where else None


def manifest_in(seed: Path) -> Mapping[str, Any] | None:
    """Manifest of BEST; None where there is none."""
    for name in (MANIFEST_ASIDE, MANIFEST):
        told = read_object(seed / BEST / name)
        # a deliverable of that name says nothing about runs
        if told is not None and "best_run_id" in told:
            return told
    return None


def best_loss(seed: Path) -> float | None:
    """The loss of the best so far; None where there is none."""
    held = held_in(seed)
    return None if held is None else held.loss


def write_best(seed: Path, winner: Winner, files: Mapping[str, bytes]) -> bool:
    """Have BEST hold these files, if they are better than what it holds; whether they are."""
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
    """The content of BEST: the files of the winner, and where they are from."""
    text = json.dumps(asdict(winner), indent=2, ensure_ascii=False)
    return {**files, manifest_name(files): text.encode() + b"\n"}


def manifest_name(files: Collection[str]) -> str:
    """The name of the file that says where the best is from."""
    return MANIFEST_ASIDE if MANIFEST in files else MANIFEST


def _yields(held: Held, winner: Winner) -> bool:
    if held.is_of(winner.session_id, winner.measure):
        return (held.run_id, held.loss) != (winner.best_run_id, winner.best_loss)
    if winner.start_loss is not None and held.run_id == winner.start_run_id != "":
        # its session started from what BEST holds, and measured both alike
        return winner.best_loss < winner.start_loss
    return held.beaten_by(winner.best_loss, winner.measure)


def withdraw_best(seed: Path, session: str, measure: str) -> None:
    """Take back what this race put there."""
    with alone(seed):
        recover(seed)
        held = held_in(seed)
        if held is not None and held.is_of(session, measure):
            shutil.rmtree(seed / FRESH, ignore_errors=True)
            (seed / BEST).rename(seed / FRESH)
            shutil.rmtree(seed / FRESH, ignore_errors=True)


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Let nobody else replace BEST of a folder meanwhile: another session of it may end as well.

    The lock is on the folder itself: it leaves nothing behind, and goes with a process that dies.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # a file system without locks is told of where a session begins, and has its BEST as well
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def replace_best(folder: Path, files: Mapping[str, bytes]) -> None:
    """Have BEST of a folder hold these files, in one move."""
    refuse_links(folder, BEST, FRESH, OLD)
    fresh = folder / FRESH
    shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed while it wrote
    write_below(fresh, files, folder)
    _swap(fresh, folder / BEST)
    shutil.rmtree(fresh, ignore_errors=True)


def refuse_links(folder: Path, *names: str) -> None:
    """Raise `OSError` for a name in a folder that is a link: it would be written elsewhere."""
    for name in names:
        if (folder / name).is_symlink():
            raise link_error(folder / name)


def recover(seed: Path) -> None:
    """Put back what a kill between two moves left aside, where one move does not do."""
    refuse_links(seed, BEST, FRESH, OLD)
    if (seed / OLD).is_dir():
        if not (seed / BEST).exists():
            (seed / OLD).rename(seed / BEST)
        shutil.rmtree(seed / OLD, ignore_errors=True)


def _swap(fresh: Path, place: Path) -> None:
    """Put a folder in the place of another in one move, so that a reader finds one or the other."""
    if not place.exists():
        fresh.rename(place)
    elif not exchange(fresh, place):
        # a file system without such a move; `recover` knows what a kill here leaves
        old = place.with_name(OLD)
        place.rename(old)
        fresh.rename(place)
        shutil.rmtree(old, ignore_errors=True)


def exchange(one: Path, two: Path) -> bool:
    """Have two paths change places in one step; whether that could be done."""
    # at use: few programs refine
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    move = getattr(library, "renameat2", None)
    here, flag = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return move is not None and move(here, os.fsencode(one), here, os.fsencode(two), flag) == 0
