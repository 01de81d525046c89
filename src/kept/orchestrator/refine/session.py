"""Refinement session: files of its iterations, record beside the seed run, and lock.

All files are views of the journal, written from the start and valid at any moment. The input of
an iteration is a copy, so edits in place never change the seed run.

    ROOT/iter_k/input/              what it started from
    ROOT/iter_k/gradient_input.json findings about that, written before the first call
    ROOT/iter_k/workspace/runs/ID/  the run
    ROOT/iter_k/output/ID/          its deliverable

A run has at most one refinement at a time: two would pay twice for the same findings. The lock
lies with the seed run, so it works across projects. It is a kernel lock, so it ends with a killed
process.
"""

import json
import logging
import shutil
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, Protocol

from kept.core.event import Event, RunStopped
from kept.core.ports import Journal
from kept.core.schedules.refine import Attempt, attempts, reruns, run_folder, stop_word
from kept.core.state import State
from kept.core.text import encoded
from kept.errors import JournalError, LockedError, SetupError
from kept.orchestrator.record import AgentRun
from kept.orchestrator.refine.attempt import Line, Made, all_made, ledger_of
from kept.orchestrator.refine.best import (
    BEST,
    FOLLOW,
    FRESH,
    OLD,
    Held,
    Winner,
    alone,
    held_in,
    recover,
    refuse_links,
    withdraw_best,
    write_best,
)
from kept.orchestrator.refine.proposer import Iterating
from kept.orchestrator.refine.rescore import Noise, Readings, noise_of, readings_of
from kept.orchestrator.run_folder.write import Layout, write_run
from kept.store.candidate_files import write_below, write_whole
from kept.store.lock import Lock

SESSIONS = "refinement_sessions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Record of a refinement of one seed run."""

    session_id: str
    seed_run_id: str
    started_at: str
    completed_at: str | None = None
    stop_reason: str | None = None
    best_iter: int = 0
    """Number of the best iteration; 0 while the seed is the best."""
    iterations: tuple[Attempt, ...] = ()
    tier_plan_used: bool | None = None
    seed_loss: float | None = None
    start_run_id: str = ""
    """Run that it started from: the seed run, or what BEST held when it began."""
    start_loss: float | None = None
    gate: str = "follow"
    noise: Noise | None = None
    """Noise of one reading; None if it was not measured."""
    findings: tuple[Line, ...] = ()
    """Ledger of findings."""

    def document(self) -> dict[str, Any]:
        """Return the data of the session file: that of the source, and the parts of each loss."""
        return {
            "session_id": self.session_id,
            "seed_run_id": self.seed_run_id,
            "started_at": self.started_at,
            "completed_at": self.completed_at,
            "stop_reason": self.stop_reason,
            "best_iter": self.best_iter,
            "iterations": [_row(one, self.gate) for one in self.iterations],
            "tier_plan_used": self.tier_plan_used,
            "seed_loss": self.seed_loss,
            "start_run_id": self.start_run_id or self.seed_run_id,
            "start_loss": self.seed_loss if self.start_loss is None else self.start_loss,
            "gate": self.gate,
            "noise": None if self.noise is None else asdict(self.noise),
            "findings": [one.document() for one in self.findings],
        }


def _row(one: Attempt, gate: str) -> dict[str, Any]:
    return {
        "k": one.k,
        "run_id": one.run_id,
        "loss": one.loss,
        "status": one.status,
        "tier": one.tier,
        "model_manager": one.model_manager,
        "model_worker": one.model_worker,
        "loss_breakdown": dict(one.loss_breakdown),
        "parent_run_id": one.parent_run_id or None,
        "measured_loss": None if gate == "follow" else one.measured,
        "step": one.step,
    }


def session_name(t: float) -> str:
    """Return the name of a session that begins at this second."""
    return datetime.fromtimestamp(t, UTC).strftime("refine_%Y%m%dT%H%M%SZ")


def free_name(name: str, taken: Collection[str], below: Path) -> str:
    """Return the name, with a number if needed, that is not taken and has no folder."""
    numbers = (f"{name}_{n}" for n in count(2))
    return next(
        one for one in chain((name,), numbers) if one not in taken and not (below / one).exists()
    )


def session_stamp(t: float) -> str:
    """Return a time as text, as session files have it."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_session(seed: Path, session: Session) -> Path:
    """Write a session atomically beside its seed run; return the path."""
    path = seed / SESSIONS / f"{session.session_id}.json"
    write_whole(path, session_bytes(session), seed)
    return path


def session_bytes(session: Session) -> bytes:
    """Return the content of a session file."""
    text = json.dumps(session.document(), indent=2, ensure_ascii=False)
    return encoded(text) + b"\n"


MEASURE = "measure"
"""Name of the fact with the measure of a session's losses."""

GRADIENT = "gradient_input.json"

log = logging.getLogger("kept")


