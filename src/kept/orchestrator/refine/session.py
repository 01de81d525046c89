"""Refinement session: files of its iterations, record beside the seed run, and lock.

All files are views of the journal, written from the start and valid at any moment. The input of
an iteration is a copy, so edits in place never change the seed run.

    ROOT/iter_k/input/              what it started from
    ROOT/iter_k/gradient_input.json what was found wrong with that, before anything was asked
    ROOT/iter_k/workspace/runs/ID/  the run
    ROOT/iter_k/output/ID/          what it left

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
    """A refinement of one seed run."""

    session_id: str
    seed_run_id: str
    started_at: str
    completed_at: str | None = None
    stop_reason: str | None = None
    best_iter: int = 0
    """0 while the seed is the best."""
    iterations: tuple[Attempt, ...] = ()
    tier_plan_used: bool | None = None
    seed_loss: float | None = None
    start_run_id: str = ""
    """The run that it started from: the seed run, or what BEST held when it began."""
    start_loss: float | None = None
    gate: str = "follow"
    noise: Noise | None = None
    """How much the loss of one reading says; None where nobody measured it."""
    findings: tuple[Line, ...] = ()
    """The ledger of findings."""

    def document(self) -> dict[str, Any]:
        """As the source writes it, and the parts of each loss."""
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
    """The name of a session that begins at this second."""
    return datetime.fromtimestamp(t, UTC).strftime("refine_%Y%m%dT%H%M%SZ")


def free_name(name: str, taken: Collection[str], below: Path) -> str:
    """A name that is not taken, and has no folder; the first of a row of them."""
    numbers = (f"{name}_{n}" for n in count(2))
    return next(
        one for one in chain((name,), numbers) if one not in taken and not (below / one).exists()
    )


def session_stamp(t: float) -> str:
    """A moment, as a session writes it."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_session(seed: Path, session: Session) -> Path:
    """Write it beside its seed run, whole or not at all; where."""
    path = seed / SESSIONS / f"{session.session_id}.json"
    write_whole(path, session_bytes(session), seed)
    return path


def session_bytes(session: Session) -> bytes:
    """The file of a session."""
    text = json.dumps(session.document(), indent=2, ensure_ascii=False)
    return encoded(text) + b"\n"


MEASURE = "measure"
"""The fact that says what the losses of a session are."""

GRADIENT = "gradient_input.json"

log = logging.getLogger("kept")


@dataclass(frozen=True, slots=True)
class IterationFolders:
    """Implements `kept.orchestrator.refine.proposer.Places`.

    What cannot be written is warned of: the journal has it, and an iteration is not lost for it.
    """

    root: Path

    def prepared(self, about: Iterating) -> None:
        """Write what an iteration is given; before the first call of its manager (rule R36)."""
        folder = self.root / f"iter_{about.k}"
        with _warned():
            # what a killed sitting left half written
            shutil.rmtree(folder / "input", ignore_errors=True)
            write_below(folder / "input", about.start.files, self.root)
            write_whole(folder / GRADIENT, gradient_of(about), self.root)

    def ended(self, about: Iterating, run: AgentRun, files: Mapping[str, bytes]) -> None:
        """Write the run as its source lays it out."""
        with _warned():
            write_run(self.root / f"iter_{about.k}", run, files, layout_of(run.run_id))


def layout_of(run_id: str) -> Layout:
    """The folder of an iteration's run, below the folder of the iteration."""
    return Layout(f"workspace/runs/{run_id}")


def gradient_of(about: Iterating) -> bytes:
    """All that explains an iteration, as its file."""
    told = json.dumps(about.document(), indent=2, ensure_ascii=False)
    return told.encode("utf-8", "replace") + b"\n"


@contextmanager
def _warned() -> Generator[None]:
    try:
        yield
    except OSError as error:
        log.warning("cannot write %s: %s", error.filename, error.strerror)


class Shelf(Protocol):
    """Where a session is told of, and where the best is put."""

    def write(self, session: Session) -> None:
        """Tell what is true of a session now."""
        ...

    def put(self, winner: Winner, made: Made) -> None:
        """Put the best there, if it is better than what is there."""
        ...

    def withdraw(self, session: str, measure: str) -> None:
        """Take back what this race put there: the seed is no worse."""
        ...

    def holds(self) -> Held | None:
        """What is there; None without anything."""
        ...

    def recover(self) -> None:
        """Put right what a kill left."""
        ...