@dataclass(frozen=True, slots=True)
class IterationFolders:
    """Folders of the iterations; implements `kept.orchestrator.refine.proposer.Places`.

    A file that cannot be written only causes a warning: the journal has all data.
    """

    root: Path

    def prepared(self, about: Iterating) -> None:
        """Write input and findings of an iteration before its manager's first call (rule R36)."""
        folder = self.root / f"iter_{about.k}"
        with _warned():
            # may be incomplete after a kill
            shutil.rmtree(folder / "input", ignore_errors=True)
            write_below(folder / "input", about.start.files, self.root)
            write_whole(folder / GRADIENT, gradient_of(about), self.root)

    def ended(self, about: Iterating, run: AgentRun, files: Mapping[str, bytes]) -> None:
        """Write the run in the layout of the source."""
        with _warned():
            write_run(self.root / f"iter_{about.k}", run, files, layout_of(run.run_id))


def layout_of(run_id: str) -> Layout:
    """Return the layout of an iteration's run, below the folder of the iteration."""
    return Layout(f"workspace/runs/{run_id}")


def gradient_of(about: Iterating) -> bytes:
    """Return the content of `gradient_input.json`."""
    told = json.dumps(about.document(), indent=2, ensure_ascii=False)
    return told.encode("utf-8", "replace") + b"\n"


@contextmanager
def _warned() -> Generator[None]:
    try:
        yield
    except OSError as error:
        log.warning("cannot write %s: %s", error.filename, error.strerror)


class Shelf(Protocol):
    """Place of the session file and of the best deliverable."""

    def write(self, session: Session) -> None:
        """Write the current state of a session."""
        ...

    def put(self, winner: Winner, made: Made) -> None:
        """Put the best there if it is better than the current one."""
        ...

    def withdraw(self, session: str, measure: str) -> None:
        """Remove the entry of this race, because the seed is no worse."""
        ...

    def holds(self) -> Held | None:
        """Return the current best; None if there is none."""
        ...

    def recover(self) -> None:
        """Restore the best after a kill."""
        ...