@dataclass(frozen=True, slots=True)
class BesideSeed:
    """The folder of the seed run. Implements `Shelf`."""

    seed: Path

    def write(self, session: Session) -> None:
        """In a file of its own."""
        write_session(self.seed, session)

    def put(self, winner: Winner, made: Made) -> None:
        """In BEST of the seed."""
        write_best(self.seed, winner, made.files)

    def withdraw(self, session: str, measure: str) -> None:
        """There is no BEST then."""
        withdraw_best(self.seed, session, measure)

    def holds(self) -> Held | None:
        """What BEST of the seed holds."""
        return held_in(self.seed)

    def recover(self) -> None:
        """After a kill."""
        with alone(self.seed):
            recover(self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlace:
    """What is told of a session, and where."""

    shelf: Shelf
    root: Path
    session_id: str
    seed_run_id: str
    tiers: bool
    start_run_id: str = ""
    """The run that it started from; the seed run, or what BEST held."""
    seed_loss: float | None = None
    """By its own run, where the session started from another; else None."""


class SessionFiles:
    """A sink that keeps the session and BEST as the journal has them."""

    def __init__(self, place: SessionPlace, journal: Journal) -> None:
        self._place = place
        self._journal = journal
        self._told = False

    def on_event(self, event: Event, state: State) -> None:
        """Write what is true now; after a kill the next sitting begins by that."""
        if event.kind not in ("run_started", "run_resumed", "step_closed", "run_stopped"):
            return
        told = Told(state, all_made(self._journal.load(state.seed), reruns(state)))
        ended = event.t if isinstance(event, RunStopped) else None
        try:
            self._best(told)
            self._place.shelf.write(session_of(self._place, told, ended))
        except OSError as error:
            if not self._told:
                log.warning("cannot write %s: %s", error.filename, error.strerror)
            self._told = True

    def _best(self, told: "Told") -> None:
        """Have BEST say what all readings so far say; that of others stays until they are all."""
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
    """The content of the file of a session."""
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
    """The origin of the best of a session."""
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
    """Of the seed run; of what a race started from, which alone was read."""
    start = told.parts(told.state.seed)["total"]
    own = place.seed_loss
    return round(start if own is None or told.raced else own, 6)


class Told:
    """What a state says of a refinement."""

    def __init__(self, state: State, made: Mapping[str, Made]) -> None:
        self.state = state
        self.made = made
        # deliverables are read several times, and not believed at once
        self.raced = state.settings.gate != "follow"
        self.attempts = [self._measured(one) for one in attempts(reruns(state))]

    @property
    def best(self) -> Made:
        """What is the best by the gate."""
        return self.made[self.state.best]

    @property
    def best_iter(self) -> int:
        """The iteration that made it; 0 while the seed is the best.

        0 also for what won a race and whose readings all together are no better than the seed's.
        """
        k = next((one.k for one in self.attempts if one.run_id == self.best.run_id), 0)
        return 0 if self.raced and not self._fell else k

    @property
    def best_id(self) -> str:
        """The candidate that is the best by all that is known: the seed while no iteration is."""
        return self.state.best if self.best_iter else self.state.seed

    @property
    def final(self) -> bool:
        """Whether its losses are what they will be: those of a race move until its end."""
        stopped = self.state.stopped
        return not self.raced or (stopped is not None and not stopped.resumable)

    @property
    def measure(self) -> str:
        """What its losses are: of one run each, or means of such readings."""
        started = self.state.started
        told = started.facts.get(MEASURE) if started else None
        return str(told or ("race" if self.raced else FOLLOW))

    @property
    def ledger(self) -> tuple[Line, ...]:
        """The fate of every finding, iteration by iteration."""
        return ledger_of(
            self.made[self.state.seed],
            self.made[self.best_id],
            self.made.values(),
            self.attempts,
        )

    @property
    def noise(self) -> Noise | None:
        """How much one reading says, by those of the seed and of what was kept."""
        if not self.raced:
            return None
        return noise_of(readings_of(known) for known in self.state.evaluations.values())

    def parts(self, id_: str) -> Mapping[str, float]:
        """The loss of a candidate with its parts: the mean of its readings where it was raced."""
        read = self.readings(id_)
        return self.made[id_].parts if read is None else read.parts

    def readings(self, id_: str) -> Readings | None:
        """What readings of a candidate come to; None where it was not raced, or not read."""
        return readings_of(self.state.evaluations.get(id_, ())) if self.raced else None

    def _measured(self, one: Attempt) -> Attempt:
        """With the mean of all its readings, also of those that were made when it was the best."""
        mine = (id_ for id_, made in self.made.items() if made.run_id == one.run_id)
        read = self.readings(next(mine, ""))
        return one if read is None else replace(one, measured=read.loss)

    @property
    def _fell(self) -> bool:
        seed, best = self.readings(self.state.seed), self.readings(self.state.best)
        return seed is not None and best is not None and best.loss < seed.loss


def stop_name(kind: str, message: str) -> str:
    """Why a session ended, in a word of the seed's."""
    if kind == "error" and not message.startswith("error:"):
        return f"error:{kind}"
    if kind == "error":
        return ":".join(message.split(":")[:2])
    return stop_word(message) if kind in ("iterations", "converged") else kind


LOCK = ".refining.lock"


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