@dataclass(frozen=True, slots=True)
class BesideSeed:
    """The folder of the seed run. Implements `Shelf`."""

    seed: Path

    def write(self, session: Session) -> None:
        """Write the session file beside the seed."""
        write_session(self.seed, session)

    def put(self, winner: Winner, made: Made) -> None:
        """Put the best in BEST of the seed."""
        write_best(self.seed, winner, made.files)

    def withdraw(self, session: str, measure: str) -> None:
        """Remove BEST if this race made it."""
        withdraw_best(self.seed, session, measure)

    def holds(self) -> Held | None:
        """Return the content of BEST of the seed."""
        return held_in(self.seed)

    def recover(self) -> None:
        """Restore BEST after a kill."""
        with alone(self.seed):
            recover(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """Facts of a session, and the place where it is written."""

    shelf: Shelf
    root: Path
    session_id: str
    seed_run_id: str
    tiers: bool
    start_run_id: str = ""
    """Run that it started from: the seed run, or what BEST held."""
    seed_loss: float | None = None
    """Loss of the seed in its own run, if the session started from another run; else None."""


class SessionFiles:
    """Listener that keeps the session file and BEST in line with the journal."""

    def __init__(self, place: SessionPlace, journal: Journal) -> None:
        self._place = place
        self._journal = journal
        self._told = False

    def on_event(self, event: Event, state: State) -> None:
        """Write the current state; after a kill the next session starts by doing so."""
        if event.kind not in ("run_started", "run_resumed", "step_closed", "run_stopped"):
            return
        told = Told(state, all_made(self._journal.load(state.seed), reruns(state)))
        ended = event.t if isinstance(event, RunStopped) else None
        try:
            self._best(told)
            self._place.shelf.write(session_of(self._place, told, ended))
        except OSError as error:
            # warn once; every later event tries again
            if not self._told:
                log.warning("cannot write %s: %s", error.filename, error.strerror)
            self._told = True

    def _best(self, told: "Told") -> None:
        """Update BEST by all readings so far; an entry of others stays until losses are final."""
        place, shelf = self._place, self._place.shelf
        shelf.recover()
        held = shelf.holds()
        mine = held is not None and held.is_of(place.session_id, told.measure)
        if not told.best_iter:
            if mine:
                shelf.withdraw(place.session_id, told.measure)
        elif held is None or mine or told.final:
            shelf.put(winner_of(self._place, told), told.best)


def session_of(place: SessionPlace, told: "Told", ended: float | None) -> Session:
    """Return the session as its file has it."""
    started, stopped = told.state.started, told.state.stopped
    assert started is not None, "the first event is `run_started`"
    return Session(
        session_id=place.session_id,
        seed_run_id=place.seed_run_id,
        started_at=session_stamp(started.t),
        completed_at=None if ended is None else session_stamp(ended),
        stop_reason=stop_name(stopped.kind, stopped.message) if stopped else None,
        best_iter=told.best_iter,
        iterations=tuple(told.attempts),
        tier_plan_used=True if place.tiers else None,
        seed_loss=_seed_loss(place, told),
        start_run_id=place.start_run_id or place.seed_run_id,
        start_loss=round(told.parts(told.state.seed)["total"], 6),
        gate="race" if told.raced else "follow",
        noise=told.noise,
        findings=told.ledger,
    )


def winner_of(place: SessionPlace, told: "Told") -> Winner:
    """Return the origin of the best of a session."""
    best = told.best
    won = next(one for one in told.attempts if one.k == told.best_iter)
    parts, start = told.parts(told.state.best), told.parts(told.state.seed)
    return Winner(
        best_run_id=best.run_id,
        best_loss=round(parts["total"], 6),
        seed_loss=_seed_loss(place, told),
        session_id=place.session_id,
        winning_run_dir=run_folder(str(place.root), won),
        loss_breakdown=parts,
        measure=told.measure,
        seed_run_id=place.seed_run_id,
        start_run_id=place.start_run_id or place.seed_run_id,
        start_loss=round(start["total"], 6),
    )


def _seed_loss(place: SessionPlace, told: "Told") -> float:
    """Return the loss of the seed run; in a race that of the starting run, which alone was read."""
    start = told.parts(told.state.seed)["total"]
    own = place.seed_loss
    return round(start if own is None or told.raced else own, 6)


class Told:
    """View of a refinement, computed from the state of its run."""

    def __init__(self, state: State, made: Mapping[str, Made]) -> None:
        self.state = state
        self.made = made
        # in a race, deliverables are read several times before they are accepted
        self.raced = state.settings.gate != "follow"
        self.attempts = [self._measured(one) for one in attempts(reruns(state))]

    @property
    def best(self) -> Made:
        """Best run according to the gate."""
        return self.made[self.state.best]

    @property
    def best_iter(self) -> int:
        """Number of the iteration that made the best; 0 while the seed is the best.

        Also 0 if it won a race, but the mean of all its readings is no better than the seed's.
        """
        k = next((one.k for one in self.attempts if one.run_id == self.best.run_id), 0)
        return 0 if self.raced and not self._fell else k

    @property
    def best_id(self) -> str:
        """Id of the best candidate by all readings; the seed while no iteration is better."""
        return self.state.best if self.best_iter else self.state.seed

    @property
    def final(self) -> bool:
        """True if the losses are final: those of a race change until its end."""
        stopped = self.state.stopped
        return not self.raced or (stopped is not None and not stopped.resumable)

    @property
    def measure(self) -> str:
        """Measure of its losses: of one run each, or means of readings."""
        started = self.state.started
        told = started.facts.get(MEASURE) if started else None
        return str(told or ("race" if self.raced else FOLLOW))

    @property
    def ledger(self) -> tuple[Line, ...]:
        """Result for every finding, iteration by iteration."""
        return ledger_of(
            self.made[self.state.seed],
            self.made[self.best_id],
            self.made.values(),
            self.attempts,
        )

    @property
    def noise(self) -> Noise | None:
        """Noise of one reading, estimated from all evaluated candidates; None without a race."""
        if not self.raced:
            return None
        return noise_of(readings_of(known) for known in self.state.evaluations.values())

    def parts(self, id_: str) -> Mapping[str, float]:
        """Return the loss of a candidate with its parts; in a race the mean of its readings."""
        read = self.readings(id_)
        return self.made[id_].parts if read is None else read.parts

    def readings(self, id_: str) -> Readings | None:
        """Return the summary of a candidate's readings; None without a race or readings."""
        return readings_of(self.state.evaluations.get(id_, ())) if self.raced else None

    def _measured(self, one: Attempt) -> Attempt:
        """Return an attempt with the mean of all its readings, including those as incumbent."""
        mine = (id_ for id_, made in self.made.items() if made.run_id == one.run_id)
        read = self.readings(next(mine, ""))
        return one if read is None else replace(one, measured=read.loss)

    @property
    def _fell(self) -> bool:
        seed, best = self.readings(self.state.seed), self.readings(self.state.best)
        return seed is not None and best is not None and best.loss < seed.loss


def stop_name(kind: str, message: str) -> str:
    """Return the reason why a session ended, in the words of the source."""
    if kind == "error" and not message.startswith("error:"):
        return f"error:{kind}"
    if kind == "error":
        return ":".join(message.split(":")[:2])
    return stop_word(message) if kind in ("iterations", "converged") else kind


LOCK = ".refining.lock"


@contextmanager
def refining(folders: Iterable[Path], session: str) -> Generator[None]:
    """Lock the folders that a session refines; raises `LockedError` if another holds one."""
    with ExitStack() as held:
        for folder in folders:
            _check_links(folder)
            if (lock := _lock(folder, session)) is not None:
                held.callback(lock.remove)
        yield


def _check_links(folder: Path) -> None:
    """Raise `SetupError` if a link would make a session write elsewhere."""
    try:
        refuse_links(folder, BEST, FRESH, OLD, SESSIONS, LOCK)
    except OSError as error:
        raise SetupError(
            f"cannot refine {folder}: `{Path(error.filename).name}` is a link, and its session "
            "and its best are written beside it",
            hint="remove the link, or refine a copy of the run",
        ) from error


def _lock(folder: Path, session: str) -> Lock | None:
    """Take the lock; None if there can be none, as in a read-only folder."""
    try:
        # `lost`: the file was removed by its last owner between opening and locking
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
